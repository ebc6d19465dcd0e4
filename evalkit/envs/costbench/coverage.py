"""How many complete paths a visible plan writes out: a parser of tool names in their order, in place of a judge.

A path is a sequence of offered tools: the first can be called at once, and the last gives the goal. These are read as a
path: names joined in a line (`A -> B -> C`, `A + B`, `A, then B`, with costs in parentheses or after them), lines that
begin or end with an arrow, and list lines with one name each. A list of tools is not a path: names next to each other
under a headline of tools or costs, or names that continue after the goal.
Source: section 5.1 of the paper; specification, section 7.5, whose judge is a model.
Chosen: everything about how a text is read. The time is linear in the text, of which `MOST_TEXT` characters are read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from evalkit.envs.costbench.domain.world import World

MOST_TEXT = 1 << 16
MOST_CALLS = 64
"""A longer sequence is not a path."""

_TOKEN = re.compile(
    r"(?P<word>[^\W\d]\w*)"
    r"|(?P<strong>[-=~]{1,3}>|>+|\+|[→⇒⟶⟹➔➜➝➞➡↓⇓▶])"
    r"|(?P<weak>[,|&])"
    r"|(?P<stop>[;?!])"
    r"|(?P<open>[(\[{])"
)
_JOINING = frozenset({"then", "followed", "finally", "next"})
_NEUTRAL = frozenset(
    {"and", "by", "first", "call", "calls", "use", "using", "step", "cost", "costs", "unit", "units", "text", "with"}
)
_MARKER = re.compile(r"[ \t>]{0,40}(?:[-*•]|(?:\*\*)?(?:[Ss]tep )?\(?(\d{1,3})[.):])[ \t*]")
_LISTING = re.compile(r"\b(?:tools?|costs?|prices?|components?|available)\b", re.IGNORECASE)
_ROUTE = re.compile(
    r"\b(?:paths?|options?|plans?|routes?|sequences?|combinations?|steps?|optimal|best)\b", re.IGNORECASE
)
_MOST_ASIDE = 300
_MOST_MARKS = 8


@dataclass(slots=True)
class _JoinedNames:
    """Names that stand joined."""

    places: list[int]
    strong: bool = False
    """Whether an arrow, a plus or a word like `then` joins some of them; otherwise they only stand side by side."""
    head: str = ""
    """What stands before the first, for telling a list of tools from a path."""


@dataclass(slots=True)
class _PlanLine:
    """What a line says."""

    chains: list[_JoinedNames] = field(default_factory=list)
    bare_head: bool = True
    """Whether nothing but marks and neutral words stands before the first name; and after the last one."""
    bare_tail: bool = True
    strong_head: bool = False
    """Whether an arrow or the like stands there."""
    strong_tail: bool = False
    item: bool = False
    """Whether it begins like a line of a list."""
    restarts: bool = False
    """Whether its number is 1."""

    @property
    def single(self) -> bool:
        """Whether it is a list's line with one name."""
        return self.item and len(self.chains) == 1 and len(self.chains[0].places) == 1


def count_paths(text: str, world: World) -> tuple[int, int]:
    """(distinct complete paths that a text writes out, how many of them are valid).

    Valid: every call's inputs are there when it comes, and no call could be left out.
    """
    paths = set(_paths(text[:MOST_TEXT].replace("\\_", "_"), world))
    return len(paths), sum(is_valid(world, path) for path in paths)


def is_valid(world: World, path: Sequence[int]) -> bool:
    """Whether a path of indices leads from the start to the goal, feasibly and without a call it could do without."""
    return _reaches(world, path) and not any(_reaches(world, [*path[:i], *path[i + 1 :]]) for i in range(len(path)))


def _reaches(world: World, path: Sequence[int]) -> bool:
    state = world.start
    for index in path:
        tool = world.tools[index]
        if tool.need & ~state:
            return False
        state |= tool.gives
    return bool(state & world.goal)


def _paths(text: str, world: World) -> Iterator[tuple[int, ...]]:
    for chain in _chains(text, {tool.name: i for i, tool in enumerate(world.tools)}):
        for path in _split(chain, world):
            first, last = world.tools[path[0]], world.tools[path[-1]]
            if len(path) <= MOST_CALLS and last.gives == world.goal and not first.need & ~world.start:
                yield tuple(path)


