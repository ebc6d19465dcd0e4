"""Rows to write, and run directories that hold them: whole, or as a crash leaves them."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evalkit.digests import step_digest
from evalkit.money import PicoUsd
from evalkit.store.commit import Load, commit
from evalkit.store.record import LedgerRecord, StepRecord
from evalkit.store.schema import steps_table
from evalkit.store.segment import FOLDERS, lay_out
from evalkit.store.writer import open_store


def a_step(episode: str = "e0", step: int = 0, **changes: Any) -> StepRecord:
    """A row whose digest fits, unless another is given."""
    reply = changes.pop("reply", b'{"calls":[],"finish":"stop","text":"answer %d of %b"}' % (step, episode.encode()))
    facts = changes.pop("facts", b'{"calls":[{"outcome":"ok","tool":"submit"}],"step":%d}' % step)
    asked, shown = b"q%015d" % step, b"o%015d" % step
    values: dict[str, Any] = {
        "episode": episode,
        "environment": "scheduling",
        "suite": "scheduling/basic",
        "instance": "seed-0",
        "agent": "knuth",
        "replicate": 0,
        "take": 0,
        "step": step,
        "period": step // 2,
        "turn": step % 2,
        "reply": reply,
        "raw": None,
        "facts": facts,
        "observation_digest": shown,
        "request_digest": asked,
        "step_digest": step_digest(asked, reply, facts, shown),
        "tokens_in": 100 + step,
        "tokens_out": 10,
        "tokens_cached_read": 3,
        "tokens_cached_write": 2,
        "tokens_reasoning": 1,
        "cost": PicoUsd(1000 + step),
        "latency_s": 0.25,
        "queue_s": 0.125,
        "attempts": "rate_limit,ok",
        "started_at": 1.7e9 + step,
        "served_model": "knuth-1",
        "fingerprint": "fp",
        "response_id": f"r{step}",
        "finish": "stop",
        "ending": "",
        "worker": "host:1",
    }
    return StepRecord(**{**values, **changes})


def a_charge(amount: int = 5, **changes: Any) -> LedgerRecord:
    """A money row."""
    values: dict[str, Any] = {"kind": "charge", "session": "host:1", "amount": PicoUsd(amount), "at": 1.7e9}
    return LedgerRecord(**{**values, **changes})


def rounds(episodes: Sequence[str], steps: int, first: int = 0) -> list[list[StepRecord]]:
    """One commit a step: each holds that step of every episode."""
    return [[a_step(episode, step) for episode in episodes] for step in range(first, first + steps)]


def write_run(run: Path, commits: Iterable[Iterable[StepRecord]], ledger: Iterable[LedgerRecord] = ()) -> Path:
    """A run that ended well: its rows are compacted."""

    async def go() -> None:
        with open_store(run, session="s") as store:
            for row in ledger:
                store.enter(row)
            for rows in commits:
                for step in rows:
                    store.append(step)
                await store.durable()

    asyncio.run(go())
    return run


def write_tails(run: Path, commits: Iterable[Sequence[StepRecord]], ledger: Sequence[LedgerRecord] = ()) -> Path:
    """A run that died before anything was compacted; `ledger` came with its first rows."""
    for folder in (*FOLDERS["steps"], *FOLDERS["ledger"]):
        (run / folder).mkdir(parents=True, exist_ok=True)
    first = lay_out(run, "steps").next
    for number, rows in enumerate(commits, first):
        entries = ledger if number == first else ()
        commit(run, Load(steps=steps_table(rows), entries=entries, lines=(), steps_number=number, ledger_number=0))
    return run
