"""What the tests of the net share: each group is made once a module, and compared id by id."""

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.net.goldens import GOLDENS, GROUPS, expected, group_of, ids, read, reasons
from tests.support.each_case import check_each

HELP = (
    "If this is meant, say why: python -m tests.net.differences {id} --reason '...'. If it is not, it is a bug: "
    "goldens are never written again."
)


class Made:
    """What the tree says today, group by group, each made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._groups: dict[str, dict[str, str]] = {}

    def group(self, name: str) -> dict[str, str]:
        """All of a group by id."""
        if name not in self._groups:
            folder = self._folder / name.replace("/", "-")
            folder.mkdir(parents=True)
            self._groups[name] = GROUPS[name](folder)
        return self._groups[name]

    def text(self, one: str) -> str | None:
        """What an id says today; None where nothing is made under it."""
        return self.group(group_of(one)).get(one)


def check_group(group: str, made: Made) -> None:
    """Fail where an id of a group differs, whether a golden or a listed difference knows it or it is made today."""
    listed = reasons()
    known = {*ids(GOLDENS, group), *(one for one in listed if group_of(one) == group)}
    check_each([(one, one) for one in sorted(known | made.group(group).keys())], lambda one: check(one, made, listed))


def check(one: str, made: Made, listed: Mapping[str, object]) -> None:
    """Fail where an id differs from its golden, or from what its listed difference says."""
    wanted, found = expected(one, listed), made.text(one)
    if found == wanted:
        return
    lines = difflib.unified_diff(
        (wanted or "").splitlines(), (found or "").splitlines(), "expected", "today", n=1, lineterm=""
    )
    shown = "\n".join(list(lines)[:60])
    raise AssertionError(f"{one} differs:\n{shown}\n{HELP.format(id=one)}")


def lost_keys(was: Any, now: Any, place: str = "$") -> list[str]:
    """Keys of a JSON value that another one lacks; additions are no loss. Lists are taken as one entry."""
    if isinstance(was, dict):
        if not isinstance(now, dict):
            return [place] if was else []
        lost = [f"{place}.{key}" for key in was.keys() - now.keys()]
        return lost + [
            one for key in was.keys() & now.keys() for one in lost_keys(was[key], now[key], f"{place}.{key}")
        ]
    if isinstance(was, list) and isinstance(now, list) and was and now:
        return lost_keys(_joined(was), _joined(now), f"{place}[]")
    return []


def _joined(values: list[Any]) -> Any:
    """Tables in a list as one table that has the keys of all."""
    tables = [value for value in values if isinstance(value, dict)]
    return {key: value for table in tables for key, value in table.items()} if tables else values[0]


def as_json(text: str | None) -> Any:
    """The JSON value that a golden holds or ends in; None where it holds none."""
    if text is None:
        return None
    for part in (text, text.partition("--- stdout\n")[2]):
        try:
            return json.loads(part)
        except ValueError:
            continue
    return None


def lost(one: str, now: str | None) -> list[str]:
    """Keys that an id's golden had and that a text lacks, where both are tables of JSON."""
    was, is_now = as_json(read(GOLDENS, one)), as_json(now)
    return lost_keys(was, is_now) if isinstance(was, dict) and isinstance(is_now, dict) else []
