"""`--set agents.gpt.effort=high`: values of a sweep that the command line replaces, before anything is checked."""

import math
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from evalkit.errors import UsageError, nearest

# An agent table whose values are lists stands for every combination of them: `effort = ["low", "high"]`.
#
# Each combination is an agent of its own, called after what it has of each list: `gpt@effort=low`. It gets the same
# as a tag, `effort:low`, so that `report --by effort` compares the values.

LISTS = frozenset({"name", "tags"})
"""Keys that do not cross: their values are lists anyway, or names."""
NAMING = ("policy", "model")
"""Keys after which an agent without a name is called."""
MOST = 1000
"""Agents that one table may stand for."""
_MOST_WORD = 40


def crossed(table: Mapping[str, Any], where: str, letters: Collection[str]) -> Iterator[dict[str, Any]]:
    """The tables that it stands for, the first key's values changing slowest; itself, if no value is a list.

    `letters`: those that a name may consist of. Raises UsageError.
    """
    axes = {key: value for key, value in table.items() if isinstance(value, list) and key not in LISTS}
    for key, values in axes.items():
        if not values:
            raise UsageError(f"{where}.{key}: the list of values is empty.")
    if math.prod(map(len, axes.values())) > MOST:
        raise UsageError(f"{where}: its lists have more than {MOST:,} combinations.")
    for places in product(*(range(len(values)) for values in axes.values())):
        chosen = {key: (values[place], place) for (key, values), place in zip(axes.items(), places, strict=True)}
        yield _agent(table, chosen, letters) if chosen else dict(table)


def _agent(table: Mapping[str, Any], chosen: Mapping[str, tuple[Any, int]], letters: Collection[str]) -> dict[str, Any]:
    agent = {**table, **{key: value for key, (value, _) in chosen.items()}}
    words = {key: _word(value, place, letters) for key, (value, place) in chosen.items()}
    named_by = [key for key in NAMING if agent.get(key)] if not agent.get("name") else []
    base = agent.get("name") or (agent[named_by[0]] if named_by else "")
    if isinstance(base, str) and base:
        suffix = "".join(f"@{key}={word}" for key, word in words.items() if key not in named_by[:1])
        agent["name"] = f"{base}{suffix}"
    tags = agent.get("tags", [])
    if isinstance(tags, list):
        known = {tag.partition(":")[0] for tag in tags if isinstance(tag, str)}
        more = [f"{key}:{word}" for key, word in words.items() if key not in known and not set(word) & set("/@:=")]
        agent["tags"] = [*tags, *more]
    return agent


def _word(value: Any, place: int, letters: Collection[str]) -> str:
    """What a value is called in a name: itself, or its number in the list where a name cannot hold it."""
    word = str(value).lower() if isinstance(value, bool) else str(value)
    plain = isinstance(value, str | int | float) and 0 < len(word) <= _MOST_WORD
    return word if plain and set(word) <= set(letters) - {"@", "="} else str(place + 1)


Plain = dict[str, Any]
EXAMPLE = "--set agents.gpt.effort=high"


def with_settings(written: Mapping[str, Any], settings: Sequence[str]) -> Plain:
    """What a sweep's file says, with some values replaced; `settings`: `KEY=VALUE` each.

    A key is that of the file (`replicates`), or names a table first: `agents.NAME.KEY`, `suites.NAME.KEY`,
    `limits.LANE.KEY`. A value is read as TOML, and as text where it is none. Raises UsageError.
    """
    data: Plain = dict(written)
    for setting in settings:
        key, equals, text = setting.partition("=")
        key, where = key.strip(), f"--set {setting}"
        if not equals or not key:
            raise UsageError(f"{where}: expected KEY=VALUE, as in `{EXAMPLE}`.")
        data = _replaced(data, key, _value(text.strip()), where)
    return data


def _value(text: str) -> Any:
    try:
        read = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return text
    value = read["value"]
    return value if len(read) == 1 and isinstance(value, str | int | float | list | dict) else text


def _replaced(data: Plain, key: str, value: Any, where: str) -> Plain:
    head, _, rest = key.partition(".")
    if head in ("agents", "suites") and rest:
        tables = [table for table in data.get(head, ()) if isinstance(table, Mapping)]
        name, inner = _split(rest, [_name(table) for table in tables], where, head.removesuffix("s"))
        if not inner:
            raise UsageError(f"{where}: {name!r} is a table; name a key of it, as in `{EXAMPLE}`.")
        changed = [_deep(table, inner, value, where) if _name(table) == name else table for table in tables]
        return {**data, head: changed}
    if head == "limits" and rest:
        own = data.get(head)
        agents = [agent for agent in data.get("agents", ()) if isinstance(agent, Mapping)]
        lanes = [f"{agent.get('provider')}/{agent.get('model')}" for agent in agents if agent.get("provider")]
        names = [*(own if isinstance(own, Mapping) else ()), *lanes, *(lane.partition("/")[0] for lane in lanes)]
        name, inner = _split(rest, names, where, "lane or provider")
        return {**data, head: _deep(own if isinstance(own, Mapping) else {}, (name, *inner), value, where)}
    return _deep(data, tuple(key.split(".")), value, where)


def _name(table: Mapping[str, Any]) -> str:
    """What an agent or a suite is called."""
    return str(table.get("name") or table.get("policy") or table.get("model") or "")


def _split(rest: str, names: Iterable[str], where: str, kind: str) -> tuple[str, tuple[str, ...]]:
    """(the name, which may contain dots; the keys after it). The longest name that fits is meant."""
    known = sorted({name for name in names if name}, key=len, reverse=True)
    for name in known:
        if rest == name or rest.startswith(f"{name}."):
            return name, tuple(rest[len(name) + 1 :].split(".")) if rest != name else ()
    name = rest.partition(".")[0]
    raise UsageError(f"{where}: the sweep has no {kind} {name!r}.{nearest(name, known)}")


def _deep(table: Mapping[str, Any], keys: Sequence[str], value: Any, where: str) -> Plain:
    """The table with a value replaced, at some depth."""
    key, rest = keys[0], keys[1:]
    if not key:
        raise UsageError(f"{where}: a part of the key is empty.")
    if not rest:
        return {**table, key: value}
    inner = table.get(key, {})
    if not isinstance(inner, Mapping):
        raise UsageError(f"{where}: {key!r} is no table, so it has no key {rest[0]!r}.")
    return {**table, key: _deep(inner, rest, value, where)}
