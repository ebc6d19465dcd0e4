"""`evalkit tools check-agent`: does an agent's code repeat itself when it is resumed?"""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalkit.client.ask import Answer, Question
from evalkit.client.outside import PolicyAsker
from evalkit.engine.agents.playing import CodePlayer
from evalkit.engine.agents.roles import RoleAskers
from evalkit.engine.episode import ActiveEpisode, LaneContext, play
from evalkit.engine.freezing.freeze import resolve
from evalkit.engine.loop import run_loop
from evalkit.engine.options import Stop
from evalkit.engine.universe import Choice, PlannedEpisode, episodes
from evalkit.envs.replay import begin
from evalkit.errors import UsageError
from evalkit.policy.table import check_policy, find_policy, player
from evalkit.seats import AgentCode
from evalkit.spec.agent_code import find_agent
from evalkit.spec.sweep import sweep_from
from evalkit.store.files.record import ASK, STEP, StepRecord
from evalkit.text import visible

# Does an agent's code repeat itself? Its episode is played by policies, then cut off behind every ask and played on.
#
# Nothing is sent and nothing is written: policies answer as the simulated provider does, and rows stay in memory.
# Cutting a log behind a row is what a crash leaves of it.

SHUFFLES = 7
"""Replies come back in an order of their own, as from a network: after up to so many turns of the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What came of it."""

    left: str
    """How the whole episode was left."""
    steps: int
    asks: int
    kills: int
    """How often it was cut off and played on."""
    difference: str
    """The first; empty if there is none."""


@dataclass
class _MemoryLog:
    """A log in memory."""

    rows: list[StepRecord]
    details: list[str] = field(default_factory=list)

    def append(self, record: StepRecord) -> None:
        self.rows.append(record)

    async def durable(self) -> None:
        await asyncio.sleep(0)

    async def room(self) -> None:
        await asyncio.sleep(0)

    def event(self, kind: str, **facts: object) -> None:
        self.details.append(f"{facts.get('why', kind)}: {facts.get('detail', '')}")


class _ShuffledPolicy(PolicyAsker):
    """A policy whose replies take differently long in each life."""

    life = 0

    async def ask(self, question: Question) -> Answer:
        for _ in range((question.seed ^ self.life * 0x9E3779B1) % SHUFFLES):
            await asyncio.sleep(0)
        return await super().ask(question)


async def rehearse(code: AgentCode, episode: PlannedEpisode, policies: Mapping[str, str]) -> Rehearsal:
    """Play an episode whole, and again from behind each of its asks; `policies`: by role."""
    whole, left = await _life(code, episode, policies, (), 0)
    asks = [number for number, row in enumerate(whole.rows) if row.row_kind == ASK]
    steps = len(whole.rows) - len(asks)
    difference = f"the episode was left as {left}: {whole.details[-1]}" if left in _FLAWED else ""
    kills = 0
    for kills, ask in enumerate(asks if not difference else (), 1):
        rest, how = await _life(code, episode, policies, whole.rows[: ask + 1], kills)
        difference = _difference(whole, rest, how, left)
        if difference:
            row = whole.rows[ask]
            cut = _named(ASK, row.ask_key, row.ask_n)
            difference = f"Cut off behind {cut} of step {row.step}: {difference}"
            break
    return Rehearsal(left=left, steps=steps, asks=len(asks), kills=kills, difference=difference)


_FLAWED = ("agent_error", "diverged", "internal_error", "unavailable", "too_large", "stopped")


async def _life(
    code: AgentCode, episode: PlannedEpisode, policies: Mapping[str, str], rows: Sequence[StepRecord], life: int
) -> tuple[_MemoryLog, str]:
    log, cell = _MemoryLog(list(rows)), episode.cell

    def make(role: str, settings: Mapping[str, Any]) -> PolicyAsker:
        name = policies[role]
        policy = player(name, cell.env.name, instance=episode.instance)
        asker = _ShuffledPolicy(name, policy, cell.sampling.with_overrides(settings))
        asker.life = life
        return asker

    def activate(_: PlannedEpisode) -> ActiveEpisode:
        return ActiveEpisode(
            episode=episode,
            position=begin(cell.env, episode.instance, cell.kit),
            rows=[row for row in rows if row.row_kind == STEP],
            asks={(row.step, row.ask_key, row.ask_n): row for row in rows if row.row_kind == ASK},
        )

    params = {} if cell.agent.code is None else cell.agent.code.params
    role_askers = RoleAskers(
        code=code,
        lanes={role: role for role in policies},
        params=params,
        max_tokens=cell.sampling.max_tokens,
        make=make,
    )
    context = LaneContext(log=log, worker="check", stop=Stop())
    return log, await play(episode, activate, CodePlayer(role_askers), context)


def _difference(whole: _MemoryLog, rest: _MemoryLog, how: str, left: str) -> str:
    """The first difference between an episode and its continuation; empty if there is none."""
    if how != left:
        return f"it was left as {how} and not as {left}. {rest.details[-1] if rest.details else ''}".strip()
    wanted, found = _by_place(whole.rows), _by_place(rest.rows)
    for place in sorted({*wanted, *found}):
        if wanted.get(place) != found.get(place):
            what = "is missing" if place not in found else "is new" if place not in wanted else "differs"
            return f"at step {place[0]} {_named(*place[1:])} {what}."
    return ""


def _by_place(rows: Sequence[StepRecord]) -> dict[tuple[int, str, str, int], tuple[bytes, str]]:
    return {
        (row.step, row.row_kind, row.ask_key, row.ask_n if row.row_kind == ASK else 0): (row.step_digest, row.ending)
        for row in rows
    }


def _named(kind: str, key: str, n: int) -> str:
    return "the act" if kind == STEP else f"the ask {key or 'main'}.{n}"


SAME, DIFFERS = 0, 1


def check_agent(args: argparse.Namespace) -> int:
    """Play one episode, cut it off behind each ask, and compare; return 1 at the first difference, else 0."""
    code = find_agent(args.agent, {}, "tools check-agent")
    table = {"name": "checked", "agent": args.agent, "models": dict.fromkeys(code.models, "simulated/random")}
    suite = {"name": args.suite}
    spec = {"budget_usd": "1", "agents": [table], "suites": [suite]}
    manifest = resolve(sweep_from(spec, "tools check-agent", "check")).manifest
    episode = next(episodes(manifest, list(manifest.agents.values()), Choice()))
    environment = episode.cell.env.name
    if args.policy:
        check_policy(args.policy)
        if find_policy(args.policy, environment) is None:
            raise UsageError(f"--policy: {args.policy!r} does not play {environment!r}.")
    policy = args.policy or episode.cell.env.stand_in
    done = run_loop(rehearse(code, episode, dict.fromkeys(code.models, policy)))
    print(
        f"{args.agent} on {args.suite}:{episode.target.id}, played by {policy}: {done.steps} steps, {done.asks} asks, "
        f"{done.left}."
    )
    if done.difference:
        print(f"It does not repeat itself. {visible(done.difference)}")
        return DIFFERS
    print(f"Cut off behind each of {done.kills} asks, it went on to the same log, and asked nothing twice.")
    return SAME
