"""Suites of errands, and the sweeps that play them."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import orjson

from evalkit.envs.errand import errand
from evalkit.errors import UsageError
from evalkit.files import new_file, write_new
from evalkit.spec.catalogue import find_model, read_provider
from evalkit.spec.sweep import checked_name
from evalkit.tasks.errands import Line

WRITERS_TEMPERATURE = 0.6
"""As in the reference; the others are asked at the environment's 0."""


def write_errands(
    kind: str, lines: Sequence[Line], *, name: str, suite: str, model: str, about: str
) -> tuple[Path, Path]:
    """Write a suite of errands and its sweep, and return their paths. Either both are written or none.

    Raises UsageError for wrong names, models and amounts, if there is nothing to ask, and if the files exist.
    """
    checked_name(name, "--name", "/:=")
    if not lines:
        raise UsageError("There is nothing to ask about; nothing was written.")
    suite_path = new_file(suite, ".jsonl", "a suite's file")
    sweep_path = new_file(f"runs/{name}.toml", ".toml", "a sweep's file")
    text = sweep_text(name, kind, model, suite_path, about)
    write_new(suite_path, suite_text(lines))
    write_new(sweep_path, text)
    return suite_path, sweep_path


def suite_text(lines: Iterable[Line]) -> str:
    """Lines as the text of a suite's file."""
    return "".join(f"{orjson.dumps(dict(line)).decode()}\n" for line in lines)


def sweep_text(name: str, kind: str, model: str, suite: Path, about: str) -> str:
    """The sweep that plays a suite of errands. `model`: provider and model with a slash between.

    Raises UsageError if the provider is not known, or lists no such model.
    """
    provider_name, _, model_name = model.partition("/")
    if not model_name:
        raise UsageError(f"--model: {model!r}: expected PROVIDER/MODEL, as in `openai/gpt-5`.")
    listed_model = find_model(read_provider(provider_name), model_name)
    rows = [f"# {about}", f"name = {json.dumps(name)}"]
    role = {errand.CONFLICT: "validator", errand.REQUIREMENT: "writer"}.get(kind, "judge")
    rows += ["", "[[agents]]", f'name = "{role}"', f"provider = {json.dumps(provider_name)}"]
    rows.append(f"model = {json.dumps(model_name)}")
    if kind == errand.REQUIREMENT and "temperature" not in listed_model.quirks.refuses:
        rows.append(f"temperature = {WRITERS_TEMPERATURE}")
    return "\n".join([*rows, "", "[[suites]]", f"name = {json.dumps(suite.as_posix())}", ""])
