"""What compares golden cases, what can be said of one, and where exactly two values part.

A kind of golden file is a `GoldenKind`; `kinds.py` has them all.

Comparison is exact: floats by `==`, lists in order, mappings by keys. Whatever needs a tolerance is a statistical case
and states its bound. Where a golden row has the digest of a text, ours must have that digest.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Status = Literal["equal", "documented", "statistical", "out of scope", "differing"]

Row = Mapping[str, Any]
"""One golden case as it was read: a line of a `.jsonl` file, or a whole `.json` document."""

_SHOWN = 120

_DIGEST = "sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenVerdict:
    """What became of one case."""

    status: Status
    detail: str = ""
    """Differing: where and how. Documented: the difference's id. Statistical: figures and bound. Out of scope: why."""


EQUAL = GoldenVerdict(status="equal")


def differing(detail: str) -> GoldenVerdict:
    """An unexplained difference."""
    return GoldenVerdict(status="differing", detail=detail)


def documented(difference: str) -> GoldenVerdict:
    """A difference that is listed, by its id, in `documented.py`; the caller has checked that nothing else differs."""
    return GoldenVerdict(status="documented", detail=difference)


def out_of_scope(reason: str) -> GoldenVerdict:
    """Nothing that evalkit claims to reproduce."""
    return GoldenVerdict(status="out of scope", detail=reason)


Checker = Callable[[Row, Path | None], GoldenVerdict]
"""(case, folder of the reference's data set) -> verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenKind:
    """One kind of golden file."""

    name: str
    patterns: tuple[str, ...]
    """File names, with `*`."""
    check: Checker
    beside: str = ""
    """Files of the same folder, with `*`, whose rows a document of this kind is about: they join it as `beside`."""


def parting(golden: Any, ours: Any, where: str = "") -> str:
    """Where two values first part, in words; empty where they are equal.

    Lists and tuples are the same thing here, and so are ints and floats of one value; booleans are not numbers.
    """
    if isinstance(golden, Mapping) and golden.keys() == {_DIGEST} and isinstance(ours, str):
        golden, ours = golden[_DIGEST], digest_of(ours)[_DIGEST]
    if isinstance(golden, Mapping) and isinstance(ours, Mapping):
        for key in [*golden, *(key for key in ours if key not in golden)]:
            place = f"{where}.{key}" if where else str(key)
            if key not in ours:
                return f"{place}: golden {_short(golden[key])}, ours lacks it"
            if key not in golden:
                return f"{place}: golden lacks it, ours {_short(ours[key])}"
            if found := parting(golden[key], ours[key], place):
                return found
        return ""
    if _is_list(golden) and _is_list(ours):
        for i, (one, other) in enumerate(zip(golden, ours, strict=False)):
            if found := parting(one, other, f"{where}[{i}]"):
                return found
        return "" if len(golden) == len(ours) else f"{where}: golden has {len(golden)} entries, ours {len(ours)}"
    if _same(golden, ours):
        return ""
    return f"{where}: golden {_short(golden)}, ours {_short(ours)}"


def digest_of(text: str) -> dict[str, str]:
    """What may stand for a text in a golden row."""
    return {_DIGEST: hashlib.sha256(text.encode()).hexdigest()}


def judged(golden: Any, ours: Any, where: str = "") -> GoldenVerdict:
    """Equal or differing."""
    found = parting(golden, ours, where)
    return differing(found) if found else EQUAL


def _same(golden: Any, ours: Any) -> bool:
    if isinstance(golden, bool) != isinstance(ours, bool):
        return False
    return bool(golden == ours) or (golden != golden and ours != ours)  # noqa: PLR0124  # two NaN are the same answer


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
