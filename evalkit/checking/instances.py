"""An environment's instances: generated alike for ever, loaded from lines, described as lines."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import orjson

from evalkit.checking.trying import trying
from evalkit.envs.environment import Environment
from evalkit.envs.lines import canonical, instance_digest
from evalkit.errors import UsageError

_ODD: tuple[Any, ...] = (None, True, -1, 10**12, 0.5, float("nan"), "", "odd", [], [[]], {}, {"a": 1})


def check_generator(env: Environment[Any, Any], count: int, seed: int) -> list[Mapping[str, Any]]:
    """The first lines that it generates. Raises AssertionError if they are not the same however they are made."""
    if not count:
        return []
    where = f"{env.name}: generate"

    def made(many: int, number: int) -> list[dict[str, Any]]:
        with trying(where, f"({{}}, {many}, {number})"):
            return [dict(line) for line in env.generate({}, many, number)]

    lines = made(count, seed)
    assert len(lines) == count, f"{where}: asked for {count} instances, made {len(lines)}."
    for line in lines:
        named = isinstance(line.get("id"), str)
        assert named, f"{where}: every line needs a string `id`, got {line.get('id')!r}."
    ids = [line["id"] for line in lines]
    assert len(set(ids)) == count, f"{where}: ids must be unique, got {ids}."
    assert _json(where, lines) == _json(where, made(count, seed)), f"{where}: the same seed gave different instances."
    more = made(count + 2, seed)[:count]
    flaw = "gave different instances when asked for more: key each draw by its place"
    assert _json(where, lines) == _json(where, more), f"{where}: {flaw}."
    with trying(where, "taking one of a million"):
        first = [dict(line) for line in islice(env.generate({}, 10**6, seed), 1)]
    assert _json(where, first) == _json(where, lines[:1]), f"{where}: {flaw}."
    return list(lines)


def _json(where: str, value: Any) -> bytes:
    with trying(where, "writing its lines as JSON"):
        return canonical(value)


def check_line(env: Environment[Any, Any], line: Mapping[str, Any]) -> Any:
    """The instance of a line. Raises AssertionError if loading or describing it is not as it must be."""
    where = f"{env.name}: line {line.get('id')!r}"
    named = str(line.get("environment")).rpartition(":")[2] == env.name.rpartition(":")[2]
    assert named, f"{where}: `environment` must be the environment's name, got {line.get('environment')!r}."
    before = _json(where, line)
    with trying(where, "load"):
        instance = env.load(line)
    with trying(where, "describe"):
        described = dict(env.describe(instance))
    text = _json(where, described)
    with trying(where, "loading what describe gave"):
        again = env.load(orjson.loads(text))
        twice = _json(where, dict(env.describe(again)))
    assert text == twice, f"{where}: it is described differently after it was described and loaded."
    assert _json(where, line) == before, f"{where}: `load` or `describe` changed the line in place."
    _check_properties(env, instance, described, where)
    _check_damaged(env, described, where)
    return instance


def _check_properties(env: Environment[Any, Any], instance: Any, line: Mapping[str, Any], where: str) -> None:
    with trying(where, "stratum or offers"):
        stratum, most = env.stratum(instance), env.offers(instance)
    assert isinstance(stratum, str), f"{where}: stratum: expected a string, got {stratum!r}."
    assert type(most) is int, f"{where}: offers: expected a whole number, got {most!r}."
    with trying(where, "what describes its suites"):
        numbers = [quantity.of(line) for quantity in env.presentation.described.quantities]
        numbers += [tally.of([line]) for tally in env.presentation.described.tallies]
        numbers += [size.of(instance) for size in env.presentation.described.sizes]
    for value in numbers:
        assert isinstance(value, int | float), f"{where}: the values that describe it must be numbers, got {value!r}."


def _check_damaged(env: Environment[Any, Any], line: Mapping[str, Any], where: str) -> None:
    """Each field in turn left out, and set to odd values: a line is loaded, or refused by UsageError."""
    for damaged, words in _damaged(line):
        with trying(where, f"load, with {words},"):
            loaded = _loaded(env, damaged)
        if loaded is not None:
            with trying(where, f"describe, of a line with {words} that load accepted,"):
                instance_digest(env.name, dict(env.describe(loaded)))


def _loaded(env: Environment[Any, Any], line: Mapping[str, Any]) -> Any:
    """The instance; None of a line that is refused as it must be."""
    try:
        return env.load(line)
    except UsageError:
        return None


def _damaged(line: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    yield {}, "nothing in it"
    for key in line:
        yield {name: value for name, value in line.items() if name != key}, f"{key!r} left out"
        yield from (({**line, key: odd}, f"{key!r} = {odd!r}") for odd in _ODD)
