"""What models are asked about CostBench."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.costbench.domain.catalogue_files import parse_catalogue, shipped
from evalkit.envs.costbench.domain.ids import split_values
from evalkit.envs.costbench.domain.queries import conflicts
from evalkit.envs.errand import errand
from evalkit.envs.lines import canonical
from evalkit.errors import UsageError
from evalkit.report.costbench.planning_queries import is_blocked_line
from evalkit.tasks.costbench.queries import alternative_places, import_queries, raw_queries, without_message
from evalkit.tasks.record import Answers, AppliedSuite, ErrandAnswer, Line, Queries, Tasks, errand_digest, errand_line


def wishes_asked(line: Line, where: str) -> dict[str, tuple[Sequence[str], str]]:
    """The wishes behind a query: by dimension, the values there are and the right one."""
    (query, *_), catalogue = _queries(line, where), _catalogue(line, where)
    values = split_values(catalogue, line["task"], line.get("split", "test"))
    return {key: (values.get(key, ()), query["preferences"][key]) for key in catalogue.keys}


# CostBench's queries as errands, and what happens to a suite once they are answered.


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
    """A line's query and its alternatives. Raises UsageError if it has none."""
    queries = [line.get("query"), *(line.get("alternatives") or ())]
    if line.get("environment") != "costbench":
        raise UsageError(f"{where}: {line['id']}: this line is not of costbench, the only environment with queries.")
    if not all(isinstance(query, Mapping) and isinstance(query.get("preferences"), Mapping) for query in queries):
        raise UsageError(f"{where}: {line['id']}: query: preferences are missing.")
    return [query for query in queries if query is not None]


def _query_line(kind: str, name: str, line: Line, query: Mapping[str, Any], where: str) -> dict[str, Any]:
    catalogue, task = _catalogue(line, where), line.get("task")
    if task not in catalogue.tasks:
        raise UsageError(f"{where}: {line['id']}: task: the catalogue {catalogue.name!r} has no {task!r}.")
    wanted: Mapping[str, str] = query["preferences"]
    values = {"about": catalogue.tasks[task].about, "wishes": _listed(catalogue, wanted), "task": str(task)}
    values |= {f"wish_{key}": wanted[key] for key in catalogue.keys if key in wanted}
    if kind == errand.REQUIREMENT:
        all_values = split_values(catalogue, task, line.get("split", "test"))
        others = {key: ", ".join(_words(value) for value in all_values.get(key, ())) for key in catalogue.keys}
        values |= {f"choice_{key}": ", ".join(all_values.get(key, ())) for key in catalogue.keys}
        # The id keeps queries apart whose wishes are equal: each gets a text of its own.
        values |= {"options": _listed(catalogue, others), "query": str(query.get("id", name))}
    return errand_line(kind, name, values)


def _catalogue(line: Line, where: str) -> Catalogue:
    catalogue = line.get("catalogue", "travel")
    try:
        return shipped(catalogue) if isinstance(catalogue, str) else _own_catalogue(canonical(catalogue))
    except UsageError as flaw:
        raise UsageError(f"{where}: {line['id']}: {flaw}") from flaw


@lru_cache(maxsize=16)
def _own_catalogue(encoded: bytes) -> Catalogue:
    """The catalogue that a line holds; all lines of a task hold the same. Its tasks come in another order."""
    return parse_catalogue(json.loads(encoded), "catalogue")


def _listed(catalogue: Catalogue, values: Mapping[str, str]) -> str:
    """One line a dimension: `- kind: city`."""
    return "\n".join(
        f"- {dimension.about}: {_words(values[dimension.key])}"
        for dimension in catalogue.dimensions
        if dimension.key in values
    )


def _words(value: str) -> str:
    return value.replace("_", " ")


def apply_verdicts(suite: Sequence[Line], answers: Answers, where: str) -> AppliedSuite:
    """The suite without lines whose wishes conflict, and without alternatives that do, as a validator answered."""
    return _sound(suite, lambda line, query: _answer(errand.CONFLICT, line, query, answers, where))


