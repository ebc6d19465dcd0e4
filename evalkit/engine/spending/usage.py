"""A provider's own account of what it billed, as `tools reconcile` reads it: JSON lines or CSV, one line per request.

A line names the request by the id that evalkit sent with it (`episode/step/attempt`) and says what was billed: in USD,
in pico-dollars, or in tokens, which are then counted at the agent's frozen price. The simulated provider's bill is such
a file.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import orjson

from evalkit.dialogue import Usage
from evalkit.errors import UsageError
from evalkit.money import PICO_PER_USD, pico_at_least
from evalkit.spec.reading import without_mark

IDS = ("request_id", "client_request_id", "x_client_request_id")
INPUT, OUTPUT = ("tokens_in", "input_tokens"), ("tokens_out", "output_tokens")
CACHED_READ, CACHED_WRITE = ("tokens_cached", "cached_tokens"), ("tokens_cache_write", "cache_write_tokens")

ASK = "."
"""Between an episode and which of a step's requests it is."""
_PLACE = re.compile(r"[0-9]{1,9}")
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """One request in the provider's account."""

    episode: str
    step: int
    attempt: int
    cost: int | None
    """Pico-dollars; None: only the tokens are known."""
    usage: Usage


def read_usage(path: Path) -> Iterator[Billed]:
    """The requests of a usage file with an id of evalkit's; others are skipped. An incomplete last line is skipped too.

    Raises UsageError naming file and line for what cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as flaw:
        raise UsageError(f"--usage: {path} cannot be read: {flaw.strerror}.") from flaw
    without_mark(data, path)
    text = data.decode("utf-8-sig", "replace")
    rows = _json_lines(text, path) if text.lstrip().startswith("{") else _csv_lines(text, path)
    for number, row in rows:
        parts = str(_first(row, IDS, "")).split("/")
        if len(parts) == 3 and all(_PLACE.fullmatch(part) for part in parts[1:]):
            yield _billed(row, parts, f"{path}:{number}")


def _csv_lines(text: str, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        yield from enumerate(csv.DictReader(io.StringIO(text)), 2)
    except csv.Error as flaw:
        raise UsageError(f"{path}: this is not CSV: {flaw}.") from flaw


def _json_lines(text: str, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as flaw:
            if number == len(lines) and not text.endswith("\n"):
                return
            raise UsageError(f"{path}:{number}: this line is not JSON: {flaw}.") from flaw
        if not isinstance(row, dict):
            raise UsageError(f"{path}:{number}: a line must be an object with {IDS[0]!r}.")
        yield number, row


def _billed(row: Mapping[str, Any], parts: list[str], where: str) -> Billed:
    cost: int | None = None
    if row.get("cost_usd") not in (None, ""):
        cost = pico_at_least(_number(row, ("cost_usd",), where) * PICO_PER_USD)
    elif row.get("cost") not in (None, ""):
        cost = pico_at_least(_number(row, ("cost",), where))
    elif not any(name in row for name in (*INPUT, *OUTPUT)):
        raise UsageError(f"{where}: expected `cost_usd`, `cost` (in 1e-12 USD) or tokens ({', '.join(INPUT)}).")
    usage = Usage(
        input=int(_number(row, INPUT, where)),
        output=int(_number(row, OUTPUT, where)),
        cached_read=int(_number(row, CACHED_READ, where)),
        cached_write=int(_number(row, CACHED_WRITE, where)),
    )
    if usage.cached_read + usage.cached_write > usage.input:
        raise UsageError(
            f"{where}: more cached tokens than {INPUT[0]}: that must count all input tokens, cached ones included."
        )
    return Billed(episode=parts[0].partition(ASK)[0], step=int(parts[1]), attempt=int(parts[2]), cost=cost, usage=usage)


def _first(row: Mapping[str, Any], names: tuple[str, ...], default: object) -> object:
    return next((row[name] for name in names if row.get(name) not in (None, "")), default)


def _number(row: Mapping[str, Any], names: tuple[str, ...], where: str) -> Decimal:
    text = str(_first(row, names, 0))
    shown = repr(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + " ...")
    try:
        value = Decimal(text)
    except InvalidOperation as flaw:
        raise UsageError(f"{where}: {names[0]}: {shown} is not a number.") from flaw
    if not value.is_finite() or not 0 <= value < 2**63:
        raise UsageError(f"{where}: {names[0]}: {shown} is not an amount.")
    return value
