"""What must hold at every instant of a run, whatever happens to it."""

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from evalkit.report.verify import verify
from evalkit.seeds import Stream
from evalkit.store.accounts import accounts, spent
from evalkit.store.index import RunIndex, read_index
from evalkit.store.manifest import FILE
from evalkit.store.reader import scan

if TYPE_CHECKING:
    from tests.sim.world import World

PEEKS = 0.01
"""How often somebody reads the log while it is written: per operation of the disk."""
REPORTS = 0.05
"""In what share of the seeds a report is made at the end."""


class Broken(BaseException):
    """A promise that does not hold. No Exception: the engine must not take it for a bug of an episode."""


class Checks:
    """The promises to one world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._draws = Stream(world.scenario.seed, "checks")
        self._books = 0
        """The most that the run has said it spent."""

    def looked(self, what: str, path: Path) -> None:
        """Before each operation of the disk: now and then, somebody reads the log."""
        del what, path
        if self._draws.uniform() < PEEKS and (self._world.run / FILE).exists():
            self._all_there(read_index(self._world.run))
            self._each_row_once()

    def settled(self) -> None:
        """Before the first request of a life: what earlier lives may have spent is on the books."""
        index = read_index(self._world.run)
        self._never_less(index)
        books = _books(index)
        if self._world.network.bill > books:
            raise Broken(f"a life begins with {books} on the books and a bill of {self._world.network.bill}")

    def between_lives(self, *, closed: bool) -> None:
        """After each life, when the disk holds what it left."""
        run = self._world.run
        if not (run / FILE).exists():
            return
        index = read_index(run)
        self._all_there(index)
        self._each_row_once()
        self._never_less(index)
        bill, books, budget = self._world.network.bill, _books(index), self._world.resolved.sweep.budget
        if closed and bill > books:
            raise Broken(f"a life has closed its books at {books}; the bill is {bill}")
        if budget is not None:
            rest = sum(one.unspent for one in accounts(index.ledger, index.cost_by_worker).values() if not one.closed)
            if bill > books + rest:
                raise Broken(f"the bill is {bill}; steps and charges are {books}, open leases hold {rest}")
            if books + rest > budget:
                raise Broken(f"steps and charges are {books}, open leases hold {rest}; the budget is {budget}")

    def at_the_end(self, usual: Mapping[tuple[str, int], bytes]) -> None:
        """When the run is complete, or out of money. `usual`: its steps without any disturbance."""
        run = self._world.run
        found = verify(run)
        if found:
            raise Broken(f"verify: {found[0]}")
        for place, digest in self.steps().items():
            if usual.get(place) != digest:
                raise Broken(f"{place[0]}/{place[1]} is not the step of a run left in peace")
        self._commands(("status", "budget"))
        if self._draws.uniform() < REPORTS:
            self._commands(("report",))

    def steps(self) -> dict[tuple[str, int], bytes]:
        """The rows in effect: digests by episode and step."""
        table = scan(self._world.run, ("episode", "step", "step_digest"))
        columns = (table.column(name).to_pylist() for name in ("episode", "step", "step_digest"))
        return {(episode, step): digest for episode, step, digest in zip(*columns, strict=True)}

    def _commands(self, names: tuple[str, ...]) -> None:
        """Every command works where `verify` has found nothing."""
        from evalkit.cli.main import main

        for name in names:
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                code = main([name, str(self._world.run)])
            if code not in (0, 3):
                raise Broken(f"evalkit {name} ends with {code}: {out.getvalue()[-300:]}")

    def _all_there(self, index: RunIndex) -> None:
        for episode, steps in self._world.durable.items():
            held = index.episodes.get(episode)
            if held is None or held.steps <= max(steps):
                has = 0 if held is None else held.steps
                raise Broken(f"{episode} has {has} steps; {max(steps) + 1} were durable")

    def _each_row_once(self) -> None:
        """A glob of `steps/`, as other programs read a run, holds whole files and no row twice."""
        seen: set[tuple[str, int, int]] = set()
        for path in sorted((self._world.run / "steps").glob("*.parquet")):
            table = pq.read_table(path, columns=["episode", "take", "step"], use_threads=False)
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                if row in seen:
                    raise Broken(f"steps/ holds {row} twice")
                seen.add(row)

    def _never_less(self, index: RunIndex) -> None:
        books = _books(index)
        if books < self._books:
            raise Broken(f"the books fell from {self._books} to {books}")
        self._books = books


def _books(index: RunIndex) -> int:
    return spent(index.totals["cost"], accounts(index.ledger, index.cost_by_worker).values())
