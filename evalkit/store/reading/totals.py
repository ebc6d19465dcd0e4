"""What one writer has done so far, in sums: each object of its journal contains them, so that the newest one is
sufficient.

Sums over all writers are the run's: how many rows there are and what they cost, how many episodes have begun and how
they ended, what sessions leased and spent. A writer that plays an episode again subtracts what an earlier one counted
for its ending, so the counts of single writers may be below 0.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Protocol

import msgspec

from evalkit.errors import CorruptLogError
from evalkit.store.files.record import ASK, DOUBTFUL, REFUSED, UNMETERED, UNSCORED, LedgerRecord, StepRecord
from evalkit.store.reading.accounts import Account
from evalkit.store.reading.unmetered import Unmetered

PAUSE_S = 120.0
"""Seconds without a request after which a run counts as idle."""
SPELLS = 64
"""Spells of sending of a cell that are known by their ends."""


class Held(Protocol):
    """What an index says of an episode."""

    @property
    def steps(self) -> int:
        """Rows in effect."""

    @property
    def ending(self) -> str:
        """Empty while the episode continues."""

    @property
    def cost(self) -> int:
        """Of all its rows, in pico-dollars."""


class CellTotals(msgspec.Struct, kw_only=True):
    """One agent on one suite. Money is in pico-dollars, of all rows, superseded ones included; so are tokens."""

    agent: str
    suite: str
    rows: int = 0
    steps: int = 0
    """Rows in effect."""
    cost: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached_read: int = 0
    tokens_cached_write: int = 0
    tokens_reasoning: int = 0
    begun: int = 0
    """Episodes with rows."""
    endings: dict[str, int] = msgspec.field(default_factory=dict)
    """How many episodes ended so, by word; those that were refused and continue are among them."""
    ended_cost: int = 0
    """Of episodes that have ended."""
    ended_squares: float = 0.0
    """Sum of their squared costs."""
    ended_steps: int = 0
    """Of these, rows in effect."""
    going: dict[int, list[int]] = msgspec.field(default_factory=dict)
    """Of episodes that continue, by how far they have come (`far`): how many, their rows in effect, their cost."""
    unmetered: int = 0
    """Replies without usage; then this and what follows as `Unmetered` has them."""
    unmetered_cost: int = 0
    doubtful: int = 0
    doubtful_cost: int = 0
    spells: list[tuple[float, float]] = msgspec.field(default_factory=list)
    """When requests were sent without a pause of PAUSE_S: times of the first and the last, oldest first."""
    earlier: int = 0
    """Spells before those, if there are many."""
    earlier_s: float = 0.0
    """Their seconds."""

    @property
    def ended(self) -> int:
        """Episodes that have ended."""
        return sum(count for word, count in self.endings.items() if word not in UNSCORED)

    @property
    def refused(self) -> int:
        """Episodes whose last request the provider refused; they remain."""
        return self.endings.get(REFUSED, 0)

    @property
    def asks_per_step(self) -> float:
        """Of an agent that is code: its requests a step; 1 before the first. Episodes that go on count as half a step
        on their way to the next; rows that are not in effect any more count as requests."""
        asks, steps = self.rows - self.steps, self.steps + 0.5 * (self.begun - self.ended)
        return asks / steps if asks > 0 and steps > 0 else 1.0

    @property
    def place(self) -> tuple[str, str]:
        """Agent and suite."""
        return self.agent, self.suite

    def stay(self, far: int, count: int, steps: int, cost: int) -> None:
        """Add unfinished episodes, with their rows in effect and their cost in total."""
        sums = self.going.get(far)
        if sums is None:
            self.going[far] = [count, steps, cost]
            return
        sums[0] += count
        sums[1] += steps
        sums[2] += cost
        if not (sums[0] or sums[1] or sums[2]):
            del self.going[far]

    def send(self, sent: float) -> None:
        """A request was sent at that time, s since 1970; mostly in order."""
        if self.spells:
            first, last = self.spells[-1]
            if first <= sent < last + PAUSE_S:
                if sent > last:
                    self.spells[-1] = first, sent
                return
        self.spells = joined([*self.spells, (sent, sent)])
        self.forget()

    def forget(self) -> None:
        """Keep the ends of the latest spells only."""
        while len(self.spells) > SPELLS:
            first, last = self.spells.pop(0)
            self.earlier, self.earlier_s = self.earlier + 1, self.earlier_s + last - first

    def add(self, other: "CellTotals") -> None:
        """Count what another has of the same place."""
        for name in SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for word, count in other.endings.items():
            self.endings[word] = self.endings.get(word, 0) + count
        for far, sums in other.going.items():
            self.stay(far, *sums)
        self.spells = joined([*self.spells, *other.spells])


SUMMED = tuple(
    member.name
    for member in msgspec.structs.fields(CellTotals)
    if member.name not in ("agent", "suite", "endings", "going", "spells")
)


def far(steps: int) -> int:
    """How far an episode has come: its steps up to 15, from there on to an eighth of its octave, so that there are few
    such classes, whatever the number of episodes."""
    if steps < 16:
        return steps
    off = steps.bit_length() - 4
    return steps >> off << off


def joined(spells: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spells in order; those between which there was no pause are one."""
    merged: list[tuple[float, float]] = []
    for first, last in sorted(spells):
        if merged and first - merged[-1][1] < PAUSE_S:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


