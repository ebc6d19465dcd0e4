"""Errands: one request, no tools, one reply that is read. What the benchmarks ask of a model that is not being tested.

Kinds: `coverage` (a judge counts the complete paths that a text enumerates), `enumeration` (a judge counts what the
text lists as paths, complete and valid or not: the paper's judge), `conflict` (a validator says whether
wishes contradict each other), `requirement` (a writer turns wishes into a paragraph, vague as people are). An errand is
an ordinary episode, so it is resumed, budgeted and logged as any other. Source: specification of CostBench, sections
3.3 and 7.5.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import msgspec

from evalkit.dialogue import Message, Reply, Sampling, Tool
from evalkit.envs.environment import Environment, Facts, Kit, Observation, Opening, Score, Texts, fill
from evalkit.envs.parameters import read_line
from evalkit.errors import UsageError, nearest

# What the free text of an errand's reply comes to. Total: any text gives a value or None, in linear time.
#
# Source: specification of CostBench, section 3.3 step 2 (forms of a verdict, the first match wins) and section 7.5.
# Differs: what fits no form is not a verdict (None), where the reference would keep the query.

_BOLD_VERDICT = re.compile(r"\*\*\W{0,8}(no\s{1,8}conflict|conflict)\W{0,8}\*\*", re.IGNORECASE)
_LINE_VERDICT = re.compile(r"^[^\w\n]{0,8}(no[ \t]{1,8}conflict|conflict)[^\w\n]{0,8}$", re.IGNORECASE | re.MULTILINE)
_PLAIN_VERDICT = re.compile(r"\b(no\s{1,8}conflict|conflict)\b", re.IGNORECASE)
_DENIED = re.compile(r"\b(?:no|not|any|never|without|nor|neither|whether|if|\w+n['’]t)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?\n]")

_DIGITS = r"((?<![0-9.,])(?:[0-9]{1,3}(?:,[0-9]{3}){1,2}|[0-9]{1,9})(?![.,]?[0-9]))"
_COUNTS = tuple(
    re.compile(form, re.IGNORECASE | re.MULTILINE)
    for form in (
        rf"\*\*\s{{0,8}}{_DIGITS}\s{{0,8}}\*\*",
        rf"^[^\w\n]{{0,8}}{_DIGITS}[^\w\n]{{0,8}}$",
        rf"\b(?:answer|total|count|paths)\b\W{{0,8}}(?:is\b\W{{0,8}})?{_DIGITS}",
    )
)
_ANY_COUNT = re.compile(_DIGITS)

_THOUGHT = "</think>"


def written(text: str) -> str:
    """The reply without the thinking that some models write before it, and without white space around it."""
    return text.rpartition(_THOUGHT)[2].strip()


def verdict_in(text: str) -> bool | None:
    """Whether wishes conflict, as a validator said it: `**no conflict**`, then a line of its own, then in a sentence.

    None if nothing of that kind is said. Chosen: in a sentence, a `conflict` after a negation (`no real conflict`,
    `do not conflict`) or a condition is neither verdict.
    """
    for form in (_BOLD_VERDICT, _LINE_VERDICT):
        match = form.search(text)
        if match:
            return _is_conflict(match[1])
    for match in _PLAIN_VERDICT.finditer(text):
        before = _SENTENCE_END.split(text[max(0, match.start() - 200) : match.start()])[-1]
        if not _DENIED.search(before):
            return _is_conflict(match[1])
    return None


def _is_conflict(words: str) -> bool:
    return not words.lower().startswith("no")


def count_in(text: str) -> int | None:
    """The whole number that a judge said: `**15**`, else on a line of its own, else after `total` or the like.

    Of each form the last in the text counts, since judges number what they list. Else the only number there is.
    """
    for form in _COUNTS:
        matches = form.findall(text)
        if matches:
            return _whole(matches[-1])
    numbers = {_whole(digits) for digits in _ANY_COUNT.findall(text)}
    return numbers.pop() if len(numbers) == 1 else None


def _whole(digits: str) -> int:
    return int(digits.replace(",", ""))


NAME: Final = "errand"

Kind = Literal["coverage", "enumeration", "conflict", "requirement"]
COVERAGE, ENUMERATION, CONFLICT, REQUIREMENT = get_args(Kind)

JUDGED = (COVERAGE, ENUMERATION)
"""What a judge may count in a plan: complete paths only, or, in the paper's sense, whatever is listed as a path."""

FIELDS: Mapping[str, frozenset[str]] = {
    COVERAGE: frozenset({"text"}),
    ENUMERATION: frozenset({"text"}),
    CONFLICT: frozenset({"about", "wishes"}),
    REQUIREMENT: frozenset({"about", "wishes", "options"}),
}
"""By kind: the values that its texts may name."""

UNNAMED = frozenset({"query"})
"""Values that no text names: they only keep errands apart that would read alike."""

SINGLE = ("task", "wish_", "choice_")
"""Beginnings of values that an errand may have: what `wishes` and `options` list, as a catalogue's identifiers."""

