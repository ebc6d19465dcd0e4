"""What a run holds, owes and has spent, read from its directory alone; also while it is being written."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalkit.run.money import accounts, spent
from evalkit.run.resume import Holdings, read_holdings
from evalkit.run.universe import Choice, episodes
from evalkit.store.lock import Holder, holder
from evalkit.store.manifest import Manifest, read_manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStatus:
    """One agent on one suite."""

    agent: str
    suite: str
    planned: int
    ended: int
    started: int
    """Begun and not ended."""
    steps: int
    cost: int
    """Of its steps, in pico-dollars."""
    endings: dict[str, int]

    @property
    def owed(self) -> int:
        """Episodes that have not ended."""
        return self.planned - self.ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A run at one moment."""

    directory: Path
    name: str
    cells: tuple[CellStatus, ...]
    written_by: Holder | None
    """The process that is writing it now."""
    steps_cost: int
    charges: int
    """Charges for single attempts, in pico-dollars."""
    crash_charges: int
    """For what crashed sessions may have left in flight; unconfirmed."""
    spent: int
    open_sessions: int
    """Sessions that have neither closed nor been charged for their crash, the present one included."""

    def to_json(self) -> dict[str, Any]:
        """The status with a stable schema: `version` 1; money in USD, and as whole pico-dollars."""
        return {
            "version": 1,
            "run": str(self.directory),
            "name": self.name,
            "episodes": sum(cell.planned for cell in self.cells),
            "ended": sum(cell.ended for cell in self.cells),
            "started": sum(cell.started for cell in self.cells),
            "owed": sum(cell.owed for cell in self.cells),
            "steps": sum(cell.steps for cell in self.cells),
            "running": self.written_by is not None,
            "written_by": None if self.written_by is None else f"{self.written_by.host}:{self.written_by.pid}",
            "money": {
                "spent_usd": self.spent / 1e12,
                "spent_pico_usd": self.spent,
                "steps_pico_usd": self.steps_cost,
                "attempt_charges_pico_usd": self.charges,
                "crash_charges_pico_usd": self.crash_charges,
                "open_sessions": self.open_sessions,
            },
            "cells": [
                {
                    "agent": cell.agent,
                    "suite": cell.suite,
                    "planned": cell.planned,
                    "ended": cell.ended,
                    "started": cell.started,
                    "owed": cell.owed,
                    "steps": cell.steps,
                    "spent_usd": cell.cost / 1e12,
                    "endings": cell.endings,
                }
                for cell in self.cells
            ],
        }


def read_status(directory: Path) -> Status:
    """The status of a run. Raises RunError if it is none, CorruptLogError if its log is damaged."""
    manifest = read_manifest(directory)
    holdings = read_holdings(directory)
    books = accounts(holdings.ledger, holdings.cost_by_worker)
    return Status(
        directory=directory,
        name=manifest.name,
        cells=tuple(_cells(manifest, holdings)),
        written_by=holder(directory),
        steps_cost=holdings.cost,
        charges=sum(one.charged - one.released for one in books.values()),
        crash_charges=sum(one.crashed for one in books.values()),
        spent=spent(holdings.cost, books.values()),
        open_sessions=sum(not one.closed for one in books.values()),
    )


def _cells(manifest: Manifest, holdings: Holdings) -> list[CellStatus]:
    found = []
    for suite in manifest.suites.values():
        for agent in manifest.agents.values():
            if suite.environment not in agent.packs:
                continue
            only = Choice(agents=frozenset({agent.name}), suites=frozenset({suite.name}))
            planned, held = 0, []
            for episode in episodes(manifest, [agent], only):
                planned += 1
                if episode.id in holdings.episodes:
                    held.append(holdings.episodes[episode.id])
            endings = Counter(one.ending for one in held if one.ending)
            found.append(
                CellStatus(
                    agent=agent.name,
                    suite=suite.name,
                    planned=planned,
                    ended=endings.total(),
                    started=len(held) - endings.total(),
                    steps=sum(one.steps for one in held),
                    cost=sum(one.cost for one in held),
                    endings=dict(sorted(endings.items())),
                )
            )
    return found
