"""Rows of a log, to write."""

from collections.abc import Sequence
from typing import Any

from evalkit.digests import step_digest
from evalkit.money import PicoUsd
from evalkit.store.files.record import LedgerRecord, StepRecord


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
