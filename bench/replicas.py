"""A run of any length: real episodes of all four environments, whose rows are written again as further replicates.

Each agent plays each instance once, in this process. The rows are then written for replicate 0, 1, 2, ... with the ids
that those episodes have, through the store's own commits and compaction, so that the directory is what a sweep with
scripted agents and so many replicates leaves. Rows of a replicate lie in the log by step, as if all its episodes were
in flight together.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from evalkit.dialogue import Request
from evalkit.engine.freezing.freeze import resolve
from evalkit.engine.universe import Choice, PlannedEpisode, episodes
from evalkit.envs.replay import advance, begin
from evalkit.frozen.instances import ManifestInstance
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import write_manifest
from evalkit.money import PicoUsd
from evalkit.policy.conversation import answer
from evalkit.policy.table import player
from evalkit.replies import encode_reply
from evalkit.seeds import derive
from evalkit.spec.identity import episode_id
from evalkit.spec.model import AgentSpec, SuiteUse, Sweep
from evalkit.store.files.journal import new_writer, open_journal
from evalkit.store.files.record import StepRecord
from evalkit.store.files.schema import steps_table
from evalkit.store.files.segment import KINDS, LOG, NO_MONEY, Segment
from evalkit.store.writing.compact import Tail, compact, discard

SWEEP = Sweep(
    name="replicas",
    source="replicas",
    agents=tuple(AgentSpec(name=name, policy=name) for name in ("replanner", "greedy", "noisy", "random")),
    suites=tuple(
        SuiteUse(name=name) for name in ("costbench/basic", "procurement/basic", "scheduling/basic", "pricing/basic")
    ),
)
"""Ten cells of four environments."""
PRICE = {"input": 1_000_000, "output": 4_000_000, "cached_read": 100_000, "cached_write": 1_000_000, "request": 0}
"""Pico-dollars a token."""
AT = 1.7e9
"""Seconds since 1970: when the first request was sent."""


def write_replicas(run: Path, steps: int, sweep: Sweep = SWEEP, *, instances: int = 0) -> int:
    """Write the directory of a sweep of policies with at least so many steps, and say how many it has.

    `instances`: how many of each suite, evenly chosen; 0: all.
    """
    manifest = _manifest(sweep, instances)
    played = [(episode, _rows(episode)) for episode in episodes(manifest, list(manifest.agents.values()), Choice())]
    rows = sum(len(one) for _, one in played)
    replicates = -(-steps // rows)
    manifest = msgspec.structs.replace(manifest, replicates=replicates)
    write_manifest(run, manifest)
    for folder in (LOG, *KINDS):
        (run / folder).mkdir()
    ordered = sorted((row.step, place, row) for place, (_, one) in enumerate(played) for row in one)
    table = steps_table([row for _, _, row in ordered])
    log = _Log(run)
    places = pa.array([place for _, place, _ in ordered])
    for number in range(replicates):
        ids = pa.array([episode_id(one.cell.key, one.target.digest, number) for one, _ in played])
        log.write(_as_replicate(table, ids.take(places), number))
    log.close()
    return rows * replicates


def _manifest(sweep: Sweep, instances: int) -> Manifest:
    manifest = resolve(sweep).manifest
    some = {
        name: msgspec.structs.replace(suite, instances=_some(suite.instances, instances))
        for name, suite in manifest.suites.items()
    }
    priced = {name: msgspec.structs.replace(agent, price=PRICE) for name, agent in manifest.agents.items()}
    return msgspec.structs.replace(manifest, suites=some, agents=priced)


def _some(known: Sequence[ManifestInstance], wanted: int) -> tuple[ManifestInstance, ...]:
    count = min(wanted or len(known), len(known))
    return tuple(known[i * len(known) // count] for i in range(count))


def _rows(episode: PlannedEpisode) -> list[StepRecord]:
    """The rows of an episode that its policy plays."""
    env, made = episode.cell.env, []
    position = begin(env, episode.instance, episode.cell.kit)
    name = episode.cell.agent.policy
    play = player(name, env.name, instance=episode.instance)
    while not position.ending:
        request = Request(
            messages=tuple(position.messages),
            tools=position.tools,
            sampling=episode.cell.sampling,
            seed=derive(episode.id, position.step),
        )
        reply = answer(name, play, request)
        data = encode_reply(reply)
        turn = advance(env, position, reply, data)
        read, written = 200 + 40 * turn.turn, len(data) // 4
        made.append(
            StepRecord(
                episode=episode.id,
                environment=env.name,
                suite=episode.suite.name,
                instance=episode.target.id,
                agent=episode.cell.agent.name,
                replicate=episode.replicate,
                take=0,
                step=turn.step,
                period=turn.period,
                turn=turn.turn,
                reply=data,
                raw=None,
                facts=turn.facts_bytes,
                observation_digest=turn.observation_digest,
                request_digest=turn.request_digest,
                step_digest=turn.step_digest,
                tokens_in=read,
                tokens_out=written,
                tokens_cached_read=0,
                tokens_cached_write=0,
                tokens_reasoning=0,
                cost=PicoUsd(read * PRICE["input"] + written * PRICE["output"]),
                latency_s=0.4 + derive(episode.id, turn.step) % 1000 / 1000,
                queue_s=0.001 * (turn.step % 7),
                attempts="ok" if turn.step % 50 else "rate_limit,ok",
                started_at=AT + 2 * turn.step,
                served_model=f"{name}-1",
                fingerprint="",
                response_id=f"r{turn.step}",
                finish=reply.finish,
                ending=turn.ending,
                worker="host:1",
            )
        )
    return made


def _as_replicate(table: pa.Table, ids: pa.Array, number: int) -> pa.Table:
    def put(held: pa.Table, name: str, values: pa.Array) -> pa.Table:
        place = held.schema.get_field_index(name)
        return held.set_column(place, held.schema.field(place), values)

    numbers = pa.repeat(pa.scalar(number, pa.int32()), len(ids))
    return put(put(table, "episode", ids), "replicate", numbers)


class _Log:
    """A journal whose every commit is compacted at once."""

    def __init__(self, run: Path) -> None:
        self._run, self._journal = run, open_journal(run, new_writer())
        self._written: list[Segment] = []

    def write(self, table: pa.Table) -> None:
        """Commit a replicate."""
        segment = self._journal.commit(table)
        compact(self._run, [Tail(segment=segment, table=table, entries=(), money=NO_MONEY, bytes=table.nbytes)])
        self._written.append(segment)

    def close(self) -> None:
        """End the journal."""
        self._journal.close()
        discard(self._written)