def without_conflicts(suite: Sequence[Line], verdicts: Mapping[str, bool], where: str) -> AppliedSuite:
    """The same without a model: by the verdicts that a file has of its rows, else by the catalogue's conflicts."""

    def ruled(line: Line, query: Mapping[str, Any]) -> ErrandAnswer:
        own = verdicts.get(line["id"]) if query is line["query"] else None
        if own is None:
            _queries(line, where)
            own = conflicts(_catalogue(line, where), line["task"], query["preferences"])
        return ErrandAnswer(outcome="ok", value=own)

    return _sound(suite, ruled)


def _sound(suite: Sequence[Line], answer: Callable[[Line, Mapping[str, Any]], ErrandAnswer]) -> AppliedSuite:
    """The suite without what conflicts.

    A line without a verdict that could be read is kept out and named; an alternative without one goes as if it
    conflicted. Alternatives that the reference drew are drawn again as it draws them, from the queries that are left.
    """
    kept, dropped, unanswered, fewer = list[Line](), [], [], []
    for line in suite:
        own = answer(line, line["query"])
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
            new = [query for query in old if (said := answer(line, query)).outcome == "ok" and not said.value]
        lines.append(line if list(old) == new else {**_no_longer_the_references(line), "alternatives": new})
        if len(new) < len(old):
            fewer.append(line["id"])
    return AppliedSuite(
        lines=tuple(lines), dropped=tuple(dropped), unanswered=tuple(unanswered), without_alternative=tuple(fewer)
    )


def _answer(kind: str, line: Line, query: Mapping[str, Any], answers: Answers, where: str) -> ErrandAnswer:
    return answers.get(errand_digest(_query_line(kind, "", line, query, where)), ErrandAnswer(outcome="missing"))


def _is_drawn(line: Line) -> bool:
    """Whether a line's alternatives are the reference's draws from all queries of the same task."""
    return line.get("generator") == "reference" and isinstance(line.get("alternatives_seed"), int)


def _redrawn(lines: Sequence[Line]) -> Iterator[list[dict[str, Any]] | None]:
    """Each line's alternatives, drawn by the reference's rule from these lines; None if it is not for us to draw."""
    pools: dict[tuple[str, str], list[int]] = {}
    for index, line in enumerate(lines):
        pools.setdefault((line["task"], line.get("split", "")), []).append(index)
    for index, line in enumerate(lines):
        if not _is_drawn(line):
            yield None
            continue
        places = alternative_places(
            pools[line["task"], line.get("split", "")],
            index,
            line["query"]["id"],
            seed=line["alternatives_seed"],
            count=len(line.get("alternatives") or ()),
        )
        yield [without_message(lines[other]["query"]) for other in places]


def apply_texts(suite: Sequence[Line], answers: Answers, where: str) -> AppliedSuite:
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
    return AppliedSuite(lines=tuple(lines), unanswered=tuple(unanswered), truncated=tuple(truncated))


def _no_longer_the_references(line: Line) -> dict[str, Any]:
    """A line without its source: figures over changed queries must not bear the names of the paper's."""
    return {key: value for key, value in line.items() if key != "source"}


def _rewritten(query: Mapping[str, Any], answer: ErrandAnswer) -> dict[str, Any]:
    if answer.outcome != "ok":
        return dict(query)
    return {**without_message(query), "text": answer.text, "truncated": answer.truncated}


TASKS = Tasks(
    queries=Queries(
        read=import_queries,
        raw=raw_queries,
        errands=query_lines,
        apply={errand.CONFLICT: apply_verdicts, errand.REQUIREMENT: apply_texts},
        asked=wishes_asked,
        sound=without_conflicts,
    ),
    judged=lambda line: not is_blocked_line(line),
    judged_are="costbench episode without events",
)
