"""Whether a spec is Vega-Lite: what the drawing of a spec passes over in silence, the schema names."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft7Validator
from jsonschema.exceptions import best_match


@cache
def _validator() -> Draft7Validator:
    schema = files("altair").joinpath("vegalite/v6/schema/vega-lite-schema.json")
    return Draft7Validator(json.loads(schema.read_text()))


def schema_flaw(spec: Mapping[str, Any]) -> str:
    """Why a spec is not valid, empty where it is. Of data one row is looked at."""
    flaw = best_match(_validator().iter_errors(_shortened(spec)))
    return "" if flaw is None else f"{flaw.json_path}: {flaw.message}"


def _shortened(spec: Any) -> Any:
    if isinstance(spec, Mapping):
        return {
            name: {"values": list(value["values"][:1])} if name == "data" else _shortened(value)
            for name, value in spec.items()
        }
    return [_shortened(value) for value in spec] if isinstance(spec, list) else spec
