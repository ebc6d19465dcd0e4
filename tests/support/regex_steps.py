"""How many steps a regular expression takes in a text: Python's own engine does not tell, so its search is done again.

The same order of tries as `re` has, one step for each character or branch that is tried, without its shortcuts. Where
the engine would try again from another place, so does this. A step is counted where it is taken: what takes a square of
them shows in texts of some hundred characters.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

# Private, and the same from Python 3.11 on: nothing public gives a pattern's parts.
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

Text = str | bytes

_ONE = {_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN}
_REPEATS = {_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT}

Marks = dict[int, int]
"""Places by what they are of: where a turn of the loop at an instruction began, and where groups that are referred to
begin and end, `~(2 * group)` and one below."""


class _Program(NamedTuple):
    code: list[tuple[Any, ...]]
    begins: re.Pattern[Any] | None
    """What a match begins with, if that is one character of a set: a search skips to it."""


def steps(pattern: re.Pattern[Any], text: Text, at: int, end: int, *, how: str) -> tuple[int, tuple[int, int] | None]:
    """(steps taken, where the match lies) of `search`, `match` or `fullmatch` of the text from `at` to `end`."""
    program = _compiled(pattern)
    end = min(end, len(text))
    taken, start = 0, at
    while start <= end:
        if how == "search" and program.begins is not None:
            found = program.begins.search(text, start, end)
            if found is None:
                return taken + end - start + 1, None
            taken, start = taken + found.start() - start, found.start()
        more, stop, _ = _run(program.code, text, start, end, {}, whole=how == "fullmatch")
        taken += more
        if stop is not None:
            return taken, (start, stop)
        if how != "search":
            break
        start += 1
    return taken, None


@lru_cache(512)
def _compiled(pattern: re.Pattern[Any]) -> _Program:
    tree = _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    writer = _Writer(tree.state, pattern.flags, frozenset(_referred_to(tree)))
    return _Program(writer.whole(tree), _begins(tree, pattern.flags))


def _referred_to(part: Any) -> Iterator[int]:
    """The groups that a part of a pattern refers to."""
    if isinstance(part, tuple) and len(part) == 2 and part[0] is _constants.GROUPREF:
        yield part[1]
    elif isinstance(part, tuple | list | _parser.SubPattern):
        for one in part:
            yield from _referred_to(one)


def _native(state: Any, flags: int, node: Any) -> re.Pattern[Any]:
    """Python's own pattern of one node."""
    found: re.Pattern[Any] = _compiler.compile(_parser.SubPattern(state, [node]), flags)
    return found


def _begins(tree: Any, flags: int) -> re.Pattern[Any] | None:
    nodes = _first(tree)
    if nodes is None:
        return None
    parts = [_parser.SubPattern(tree.state, [node]) for node in nodes]
    return _native(tree.state, flags, (_constants.BRANCH, (None, parts)))


def _first(tree: Any) -> list[Any] | None:
    """The nodes of one character that a match may begin with; None where it may be something else."""
    for op, given in tree:
        if op in _ONE:
            return [(op, given)]
        if op in _REPEATS and given[0] > 0:
            return _first(given[2])
        if op is _constants.SUBPATTERN and not given[1] and not given[2]:
            return _first(given[3])
        if op is _constants.ATOMIC_GROUP:
            return _first(given)
        if op is _constants.BRANCH:
            branches = [_first(branch) for branch in given[1]]
            return None if None in branches else [node for branch in branches for node in branch or ()]
        if op not in (_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT):
            return None
    return None


