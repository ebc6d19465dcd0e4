"""Errands for a model that is not being tested: which ones a run or a suite gives, the sweep that plays them, and what
becomes of a suite once they are answered.

An errand is known by what it asks, not by its id: texts and wishes that are equal are asked about once, and an answer
is found again by the digest of the errand. Reading answers from a run is left to `tasks/answers.py`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.costbench.domain.catalogue_files import parse_catalogue, shipped
from evalkit.envs.costbench.domain.ids import split_values
from evalkit.envs.errand import errand
from evalkit.envs.lines import canonical, instance_digest
from evalkit.errors import UsageError
from evalkit.spec.catalogue import find_model, read_provider
from evalkit.tasks.costbench.queries import alternative_places, without_message

ASKED = (errand.CONFLICT, errand.REQUIREMENT)
"""What a suite's queries can be asked about."""

WRITERS_TEMPERATURE = 0.6
"""As in the reference; the others are asked at the environment's 0."""

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one errand."""

    outcome: str
    """`ok`, `unparseable`, `empty`, or how the episode ended where it brought no reply."""
    value: int | bool | None = None
    text: str = ""
    """A writer's paragraph."""
    truncated: bool = False


Answers = Mapping[str, Answer]
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
    return errand.describe(errand.ErrandTask(id=name, kind=kind, values=values))


def errand_digest(line: Line) -> str:
    """What an errand is known by."""
    return instance_digest(errand.NAME, line)


def distinct(lines: Iterable[Line]) -> list[Line]:
    """The lines without those that ask the same as an earlier one."""
    found: dict[str, Line] = {}
    for line in lines:
        found.setdefault(errand_digest(line), line)
    return list(found.values())


def coverage_line(episode: str, text: str, kind: str = errand.COVERAGE) -> dict[str, Any]:
    """The errand that counts the paths in an episode's text. `kind`: one of `errand.JUDGED`."""
    return errand_line(kind, episode, {"text": text})


def query_lines(kind: str, suite: Iterable[Line], where: str) -> Iterator[dict[str, Any]]:
    """The errands of a suite's queries and of their alternatives. Raises UsageError naming the line."""
    for line in suite:
        wanted = _queries(line, where)
        if kind == errand.CONFLICT and _is_drawn(line):
            wanted = wanted[:1]  # its alternatives are queries of other lines
        for number, query in enumerate(wanted):
            name = f"{line['id']}+{number}" if number else str(line["id"])
            yield _query_line(kind, name, line, query, where)


def _queries(line: Line, where: str) -> list[Mapping[str, Any]]:
    """A line's query and its alternatives. Raises UsageError where it has none."""
    found = [line.get("query"), *(line.get("alternatives") or ())]
    if line.get("environment") != "costbench":
        raise UsageError(f"{where}: {line['id']}: this is no line of costbench, which alone has queries.")
    if not all(isinstance(query, Mapping) and isinstance(query.get("preferences"), Mapping) for query in found):
        raise UsageError(f"{where}: {line['id']}: query: it has no preferences.")
    return [query for query in found if query is not None]


def _query_line(kind: str, name: str, line: Line, query: Mapping[str, Any], where: str) -> dict[str, Any]:
    catalogue, task = _catalogue(line, where), line.get("task")
    if task not in catalogue.tasks:
        raise UsageError(f"{where}: {line['id']}: task: the catalogue {catalogue.name!r} has no {task!r}.")
    wanted: Mapping[str, str] = query["preferences"]
    values = {"about": catalogue.tasks[task].about, "wishes": _listed(catalogue, wanted)}
    if kind == errand.REQUIREMENT:
        all_values = split_values(catalogue, task, line.get("split", "test"))
        others = {key: ", ".join(_words(one) for one in all_values.get(key, ())) for key in catalogue.keys}
        # The id keeps queries apart whose wishes are equal: each gets a text of its own.
        values |= {"options": _listed(catalogue, others), "query": str(query.get("id", name))}
    return errand_line(kind, name, values)


def _catalogue(line: Line, where: str) -> Catalogue:
    said = line.get("catalogue", "travel")
    try:
        return shipped(said) if isinstance(said, str) else _own_catalogue(canonical(said))
    except UsageError as flaw:
        raise UsageError(f"{where}: {line['id']}: {flaw}") from flaw


@lru_cache(maxsize=16)
def _own_catalogue(said: bytes) -> Catalogue:
    """The catalogue that a line holds; all lines of a task hold the same. Its tasks come in another order."""
    return parse_catalogue(json.loads(said), "catalogue")


def _listed(catalogue: Catalogue, values: Mapping[str, str]) -> str:
    """One line a dimension: `- kind: city`."""
    return "\n".join(f"- {one.about}: {_words(values[one.key])}" for one in catalogue.dimensions if one.key in values)


def _words(value: str) -> str:
    return value.replace("_", " ")


def suite_text(lines: Iterable[Line]) -> str:
    """Lines as the text of a suite's file."""
    import orjson

    return "".join(f"{orjson.dumps(dict(line)).decode()}\n" for line in lines)