def rate(cells: Iterable[CellTotals]) -> float | None:
    """Requests per second while any of these cells was sending, above 0; None if no two were sent."""
    all_cells = list(cells)
    spells = joined(spell for cell in all_cells for spell in cell.spells)
    busy = sum(last - first for first, last in spells) + sum(cell.earlier_s for cell in all_cells)
    gaps = sum(cell.rows for cell in all_cells) - len(spells) - sum(cell.earlier for cell in all_cells)
    return gaps / busy if busy > 0 and gaps > 0 else None


@dataclass(slots=True, kw_only=True)
class Totals:
    """Sums of one writer, or of several."""

    cells: dict[tuple[str, str], CellTotals] = field(default_factory=dict)
    """By agent and suite."""
    workers: dict[str, int] = field(default_factory=dict)
    """Cost of the rows, by the session that wrote them."""
    accounts: dict[str, Account] = field(default_factory=dict)
    """By session, as far as money rows say; `books` knows what its steps cost as well."""

    def __add__(self, other: "Totals") -> "Totals":
        return together((self, other))

    def books(self) -> dict[str, Account]:
        """The sessions that have money rows, as `accounts.accounts` makes them of these."""
        for name, account in self.accounts.items():
            account.settled = self.workers.get(name, 0)
        return self.accounts

    def paid(self) -> dict[str, int]:
        """By agent, what its replies cost, in pico-dollars."""
        costs: dict[str, int] = {}
        for cell in self.cells.values():
            costs[cell.agent] = costs.get(cell.agent, 0) + cell.cost
        return costs

    def unmetered(self) -> Unmetered:
        """Replies without usage or with doubtful figures."""
        cells = self.cells.values()
        return Unmetered(
            replies=sum(cell.unmetered for cell in cells),
            cost=sum(cell.unmetered_cost for cell in cells),
            doubtful=sum(cell.doubtful for cell in cells),
            doubtful_cost=sum(cell.doubtful_cost for cell in cells),
        )


def together(parts: Iterable[Totals]) -> Totals:
    """The sums of several writers."""
    joint = Totals()
    for totals in parts:
        for place, cell in totals.cells.items():
            joint.cells.setdefault(place, CellTotals(agent=cell.agent, suite=cell.suite)).add(cell)
        for name, cost in totals.workers.items():
            joint.workers[name] = joint.workers.get(name, 0) + cost
        for name, account in totals.accounts.items():
            _join(joint.accounts.setdefault(name, Account(session=name)), account)
    return joint


def _join(account: Account, other: Account) -> None:
    """Add what another writer knows of the same session."""
    for member in fields(Account):
        value, added = getattr(account, member.name), getattr(other, member.name)
        if isinstance(value, bool):
            setattr(account, member.name, value or added)
        elif member.name != "session":
            setattr(account, member.name, value + added)


class _Wire(msgspec.Struct, kw_only=True):
    """Totals as a footer has them."""

    cells: list[CellTotals] = msgspec.field(default_factory=list)
    workers: dict[str, int] = msgspec.field(default_factory=dict)
    accounts: list[Account] = msgspec.field(default_factory=list)


_encode = msgspec.json.Encoder().encode


def read(text: str, where: str) -> Totals:
    """The totals that an object says. Raises CorruptLogError naming `where` they stand."""
    try:
        wire = msgspec.json.decode(text, type=_Wire)
    except msgspec.MsgspecError as flaw:
        raise CorruptLogError(f"{where} is damaged (its totals: {flaw}).") from flaw
    return Totals(
        cells={cell.place: cell for cell in wire.cells},
        workers=wire.workers,
        accounts={account.session: account for account in wire.accounts},
    )


def text_of(totals: Totals) -> str:
    """Totals as a footer has them."""
    wire = _Wire(cells=list(totals.cells.values()), workers=totals.workers, accounts=list(totals.accounts.values()))
    return _encode(wire).decode()