class _Writer:
    """Writes the instructions of a parsed pattern, as the loop in `_run` reads them."""

    def __init__(self, state: Any, flags: int, kept: frozenset[int]) -> None:
        self._state, self._flags, self._kept = state, flags, kept
        self._code: list[tuple[Any, ...]] = []

    def whole(self, tree: Any) -> list[tuple[Any, ...]]:
        self._sequence(tree)
        self._code.append(("end",))
        return self._code

    def _apart(self, tree: Any) -> list[tuple[Any, ...]]:
        return _Writer(self._state, self._flags, self._kept).whole(tree)

    def _sequence(self, tree: Any) -> None:
        for op, given in tree:
            if op in _ONE or op is _constants.AT:
                self._code.append(("one", _native(self._state, self._flags, (op, given)).match))
            elif op in _REPEATS:
                self._repeat(op, *given)
            elif op is _constants.SUBPATTERN:
                if given[1] or given[2]:
                    raise NotImplementedError("flags within a pattern")
                self._group(*given[::3])
            elif op is _constants.GROUPREF:
                self._code.append(("again", ~(2 * given)))
            elif op is _constants.BRANCH:
                self._branch(given[1])
            elif op is _constants.ATOMIC_GROUP:
                self._code.append(("atomic", self._apart(given)))
            elif op in (_constants.ASSERT, _constants.ASSERT_NOT):
                behind = given[1].getwidth()[0] if given[0] < 0 else 0
                self._code.append(("look", self._apart(given[1]), behind, op is _constants.ASSERT))
            else:
                raise NotImplementedError(f"{op} in a pattern")

    def _group(self, number: int | None, tree: Any) -> None:
        if number not in self._kept:
            self._sequence(tree)
            return
        self._code.append(("mark", ~(2 * number)))
        self._sequence(tree)
        self._code.append(("mark", ~(2 * number) - 1))

    def _branch(self, branches: list[Any]) -> None:
        ends = []
        for branch in branches[:-1]:
            fork = self._hole()
            self._sequence(branch)
            ends.append(self._hole())
            self._code[fork] = ("fork", fork + 1, len(self._code))
        self._sequence(branches[-1])
        for end in ends:
            self._code[end] = ("go", len(self._code))

    def _repeat(self, op: Any, least: int, most: Any, tree: Any) -> None:
        if op is _constants.POSSESSIVE_REPEAT:
            inner = _Writer(self._state, self._flags, self._kept)
            inner._repeat(_constants.MAX_REPEAT, least, most, tree)
            inner._code.append(("end",))
            self._code.append(("atomic", inner._code))
            return
        lazy = op is _constants.MIN_REPEAT
        if len(tree) == 1 and tree[0][0] in _ONE:
            run = _native(self._state, self._flags, (_constants.POSSESSIVE_REPEAT, (0, most, tree)))
            self._code.append(("run", run.match, least, lazy))
            return
        for _ in range(least):
            self._sequence(tree)
        if most is not _constants.MAXREPEAT:
            forks = []
            for _ in range(most - least):
                forks.append(self._hole())
                self._sequence(tree)
            for fork in forks:
                self._fork(fork, lazy=lazy)
            return
        fork = self._hole()
        self._code.append(("mark", fork))
        self._sequence(tree)
        self._code.append(("moved", fork))  # a loop ends where it does not come further
        self._code.append(("go", fork))
        self._fork(fork, lazy=lazy)

    def _hole(self) -> int:
        self._code.append(())
        return len(self._code) - 1

    def _fork(self, at: int, *, lazy: bool) -> None:
        ways = (at + 1, len(self._code))
        self._code[at] = ("fork", *(ways[::-1] if lazy else ways))


def _run(
    code: list[tuple[Any, ...]], text: Text, start: int, end: int, marks: Marks, *, whole: bool
) -> tuple[int, int | None, Marks]:
    """(steps taken, where the match ends, its marks) of one try from `start`."""
    taken, pc, at = 0, 0, start
    tries: list[tuple[int, int, int, int, Marks]] = []
    """(instruction, place, the last place it may be tried from, +1 or -1 to come there, marks), the next one last."""
    while True:
        taken += 1
        step = code[pc]
        op, fits = step[0], True
        if op == "one":
            match = step[1](text, at, end)
            if fits := match is not None:
                pc, at = pc + 1, match.end()
        elif op == "run":
            last, least = step[1](text, at, end).end(), at + step[2]
            taken += 0 if step[3] else last - at
            if fits := last >= least:
                began, at = (least, last) if step[3] else (last, least)
                if began != at:
                    tries.append((pc + 1, began + (1 if step[3] else -1), at, 1 if step[3] else -1, marks))
                pc, at = pc + 1, began
        elif op == "fork":
            tries.append((step[2], at, at, 0, marks))
            pc = step[1]
        elif op == "go":
            pc = step[1]
        elif op == "mark":
            marks, pc = {**marks, step[1]: at}, pc + 1
        elif op == "moved":
            fits, pc = at != marks[step[1]], pc + 1
        elif op == "atomic":
            more, stop, held = _run(step[1], text, at, end, marks, whole=False)
            taken += more
            if fits := stop is not None:
                pc, at, marks = pc + 1, stop or 0, held
        elif op == "look":
            begin = at - step[2]
            more, stop, _ = _run(step[1], text, begin, end, marks, whole=False) if begin >= 0 else (1, None, marks)
            taken, fits, pc = taken + more, (stop is not None) == step[3], pc + 1
        elif op == "again":
            said = text[marks.get(step[1], 0) : marks.get(step[1] - 1, 0)]
            taken += len(said)
            if fits := step[1] - 1 in marks and text.startswith(said, at, end):  # type: ignore[arg-type]
                pc, at = pc + 1, at + len(said)
        elif not whole or at == end:
            return taken, at, marks
        else:
            fits = False
        if not fits:
            if not tries:
                return taken, None, marks
            pc, at, last, way, marks = tries.pop()
            if at != last:
                tries.append((pc, at + way, last, way, marks))
