"""Writes evalkit/schemas/: JSON schemas of sweeps, providers, catalogues and prompt packs, for editors. `make docs`
calls it, and a test compares.

They are made from the structs that parse these files, so what the parser refuses for its shape an editor marks. What a
key means is taken from the tables of keys in the documentation.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.table import ENVIRONMENTS, OWN_ENVIRONMENTS
from evalkit.spec.catalogue import ProviderFile
from evalkit.spec.packs import VARIANTS
from evalkit.spec.sweep import LISTS, SweepFile

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / "evalkit" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
TITLES = {
    "sweep": "A sweep of evalkit: runs/*.toml",
    "provider": "A provider of evalkit: providers/*.toml",
    "catalogue": "A CostBench catalogue",
    "pack": "A prompt pack of evalkit",
}
PAGES = {"sweep": ("sweeps.md", "deciding.md", "gate.md"), "provider": ("providers.md", "provider-details.md")}
"""Where keys are explained."""

Schema = dict[str, Any]


def schemas() -> dict[str, Schema]:
    """By kind of file."""
    made = {
        "sweep": _of_struct("sweep", SweepFile),
        "provider": _of_struct("provider", ProviderFile),
        "catalogue": _of_struct("catalogue", Catalogue),
        "pack": _of_packs(),
    }
    return {kind: {"$schema": DRAFT, **schema, "title": TITLES[kind]} for kind, schema in made.items()}


def _of_struct(kind: str, struct: type[msgspec.Struct]) -> Schema:
    made = msgspec.json.schema(struct)
    meanings = dict(_meanings(kind))
    for name, part in made["$defs"].items():
        if "properties" not in part:
            continue
        part["additionalProperties"] = False
        for key, value in part["properties"].items():
            part["properties"][key] = _without_null(value)
            if key in meanings:
                part["properties"][key]["description"] = meanings[key]
        if name == "AgentFile":
            part["properties"] = {key: _crossed(key, value) for key, value in part["properties"].items()}
            # What the agents' table cannot do without is told by the parser: it may be any of three.
    root = made["$ref"].rpartition("/")[2]
    return {**made["$defs"].pop(root), "$defs": made["$defs"]}


def _without_null(value: Schema) -> Schema:
    """TOML has no null: what may be left out is left out."""
    value = {key: one for key, one in value.items() if not (key == "default" and one in (None, {}, [], ""))}
    if "anyOf" in value:
        kept = [one for one in value["anyOf"] if one != {"type": "null"}]
        value = {**value, "anyOf": kept} if len(kept) > 1 else {**value, **kept[0]}
        if len(kept) == 1:
            del value["anyOf"]
    return value


def _crossed(key: str, value: Schema) -> Schema:
    """An agent's value, or a list of such values: one agent for each."""
    if key in LISTS:
        return value
    about: Schema = {name: value[name] for name in ("description", "default") if name in value}
    one = {name: part for name, part in value.items() if name not in about}
    return {**about, "anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


def _meanings(kind: str) -> Iterator[tuple[str, str]]:
    """(key, what it means) of the tables in the documentation; the first that names a key counts."""
    seen = set[str]()
    for page in PAGES.get(kind, ()):
        for line in (PROJECT / "docs" / page).read_text(encoding="utf-8").splitlines():
            row = re.fullmatch(r"\| ((?:`\w+`[, ]*)+) \| (.+) \|", line)
            for key in re.findall(r"`(\w+)`", row[1]) if row else ():
                if row and key not in seen:
                    seen.add(key)
                    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", row[2]).replace("`", "")
                    yield key, text


def _of_packs() -> Schema:
    """Texts by environment; of other packages' environments nothing is known."""
    environments = {}
    for name in OWN_ENVIRONMENTS:
        texts = ENVIRONMENTS[name].texts
        tree = _tree({key: _text(texts.choices.get(key, ())) for key in texts.all}, texts.open)
        variants = dict.fromkeys(VARIANTS, tree)
        environments[name] = {**tree, "properties": {**tree["properties"], **variants}}
    return {"type": "object", "properties": environments, "additionalProperties": {"type": "object"}}


def _text(choices: Any) -> Schema:
    return {"type": "string", **({"enum": sorted(choices)} if choices else {})}


def _tree(leaves: Mapping[str, Schema], free: Any) -> Schema:
    """Nested tables of texts by dotted keys; `free`: tables in which any text may stand."""
    root: Schema = {"type": "object", "properties": {}, "additionalProperties": False}
    for dotted in (*leaves, *(f"{table}." for table in free)):
        *tables, last = dotted.split(".")
        part = root
        for table in tables:
            fresh = {"type": "object", "properties": {}, "additionalProperties": False}
            part = part["properties"].setdefault(table, fresh)
        if last:
            part["properties"][last] = leaves[dotted]
        else:
            part["additionalProperties"] = {"type": "string"}
    return root


def text(schema: Schema) -> str:
    """As the file holds it: on one line, since nobody reads it so; `evalkit tools schema` prints it with more."""
    return json.dumps(schema, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Write them."""
    for kind, schema in schemas().items():
        (FOLDER / f"{kind}.json").write_text(text(schema), encoding="utf-8")


if __name__ == "__main__":
    main()