def _split(chain: _JoinedNames, world: World) -> Iterator[list[int]]:
    """A chain's paths: one ends where the goal is given. Names side by side that continue after it are just a list."""
    ends = [i for i, index in enumerate(chain.places) if world.tools[index].gives == world.goal]
    if not chain.strong:
        listing = _LISTING.search(chain.head) and not _ROUTE.search(chain.head)
        if ends == [len(chain.places) - 1] and not listing:
            yield chain.places
        return
    begin = 0
    for end in ends:
        yield chain.places[begin : end + 1]
        begin = end + 1


def _chains(text: str, names: Mapping[str, int]) -> Iterator[_JoinedNames]:
    """The joined names of a text, across lines where they continue."""
    current: _JoinedNames | None = None
    before, headline, pending = _PlanLine(), "", False
    for raw in text.replace("\\rightarrow", "->").replace("\\to", "->").splitlines():
        if not raw.strip():
            continue
        line = _read(raw, names)
        if not line.chains:
            pending = line.bare_head and line.strong_head
            if not pending:
                if current is not None:
                    yield current
                current, headline = None, raw[:_MOST_ASIDE]
            continue
        first, *others = line.chains
        if current is not None and (joint := _joint(before, line, pending)):
            current.places += first.places
            current.strong |= first.strong or joint == "strong"
        else:
            if current is not None:
                yield current
            current = first
            current.head = f"{headline} {current.head}"
        for chain in others:
            yield current
            current = chain
        before, pending = line, False
        if not line.item:
            headline = ""
    if current is not None:
        yield current


def _joint(before: _PlanLine, line: _PlanLine, pending: bool) -> str:
    """How a line continues from the one before: `strong`, `weak`, or not at all."""
    if not line.bare_head:
        return ""
    if pending or line.strong_head or (before.strong_tail and before.bare_tail):
        return "strong"
    return "weak" if before.single and line.single and not line.restarts else ""


def _read(raw: str, names: Mapping[str, int]) -> _PlanLine:
    """One line. What stands in brackets right after a name (its cost, its components) is passed over."""
    line = _PlanLine()
    marker = _MARKER.match(raw)
    if marker:
        line.item, line.restarts = True, marker[1] == "1"
    offset = end = marker.end() if marker else len(raw) - len(raw.lstrip(" \t>"))
    bare, strong = True, False
    while token := _TOKEN.search(raw, offset):
        offset = token.end()
        kind, word = token.lastgroup, token.group()
        if kind == "word" and word in names:
            _join(line, names[word], bare=bare, strong=strong, head=raw[: min(token.start(), _MOST_ASIDE)])
            bare, strong, end = True, False, offset
        elif kind == "open" and line.chains and _is_right_behind(raw, end, token.start()):
            offset = _behind(raw, token.start())
        elif kind == "strong" or word.lower() in _JOINING:
            strong = True
        elif kind == "stop" or (kind == "word" and word.lower() not in _NEUTRAL):
            bare = False
    if line.chains:
        line.bare_tail, line.strong_tail = bare, strong
    else:
        line.bare_head, line.strong_head = bare, strong
    return line


def _is_right_behind(raw: str, end: int, begin: int) -> bool:
    return begin - end <= _MOST_MARKS and not raw[end:begin].strip("`*_ \t\"'")


def _join(line: _PlanLine, index: int, *, bare: bool, strong: bool, head: str) -> None:
    if not line.chains:
        line.bare_head, line.strong_head = bare, strong
        line.chains.append(_JoinedNames([index], head=head))
    elif bare:
        line.chains[-1].places.append(index)
        line.chains[-1].strong |= strong
    else:
        line.chains.append(_JoinedNames([index], head=head))


def _behind(raw: str, begin: int) -> int:
    """The place after the bracket that opens at `begin`; right after its opening where it does not close soon."""
    depth = 0
    for i in range(begin, min(len(raw), begin + _MOST_ASIDE)):
        if raw[i] in "([{":
            depth += 1
        elif raw[i] in ")]}":
            depth -= 1
            if depth == 0:
                return i + 1
    return begin + 1