TEXTS: Mapping[str, frozenset[str]] = {
    **{f"{kind}.system": frozenset() for kind in FIELDS},
    **{f"{kind}.user": fields for kind, fields in FIELDS.items()},
}

LATER_TEXTS = {f"{ENUMERATION}.system": "", f"{ENUMERATION}.user": ""}
"""Texts that are younger than the environment; no errand of a run that was frozen without them needs them."""


class ErrandTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One errand."""

    id: str = ""
    environment: Literal["errand"] = NAME
    kind: Kind
    values: dict[str, str]
    """What its texts name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrandState:
    """Where an errand stands: before its one reply, or after it."""

    kind: str
    opening: Opening
    ended: str = ""


def load(line: Mapping[str, Any]) -> ErrandTask:
    """A suite's line as an errand. Raises UsageError naming the field that is wrong."""
    errand = read_line(line, ErrandTask, NAME)
    wanted, values = FIELDS[errand.kind], errand.values
    for key in sorted(wanted | values.keys()):
        if key not in wanted | UNNAMED and not key.startswith(SINGLE):
            raise UsageError(f"values.{key}: {errand.kind} has no such value.{nearest(key, wanted)}")
        if key not in values:
            raise UsageError(f"values.{key}: is missing.")
    return errand


def describe(instance: ErrandTask) -> dict[str, Any]:
    """An errand as a suite's line."""
    return {"id": instance.id, "environment": NAME, "kind": instance.kind, "values": dict(instance.values)}


def start(instance: ErrandTask, kit: Kit) -> ErrandState:
    """An errand before its request. Raises UsageError if the pack lacks a text."""
    missing = sorted(TEXTS.keys() - kit.pack.texts.keys())
    if missing:
        raise UsageError(f"The prompt pack {kit.pack.name!r} lacks {NAME} texts: {', '.join(missing)}.")
    fields = {key: instance.values[key] for key in sorted(instance.values.keys() - UNNAMED)}
    system = kit.pack.texts[f"{instance.kind}.system"].strip()
    user = fill(kit.pack.texts[f"{instance.kind}.user"].strip("\n"), **fields)
    told = (Message(role="system", text=system),) if system else ()
    return ErrandState(kind=instance.kind, opening=Opening(messages=(*told, Message(role="user", text=user))))


def tools(state: ErrandState) -> tuple[Tool, ...]:
    """None."""
    del state
    return ()


def step(state: ErrandState, reply: Reply) -> tuple[ErrandState, Observation]:
    """The reply, read. Facts: `outcome` is `ok`, `unparseable` or `empty`.

    With it, of a coverage or an enumeration `value` (the number of paths), of a conflict `value` (whether there is
    one), of a requirement `characters`, and `truncated` where the provider cut the text off at the token limit.
    """
    facts: dict[str, Any] = {"calls": [], "outcome": "ok", "ended": "complete"}
    text = written(reply.text)
    if not text:
        facts["outcome"] = "empty"
    elif state.kind == REQUIREMENT:
        facts["characters"] = len(text)
        if reply.finish == "length":
            facts["truncated"] = True
    else:
        value: int | bool | None = count_in(text) if state.kind in JUDGED else verdict_in(text)
        if value is None:
            facts["outcome"] = "unparseable"
        else:
            facts["value"] = value
    done = ErrandState(kind=state.kind, opening=state.opening, ended="complete")
    return done, Observation(messages=(), facts=facts, acted=facts["outcome"] == "ok")


def score(instance: ErrandTask, trajectory: Sequence[Facts]) -> Score:
    """1 where the reply could be read, else 0; metrics `paths`, `conflict` (0 or 1) or `characters`."""
    for facts in trajectory:
        if facts.get("outcome") == "ok":
            if instance.kind == REQUIREMENT:
                metrics = {"characters": float(facts["characters"]), "truncated": float("truncated" in facts)}
            else:
                metrics = {"paths" if instance.kind in JUDGED else "conflict": float(facts["value"])}
            return Score(value=1.0, solved=True, metrics=metrics)
    return Score(value=0.0, solved=False)


def generate(parameters: Mapping[str, Any], count: int, seed: int) -> Iterator[Mapping[str, Any]]:
    """Raises UsageError: errands are not drawn, they are made from runs and suites."""
    del parameters, count, seed
    raise UsageError(
        "Errands are made from existing data: `evalkit tools judge RUN` from a run's texts, "
        "`evalkit tools queries ask SUITE` from a suite's queries."
    )


ERRAND: Environment[ErrandTask, ErrandState] = Environment(
    name=NAME,
    version=1,
    defaults=Sampling(temperature=0.0, max_tokens=1024, tool_choice="auto"),
    parameters={},
    texts=Texts(all=TEXTS, later=LATER_TEXTS),
    load=load,
    describe=describe,
    start=start,
    opening=lambda state: state.opening,
    tools=tools,
    step=step,
    period=lambda _: 0,
    ended=lambda state: state.ended,
    score=score,
    generate=generate,
    stratum=lambda instance: instance.kind,
    offers=lambda _: 0,
    talk=True,
    score_range=(0.0, 1.0),
    policies="evalkit.policy.errand.policies:POLICIES",
    stand_in="clerk",
)
