"""An agent table whose values are lists stands for every combination of them: `effort = ["low", "high"]`.

Each combination is an agent of its own, called after what it has of each list: `gpt@effort=low`. It gets the same as a
tag, `effort:low`, so that `report --by effort` compares the values.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from itertools import product
from typing import Any

from evalkit.errors import UsageError

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
