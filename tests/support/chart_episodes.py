"""Episodes of shipped instances, played in a loop and replayed as charts need them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalkit.envs.environment import Score
from evalkit.envs.table import ENVIRONMENTS
from evalkit.replies import encode_reply
from evalkit.results.moves import Move, moves
from tests.support.episode_loop import kit, play, policy

INSTANCES = Path(__file__).resolve().parents[2] / "instances"


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """An episode: what it was played on, what came of it, and its moves."""

    target: Any
    score: Score
    moves: tuple[Move, ...]


def line_of(suite: str, place: int = 0, **more: object) -> dict[str, Any]:
    """A line of a shipped suite, with fields replaced."""
    with (INSTANCES / f"{suite}.jsonl").open() as lines:
        found: dict[str, Any] = json.loads(lines.read().splitlines()[place])
    return {**found, **more}


def played(environment: str, line: Mapping[str, Any], agent: str, *, seed: int = 0, most_steps: int = 2_000) -> Played:
    """A policy's episode on a line."""
    env = ENVIRONMENTS[environment]
    target = env.load(line)
    who: Callable[..., Any] = policy(agent, environment, instance=target)
    done = play(env, line, who, seed=seed, most_steps=most_steps)
    rows = [
        {
            "step": i,
            "period": 0,
            "turn": 0,
            "reply": encode_reply(reply),
            "facts": b"{}",
            "step_digest": b"",
            "ending": "",
            "tokens_in": 0,
            "tokens_out": 0,
            "cost": 0,
            "latency_s": 0.0,
        }
        for i, reply in enumerate(done.replies)
    ]
    return Played(target=target, score=done.score, moves=tuple(moves(env, target, kit(environment), rows)))