@dataclass(slots=True)
class _Played:
    """An episode in flight."""

    cell: CellTotals
    place: tuple[str, str]
    steps: int = 0
    ending: str = ""
    unscored: str = ""
    """In place of an ending, while it continues."""
    cost: int = 0
    stays: bool = False
    """Whether it is counted among those that continue."""


class Tally:
    """A writer's running totals; a row takes 1.5 us."""

    def __init__(self, before: Mapping[str, Held]) -> None:
        """before: by episode, how it stood when the writer began."""
        self._before = before
        self._totals = Totals()
        self._cost = self._totals.workers
        self._playing: dict[str, _Played] = {}
        self._touched: set[tuple[str, str]] = set()
        self._pieces: dict[tuple[str, str], bytes] = {}

    def step(self, row: StepRecord) -> None:
        """Count a row. Each episode's rows come in order, and nothing follows its ending. An ask is paid for, and moves
        its episode no further."""
        played = self._playing.get(row.episode) or self._begin(row)
        ask = row.row_kind == ASK
        cell, cost, last = played.cell, row.cost, played.steps if ask else row.step + 1
        cell.rows += 1
        cell.cost += cost
        cell.tokens_in += row.tokens_in
        cell.tokens_out += row.tokens_out
        if row.tokens_cached_read:
            cell.tokens_cached_read += row.tokens_cached_read
        if row.tokens_cached_write:
            cell.tokens_cached_write += row.tokens_cached_write
        if row.tokens_reasoning:
            cell.tokens_reasoning += row.tokens_reasoning
        cell.steps += last - played.steps
        cell.send(row.started_at)
        self._cost[row.worker] = self._cost.get(row.worker, 0) + cost
        self._touched.add(played.place)
        if ask and played.ending:  # of a take that has no step yet
            played.cost += cost
            cell.ended_cost += cost
            cell.ended_squares += float(played.cost) ** 2 - float(played.cost - cost) ** 2
            if row.attempts != "ok":
                _meter(cell, row)
            return
        if played.ending:
            _end(played, -1)
            played.ending = ""
        elif played.stays:
            cell.stay(far(played.steps), -1, -played.steps, -played.cost)
        if played.unscored and not ask:
            cell.endings[played.unscored] = cell.endings.get(played.unscored, 0) - 1
            played.unscored = ""
        played.steps = last
        played.cost += cost
        if row.attempts != "ok":
            _meter(cell, row)
        if row.ending and row.ending not in UNSCORED:
            played.ending = row.ending
            _end(played, 1)
            del self._playing[row.episode]
            return
        cell.stay(far(last), 1, last, played.cost)
        played.stays = True
        if row.ending:
            played.unscored = row.ending
            cell.endings[row.ending] = cell.endings.get(row.ending, 0) + 1

    def _begin(self, row: StepRecord) -> _Played:
        """The first row of an episode that this writer has."""
        place = row.agent, row.suite
        cell = self._totals.cells.get(place)
        if cell is None:
            cell = self._totals.cells[place] = CellTotals(agent=row.agent, suite=row.suite)
        standing = self._before.get(row.episode)
        if standing is None:
            cell.begun += 1
            played = _Played(cell, place)
        else:
            word = standing.ending
            ending, unscored = ("", word) if word in UNSCORED else (word, "")
            played = _Played(cell, place, standing.steps, ending, unscored, standing.cost, not ending)
        self._playing[row.episode] = played
        return played

    def money(self, entry: LedgerRecord) -> None:
        """Count a money row."""
        books = self._totals.accounts
        account = books.get(entry.session)
        if account is None:
            account = books[entry.session] = Account(session=entry.session)
        account.book(entry)

    def text(self) -> str:
        """All of it as a footer has it. Only cells with new rows are encoded again."""
        for place in self._touched:
            self._pieces[place] = _encode(self._totals.cells[place])
        self._touched.clear()
        cells = b",".join(self._pieces.values())
        workers, accounts = _encode(self._totals.workers), _encode(list(self._totals.accounts.values()))
        return (b'{"cells":[%b],"workers":%b,"accounts":%b}' % (cells, workers, accounts)).decode()


def _end(played: _Played, sign: int) -> None:
    """Count the ending of an episode, or take it back."""
    cell = played.cell
    cell.endings[played.ending] = cell.endings.get(played.ending, 0) + sign
    cell.ended_cost += sign * played.cost
    cell.ended_squares += sign * float(played.cost) ** 2
    cell.ended_steps += sign * played.steps


def _meter(cell: CellTotals, row: StepRecord) -> None:
    """Count a reply without usage."""
    word = row.attempts.rpartition(",")[2]
    if word == UNMETERED:
        cell.unmetered += 1
        cell.unmetered_cost += row.cost
    elif word == DOUBTFUL:
        cell.doubtful += 1
        cell.doubtful_cost += row.cost
