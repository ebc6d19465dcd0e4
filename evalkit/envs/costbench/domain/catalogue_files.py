"""Catalogues read from files and plain values, checked, and written into a suite's line."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

import msgspec

from evalkit.envs.costbench.domain.catalogue import NAME_KEYS, SPLITS, Catalogue, Graph, Link, Task, TaskChain, title
from evalkit.envs.costbench.domain.ids import largest_number, split_values
from evalkit.envs.costbench.domain.world import (
    composite_spans,
    context_type,
    dimension_types,
    filled,
    output_type,
    tool_name,
)
from evalkit.errors import UsageError, nearest

# What is wrong with a catalogue that its fields alone do not tell: every flaw is named with its place.
#
# A catalogue of a user's own is refused here, before a world is made of it: names that collide, types nobody gives,
# wishes that are missing. Source: specification, sections 1.2 to 1.4 (names, types) and 3.1, 3.2 (values, ids).

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_INPUT_WORDS = ("previous", "dimensions", "constants", "context")
_LENGTHS = range(3, 13)
"""TaskChain lengths at which all names are made and compared."""
_MOST_DIGITS = 15
MOST_NAME = 64
"""Characters of a tool's or an argument's name that all providers take."""


def check(catalogue: Catalogue, where: str) -> None:
    """Raises UsageError, which begins with `where` and the place in the catalogue."""
    _check_heads(catalogue, where)
    _check_words(catalogue, where)
    for name, task in catalogue.tasks.items():
        _check_values(catalogue, task, f"{where}: tasks.{name}")
        _check_hints(catalogue, task, f"{where}: tasks.{name}")
    if catalogue.chain is not None:
        _check_chain(catalogue, catalogue.chain, where)
    for name, task in catalogue.tasks.items():
        if task.graph is not None:
            _check_graph(catalogue, name, task.graph, f"{where}: tasks.{name}.graph")
    _check_digits(catalogue, where)


def _known(name: str, valid: Iterable[str], where: str, what: str) -> None:
    valid = tuple(valid)
    if name not in valid:
        raise UsageError(f"{where}: there is no {what} {name!r}.{nearest(name, valid)}")


def _once(names: Iterable[str], where: str, what: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UsageError(f"{where}: {what} {twice[0]!r} is not unique. Choose different names.")


def _identifiers(names: Iterable[str], where: str) -> None:
    for name in names:
        if len(name) > MOST_NAME:
            raise UsageError(
                f"{where}: {name!r} has {len(name)} characters; providers accept at most {MOST_NAME} in a name."
            )
        if _IDENTIFIER.match(name) is None:
            raise UsageError(
                f"{where}: {name!r} is not a valid name: use a to z, A to Z, 0 to 9 and _, with a letter first."
            )


def _labels(labels: Iterable[str], where: str) -> None:
    labels = tuple(labels)
    _identifiers(labels, where)
    for label in labels:
        if label[-1].isdigit():
            raise UsageError(
                f"{where}: {label!r} must not end in a digit, since the digit would be ambiguous with an id's number."
            )


def _check_heads(catalogue: Catalogue, where: str) -> None:
    if not catalogue.tasks or not catalogue.dimensions:
        raise UsageError(f"{where}: a catalogue needs tasks and dimensions.")
    _identifiers(catalogue.tasks, f"{where}: tasks")
    _once(map(title, catalogue.tasks), f"{where}: tasks", "the title")
    _identifiers((dimension.key for dimension in catalogue.dimensions), f"{where}: dimensions")
    _once((dimension.key for dimension in catalogue.dimensions), f"{where}: dimensions", "the key")
    _identifiers(("T" + dimension.suffix for dimension in catalogue.dimensions), f"{where}: dimensions")
    _once((dimension.suffix for dimension in catalogue.dimensions), f"{where}: dimensions", "the suffix")
    _labels(catalogue.constants, f"{where}: constants")
    _once(catalogue.constants, f"{where}: constants", "the type")
    chained = [name for name, task in catalogue.tasks.items() if task.graph is None]
    if catalogue.context:
        _known(catalogue.context, chained, f"{where}: context", "chain task")
    if chained and catalogue.chain is None:
        raise UsageError(f"{where}: tasks.{chained[0]} has no graph, and there is no [chain] with its tools.")


def _check_words(catalogue: Catalogue, where: str) -> None:
    words = catalogue.words
    for key, texts in (("openings", words.openings), ("joins", words.joins), ("closings", words.closings)):
        if not texts:
            raise UsageError(f"{where}: words.{key} is empty: write at least one wording.")
    for text in words.joins:
        _holds(text, "{phrase}", f"{where}: words.joins")
    _holds(words.request, "{requirements}", f"{where}: words.request")
    for key in catalogue.meanings:
        _known(key, catalogue.constants, f"{where}: meanings", "constant")
    needed = (*catalogue.constants, *(["context"] if catalogue.context else []))
    for key, text in words.given.items():
        _known(key, needed, f"{where}: words.given", "id to be given by the name of")
        _holds(text, "{id}", f"{where}: words.given.{key}")
    for key in needed:
        if key not in words.given:
            raise UsageError(f"{where}: words.given.{key} is missing: write how the user's text gives this id.")
    if needed:
        _holds(words.request, "{ids}", f"{where}: words.request")


def _holds(text: str, piece: str, where: str) -> None:
    if piece not in text:
        raise UsageError(f"{where}: {text!r} does not contain {piece}.")


def _check_values(catalogue: Catalogue, task: Task, where: str) -> None:
    for split, values in (("test", task.test), ("train", task.train)):
        if split == "train" and not values:
            continue
        for key in values:
            _known(key, catalogue.keys, f"{where}.{split}", "dimension")
        for key in catalogue.keys:
            if not values.get(key):
                raise UsageError(f"{where}.{split}: no values for the dimension {key!r}.")
            _once(values[key], f"{where}.{split}.{key}", "the value")
            if any(value != value.strip() or not value for value in values[key]):
                raise UsageError(f"{where}.{split}.{key}: a value is empty, or has a space at the start or end.")
        if len({len(values[key]) for key in catalogue.keys}) > 1:
            counts = ", ".join(f"{key} {len(values[key])}" for key in catalogue.keys)
            raise UsageError(f"{where}.{split}: all dimensions need the same number of values, got {counts}.")
    for key in catalogue.keys:
        both = sorted(set(task.test[key]) & set(task.train.get(key, ())))
        if both:
            raise UsageError(f"{where}: {key} has the value {both[0]!r} in both the test and the training split.")


def _check_hints(catalogue: Catalogue, task: Task, where: str) -> None:
    valid = {key: (*task.test[key], *task.train.get(key, ())) for key in catalogue.keys}
    for key, phrases in task.phrases.items():
        _known(key, catalogue.keys, f"{where}.phrases", "dimension")
        for value, texts in phrases.items():
            _known(value, valid[key], f"{where}.phrases.{key}", "value")
            if not texts or not all(text.strip() for text in texts):
                raise UsageError(f"{where}.phrases.{key}.{value}: the phrase is empty; write one or leave it out.")
    for row, conflict in enumerate(task.conflicts):
        if not conflict:
            raise UsageError(f"{where}.conflicts: entry {row + 1} is empty and would forbid everything.")
        for key, values in conflict.items():
            _known(key, catalogue.keys, f"{where}.conflicts", "dimension")
            for value in values:
                _known(value, valid[key], f"{where}.conflicts: entry {row + 1}.{key}", "value")


def _links(chain: TaskChain) -> Mapping[str, Link]:
    return {"first": chain.first, "second": chain.second, "step": chain.step, "last": chain.last}


def _check_chain(catalogue: Catalogue, chain: TaskChain, where: str) -> None:
    for key in chain.names:
        _known(key, NAME_KEYS, f"{where}: chain.names", "kind of composite")
    for key in NAME_KEYS:
        if key not in chain.names:
            raise UsageError(f"{where}: chain.names.{key} is missing.")
    wanted = {f"chain.{key}.inputs": link.inputs for key, link in _links(chain).items()}
    wanted["chain.step_one_inputs"] = chain.step_one_inputs
    for key, words in wanted.items():
        for word in words:
            _known(word, _INPUT_WORDS, f"{where}: {key}", "input word")
        _once(words, f"{where}: {key}", "the input word")
        if ("previous" in words) == (key == "chain.first.inputs"):
            raise UsageError(
                f"{where}: {key}: every tool except the first needs `previous`; the first must not have it."
            )
    chained = [name for name, task in catalogue.tasks.items() if task.graph is None]
    for length in _LENGTHS:
        _check_names(catalogue, chain, chained, length, f"{where}: chain of length {length}")


def _check_names(catalogue: Catalogue, chain: TaskChain, tasks: list[str], length: int, where: str) -> None:
    tools: list[str] = []
    types: list[str] = list(catalogue.constants)
    positions = range(length)
    spans = [*((i, i) for i in positions), *composite_spans(length, whole=True)]
    for task in tasks:
        tools += [tool_name(chain, task, length, first, last) for first, last in spans]
        types += [*dimension_types(catalogue, task), *(output_type(chain, task, length, i) for i in positions)]
        labels = [filled(link.label, chain, task, step) for link in _links(chain).values() for step in (1, length - 3)]
        _labels(labels, where)
        goal = filled(chain.last.label, chain, task, length - 2)
        others = [filled(chain.first.label, chain, task, 0), filled(chain.second.label, chain, task, 0)]
        if length > 3:
            others += [filled(chain.step.label, chain, task, step) for step in range(1, length - 2)]
        if goal in (*others, *catalogue.constants):
            raise UsageError(
                f"{where}: ids of {goal!r} also occur before the end, so that an answer would be ambiguous."
            )
    _identifiers(tools, where)
    _identifiers(types, where)
    _once(tools, where, "the tool")
    _once(types, where, "the type")


def _check_graph(catalogue: Catalogue, task: str, graph: Graph, where: str) -> None:
    _identifiers((tool.name for tool in graph.tools), f"{where}.tools")
    _once((tool.name for tool in graph.tools), f"{where}.tools", "the tool")
    given = [
        *dimension_types(catalogue, task),
        *catalogue.constants,
        *([context_type(catalogue)] if catalogue.context else []),
    ]
    for name in graph.start:
        _known(name, given, f"{where}.start", "dimension type, constant or context type")
    _once(graph.start, f"{where}.start", "the type")
    outputs = {tool.output for tool in graph.tools}
    types = {*graph.start, *outputs}
    _identifiers(types, f"{where}.tools")
    atomic = [tool.name for tool in graph.tools if not tool.components]
    for tool in graph.tools:
        for name in tool.inputs:
            _known(name, types, f"{where}.tools: {tool.name}", "start type or output called")
        _once(tool.inputs, f"{where}.tools: {tool.name}", "the input")
        for name in tool.components:
            _known(name, atomic, f"{where}.tools: {tool.name}", "atomic tool")
        if len(tool.components) == 1:
            raise UsageError(
                f"{where}.tools: {tool.name} replaces only one tool; a composite must replace two or more."
            )
    if graph.goal in graph.start:
        raise UsageError(f"{where}.goal: {graph.goal!r} is available from the start.")
    _known(graph.goal, outputs, f"{where}.goal", "tool that gives")
    for name in graph.labels:
        _known(name, types, f"{where}.labels", "type")
    labels = [graph.labels.get(name, name) for name in sorted(types - set(dimension_types(catalogue, task)))]
    _labels(labels, f"{where}.labels")
    if labels.count(graph.labels.get(graph.goal, graph.goal)) > 1:
        raise UsageError(
            f"{where}.labels: the goal's label is also another type's, so that an answer would be ambiguous."
        )
    if graph.goal not in _reached(graph):
        raise UsageError(f"{where}: no sequence of calls leads from the start types to {graph.goal!r}.")


def _reached(graph: Graph) -> set[str]:
    reached = set(graph.start)
    while new := {tool.output for tool in graph.tools if reached.issuperset(tool.inputs)} - reached:
        reached |= new
    return reached


def _check_digits(catalogue: Catalogue, where: str) -> None:
    for split, digits in catalogue.digits.items():
        _known(split, SPLITS, f"{where}: digits", "split")
        if not 1 <= digits <= _MOST_DIGITS:
            raise UsageError(f"{where}: digits.{split} must be between 1 and {_MOST_DIGITS}.")
    for split in SPLITS:
        tasks = [task for task in catalogue.tasks if split_values(catalogue, task, split)]
        if tasks and split not in catalogue.digits:
            raise UsageError(f"{where}: digits.{split} is missing.")
        for task in tasks:
            largest = largest_number(catalogue, task, split)
            if len(str(largest)) > catalogue.digits[split]:
                raise UsageError(f"{where}: digits.{split}: ids of {task} go up to {largest}, which has more digits.")


_OPTIONAL = frozenset(
    {
        "chain",
        "components",
        "conflicts",
        "context",
        "does",
        "filters",
        "gives",
        "graph",
        "labels",
        "meanings",
        "phrases",
        "train",
    }
)
"""Fields that are left out where they have their default."""


def shipped_names() -> list[str]:
    """The catalogues that evalkit brings."""
    return sorted(path.name.removesuffix(".toml") for path in _folder().iterdir() if path.name.endswith(".toml"))


@lru_cache(maxsize=16)
def shipped(name: str) -> Catalogue:
    """A catalogue that evalkit brings. Raises UsageError with the nearest name."""
    if name not in shipped_names():
        own = " To use your own file in a suite: `evalkit suites generate costbench --catalogue FILE.toml`."
        raise UsageError(f"catalogue: there is no catalogue {name!r}.{nearest(name, shipped_names())}{own}")
    return read_catalogue((_folder() / f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml")


def _folder() -> Any:
    return files("evalkit.envs.costbench") / "catalogues"


def read_catalogue(text: str, where: str) -> Catalogue:
    """A catalogue from TOML text. Raises UsageError naming what is wrong in it."""
    try:
        return parse_catalogue(tomllib.loads(text), where)
    except (ValueError, RecursionError) as flaw:
        raise UsageError(f"{where}: not valid TOML: {flaw}") from flaw


def parse_catalogue(value: Mapping[str, Any], where: str) -> Catalogue:
    """A catalogue from plain values (a TOML file's, or those in a suite's line). Raises UsageError."""
    try:
        catalogue = msgspec.convert(value, Catalogue)
    except msgspec.ValidationError as flaw:
        raise UsageError(f"{where}: {flaw}.") from flaw
    check(catalogue, where)
    return catalogue


def only_task(catalogue: Catalogue, task: str) -> dict[str, Any]:
    """The catalogue as plain values with only what an instance of one task needs: as a suite's line holds it.

    All chain tasks keep their place and values, since costs are drawn in the order of the tasks; the context's task is
    whole. Phrases, conflicts and training values of the others go, and so do other tasks with a graph, on which no
    draw depends. Raises UsageError for a task that is not there.
    """
    if task not in catalogue.tasks:
        raise UsageError(f"catalogue {catalogue.name}: there is no task {task!r}.{nearest(task, catalogue.tasks)}")
    plain: dict[str, Any] = _filled_in(msgspec.to_builtins(catalogue))
    for name, values in list(plain["tasks"].items()):
        if name in (task, catalogue.context):
            continue
        if "graph" in values:
            del plain["tasks"][name]
        else:
            plain["tasks"][name] = {key: values[key] for key in ("about", "test")}
    return plain


def _filled_in(plain: Any) -> Any:
    """Plain values without the fields that have their default: nothing, or an empty one."""
    if not isinstance(plain, dict):
        return plain
    kept = {key: _filled_in(value) for key, value in plain.items()}
    return {key: value for key, value in kept.items() if key not in _OPTIONAL or value}