def sweep_text(name: str, kind: str, model: str, suite: Path, budget: str | None, about: str) -> str:
    """The sweep that plays a suite of errands. `model`: provider and model with a slash between.

    Raises UsageError where the provider is not known, or lists no such model.
    """
    provider_name, _, model_name = model.partition("/")
    if not model_name:
        raise UsageError(f"--model: {model!r}: write PROVIDER/MODEL, as in `openai/gpt-5`.")
    found = find_model(read_provider(provider_name), model_name)
    rows = [f"# {about}", f"name = {json.dumps(name)}"]
    if budget is not None:
        rows.append(f"budget_usd = {json.dumps(budget)}")
    role = {errand.CONFLICT: "validator", errand.REQUIREMENT: "writer"}.get(kind, "judge")
    rows += ["", "[[agents]]", f'name = "{role}"', f"provider = {json.dumps(provider_name)}"]
    rows.append(f"model = {json.dumps(model_name)}")
    if kind == errand.REQUIREMENT and "temperature" not in found.quirks.refuses:
        rows.append(f"temperature = {WRITERS_TEMPERATURE}")
    return "\n".join([*rows, "", "[[suites]]", f"name = {json.dumps(suite.as_posix())}", ""])


def apply_verdicts(suite: Sequence[Line], answers: Answers, where: str) -> Applied:
    """The suite without lines whose wishes conflict, and without alternatives that do.

    A line without a verdict that could be read is kept out and named; an alternative without one goes as if it
    conflicted. Alternatives that the reference drew are drawn again as it draws them, from the queries that are left.
    """
    kept, dropped, unanswered, fewer = list[Line](), [], [], []
    for line in suite:
        own = _answer(errand.CONFLICT, line, line["query"], answers, where)
        if own.outcome != "ok":
            unanswered.append(line["id"])
        elif own.value:
            dropped.append(line["id"])
        else:
            kept.append(line)
    lines = list[Line]()
    for line, drawn in zip(kept, _redrawn(kept), strict=True):
        old = line.get("alternatives") or ()
        new = drawn
        if new is None:
            new = [query for query in old if _is_sound(_answer(errand.CONFLICT, line, query, answers, where))]
        lines.append(line if list(old) == new else {**_no_longer_the_references(line), "alternatives": new})
        if len(new) < len(old):
            fewer.append(line["id"])
    return Applied(
        lines=tuple(lines), dropped=tuple(dropped), unanswered=tuple(unanswered), without_alternative=tuple(fewer)
    )


def _answer(kind: str, line: Line, query: Mapping[str, Any], answers: Answers, where: str) -> Answer:
    return answers.get(errand_digest(_query_line(kind, "", line, query, where)), Answer(outcome="missing"))


def _is_sound(answer: Answer) -> bool:
    return answer.outcome == "ok" and not answer.value


def _is_drawn(line: Line) -> bool:
    """Whether a line's alternatives are the reference's draws from all queries of the same task."""
    return line.get("generator") == "reference" and isinstance(line.get("alternatives_seed"), int)


def _redrawn(lines: Sequence[Line]) -> Iterator[list[dict[str, Any]] | None]:
    """Each line's alternatives, drawn by the reference's rule from these lines; None where it is not for us to draw."""
    pools: dict[tuple[str, str], list[int]] = {}
    for place, line in enumerate(lines):
        pools.setdefault((line["task"], line.get("split", "")), []).append(place)
    for place, line in enumerate(lines):
        if not _is_drawn(line):
            yield None
            continue
        places = alternative_places(
            pools[line["task"], line.get("split", "")],
            place,
            line["query"]["id"],
            seed=line["alternatives_seed"],
            count=len(line.get("alternatives") or ()),
        )
        yield [without_message(lines[other]["query"]) for other in places]


def apply_texts(suite: Sequence[Line], answers: Answers, where: str) -> Applied:
    """The suite with every query's text replaced by the writer's; its old message goes with the old text.

    A line whose text could not be read is kept out and named; an alternative without a text keeps its old one.
    """
    lines, unanswered, truncated = list[Line](), [], []
    for line in suite:
        own = _answer(errand.REQUIREMENT, line, line["query"], answers, where)
        if own.outcome != "ok":
            unanswered.append(line["id"])
            continue
        changed = {**_no_longer_the_references(line), "query": _rewritten(line["query"], own)}
        if line.get("alternatives"):
            changed["alternatives"] = [
                _rewritten(query, _answer(errand.REQUIREMENT, line, query, answers, where))
                for query in line["alternatives"]
            ]
        lines.append(changed)
        if own.truncated:
            truncated.append(line["id"])
    return Applied(lines=tuple(lines), unanswered=tuple(unanswered), truncated=tuple(truncated))


def _no_longer_the_references(line: Line) -> dict[str, Any]:
    """A line without its source: figures over changed queries must not bear the names of the paper's."""
    return {key: value for key, value in line.items() if key != "source"}


def _rewritten(query: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    if answer.outcome != "ok":
        return dict(query)
    return {**without_message(query), "text": answer.text, "truncated": answer.truncated}
