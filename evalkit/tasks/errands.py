"""Errands for a model that is not being tested, and their answers.

An errand is identified by what it asks, not by its id: equal texts and wishes are asked about once, and an answer is
found by the digest of the errand.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evalkit.envs.errand import errand
from evalkit.envs.lines import instance_digest

ASKED = (errand.CONFLICT, errand.REQUIREMENT)
"""The kinds of questions about a suite's queries."""

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrandAnswer:
    """The answer to one errand."""

    outcome: str
    """`ok`, `unparseable`, `empty`, or how the episode ended if it has no reply."""
    value: int | bool | None = None
    text: str = ""
    """A writer's paragraph."""
    truncated: bool = False


Answers = Mapping[str, ErrandAnswer]
"""By the errand's digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A suite after its queries were asked about."""

    lines: tuple[Line, ...]
    dropped: tuple[str, ...] = ()
    """Ids of lines whose wishes conflict."""
    unanswered: tuple[str, ...] = ()
    """Ids of lines that are kept out because no verdict or no text could be read."""
    without_alternative: tuple[str, ...] = ()
    """Ids of lines kept that have fewer alternatives than before."""
    truncated: tuple[str, ...] = ()
    """Ids of lines kept whose new text is cut off."""


def errand_line(kind: str, name: str, values: Mapping[str, str]) -> dict[str, Any]:
    """One line of an errand suite."""
    return errand.describe(errand.load({"id": name, "kind": kind, "values": values}))


def errand_digest(line: Line) -> str:
    """The digest that identifies an errand."""
    return instance_digest(errand.NAME, line)


def distinct(lines: Iterable[Line]) -> list[Line]:
    """The lines without those that ask the same as an earlier one."""
    firsts: dict[str, Line] = {}
    for line in lines:
        firsts.setdefault(errand_digest(line), line)
    return list(firsts.values())


def coverage_line(episode: str, text: str, kind: str = errand.COVERAGE) -> dict[str, Any]:
    """The errand that counts the paths in an episode's text. `kind`: one of `errand.JUDGED`."""
    return errand_line(kind, episode, {"text": text})
