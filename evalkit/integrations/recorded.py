"""Episodes that are played from outside and kept in a run, as any agent's are: logged, resumed, verified, reported.

The engine plays the agent's episodes; each waits for its replies. Who comes back to an episode goes on behind its last
reply.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from evalkit.api.games import Instance, game, suite
from evalkit.api.runs import Run, load
from evalkit.client.outside import OutsideAsker
from evalkit.dialogue import Message, Reply
from evalkit.engine.options import Stop
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.stand_in import admitted
from evalkit.engine.universe import Choice, cells
from evalkit.errors import RunError, UsageError
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import manifest_if_run, read_manifest
from evalkit.integrations.play_session import PlaySession
from evalkit.playing.call import Call, call_of
from evalkit.playing.specs import changed
from evalkit.policy.table import find_policy
from evalkit.results.show import EpisodeKey, find_episode
from evalkit.spec.sweep import sweep_from
from evalkit.store.reading.index import read_index

MOST_EPISODES = 1000
"""Of one suite in one run: all of them wait at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outsider:
    """Who plays what, and where it is kept."""

    run: str
    """The run's name."""
    agent: str
    policy: str
    """`human` or `outside`."""
    suite: str
    prompts: str = "standard"
    replicates: int = 1
    directory: Path | None = None
    """The run's; None: of its name below `runs/`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideEpisode:
    """One episode that somebody can play."""

    instance: Instance
    replicate: int
    id: str
    place: str
    """`agent:suite:instance:replicate`, as `evalkit show` takes it."""


@dataclass(kw_only=True)
class Record:
    """A run whose episodes are played from outside."""

    outsider: Outsider
    instances: list[Instance]
    call: Call
    asker: OutsideAsker
    playing: "asyncio.Task[RunOutcome]"
    ended: frozenset[str]
    """Episodes that had ended before."""
    sessions: dict[str, PlaySession] = field(default_factory=dict)
    """By the episode's id."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while an episode is opened: who asks for it meanwhile gets the same session."""

    @property
    def directory(self) -> Path:
        """The run's."""
        return self.call.options.directory

    @property
    def replicates(self) -> int:
        """How often each instance can be played."""
        return self.call.resolved.manifest.replicates

    def episode(self, instance: str = "", replicate: int = 0) -> OutsideEpisode:
        """One episode by its place; an empty instance is the suite's first. Raises UsageError; RunError if nobody can
        play it."""
        chosen = _chosen(self.instances, instance)
        if not 0 <= replicate < self.replicates:
            raise UsageError(f"replicate: this run has 0 to {self.replicates - 1}.")
        if (chosen.id, replicate) not in self._ids:
            raise RunError(f"{chosen.id} cannot be played: `evalkit status` says what the run is missing.")
        return self._seat(chosen, replicate)

    async def sit(self, instance: str = "", replicate: int = 0) -> PlaySession:
        """An episode, where it was left; an empty instance is the suite's first. Raises UsageError, RunError."""
        seat = self.episode(instance, replicate)
        async with self.lock:
            if seat.id not in self.sessions:
                self.sessions[seat.id] = await self._sit(seat)
        return self.sessions[seat.id]

    async def quit(self, instance: str, replicate: int) -> str:
        """End an episode as `quit`, where it was left; its place. Raises UsageError, RunError."""
        seat = self.episode(instance, replicate)
        await self._waiting(seat)
        await self.asker.quit(seat.id, "Ended from outside.")
        return seat.place

    async def _waiting(self, seat: OutsideEpisode) -> tuple[Message, ...]:
        """What an episode's next request reads, once it waits for a reply. Raises RunError if it never will."""
        if seat.id in self.ended:
            raise RunError(f"{seat.place} has ended. Choose another --instance, or another --run.")
        waiting = asyncio.ensure_future(self.asker.opened(seat.id))
        await asyncio.wait({waiting, self.playing}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            _check(self.playing)
            raise RunError(f"{seat.place} cannot be played: `evalkit status` says what the run is missing.")
        return waiting.result()

    async def _sit(self, seat: OutsideEpisode) -> PlaySession:
        messages = await self._waiting(seat)
        played, run = game(seat.instance, prompts=self.outsider.prompts), load(self.directory)
        for reply in run.episode(seat.id).replies if _knows(run, seat.id) else ():
            assert reply is not None
            played.reply(reply)
        if played.messages != messages:
            raise RunError(f"{seat.place} was begun with other prompts than {self.outsider.prompts!r}.")
        return PlaySession(played, keep=lambda reply: self._keep(seat.id, reply), tag=seat.place)

    async def _keep(self, name: str, reply: Reply) -> None:
        giving = asyncio.ensure_future(self.asker.give(name, reply))
        await asyncio.wait({giving, self.playing}, return_when=asyncio.FIRST_COMPLETED)
        if not giving.done():
            giving.cancel()
            _check(self.playing)
        await giving

    def _seat(self, instance: Instance, replicate: int) -> OutsideEpisode:
        place = f"{self.outsider.agent}:{instance.suite}:{instance.id}:{replicate}"
        return OutsideEpisode(instance=instance, replicate=replicate, id=self._ids[instance.id, replicate], place=place)

    @cached_property
    def _ids(self) -> dict[tuple[str, int], str]:
        """By (instance, replicate)."""
        manifest = self.call.resolved.manifest
        suite = manifest.suites[self.instances[0].suite]
        cell = cells(manifest)[self.outsider.agent, suite.environment]
        return {(one.target.id, one.replicate): one.id for one in admitted(manifest, cell, suite)}


@asynccontextmanager
async def recorded(outsider: Outsider) -> AsyncIterator[Record]:
    """The run, begun or gone on with. What is not ended remains to be played. Raises UsageError, RunError."""
    instances = suite(outsider.suite)
    directory = outsider.directory or Path("runs") / outsider.run
    old = manifest_if_run(directory)
    known = read_index(directory).episodes if old else {}
    ended = frozenset(name for name, progress in known.items() if progress.ended)
    replicates = max(outsider.replicates, old.replicates if old else 1)
    count = len(instances) * replicates
    if count > MOST_EPISODES:
        raise UsageError(
            f"{outsider.suite} has {count:,} episodes; at most {MOST_EPISODES:,} can be played from outside. Write the "
            "instances that you want into a file of their own."
        )
    spec = {
        "replicates": replicates,
        "agents": [{"name": outsider.agent, "policy": outsider.policy, "prompts": outsider.prompts}],
        "suites": [{"name": outsider.suite}],
    }
    sweep = changed(sweep_from(spec, "spec", outsider.run), width=count)
    call, asker, stop = call_of(sweep, directory=directory), OutsideAsker(), Stop()
    choice = Choice(agents=frozenset({outsider.agent}), suites=frozenset({outsider.suite}))
    call = replace(call, options=replace(call.options, choice=choice, outside=asker))
    playing = asyncio.ensure_future(call.play(stop, lambda _: None))
    try:
        yield Record(outsider=outsider, instances=instances, call=call, asker=asker, playing=playing, ended=ended)
    finally:
        stop.set("interrupt", "Left.")
        asker.close()
        await asyncio.wait({playing})
    playing.result()


async def end(run: Path, wanted: str, prompts: str = "") -> str:
    """End an episode of an agent from outside as `quit`, where it was left; its place. `wanted`: its place, its id or
    the beginning of one; `prompts`: the pack that it was begun with, if that is a file. Raises RunError, UsageError."""
    manifest = read_manifest(run)
    key = find_episode(_from_outside(manifest), wanted)
    agent = manifest.agents[key.agent]
    outsider = Outsider(
        run=run.name,
        directory=run,
        agent=agent.name,
        policy=agent.policy,
        suite=key.suite,
        prompts=prompts or agent.pack,
        replicates=manifest.replicates,
    )
    async with recorded(outsider) as record:
        return await record.quit(key.instance, key.replicate)


def _from_outside(manifest: Manifest) -> list[EpisodeKey]:
    """The episodes that evalkit does not play itself. Raises RunError if there is none."""
    keys = [
        EpisodeKey(id=one.id, agent=agent, suite=played.name, instance=one.target.id, replicate=one.replicate)
        for (agent, environment), cell in cells(manifest).items()
        if cell.agent.policy and (policy := find_policy(cell.agent.policy, environment)) and policy.outside is not None
        for played in manifest.suites.values()
        if played.environment == environment
        for one in admitted(manifest, cell, played)
    ]
    if not keys:
        raise RunError("No agent of this run is played from outside, so there is no episode to end.")
    return keys


def _chosen(instances: list[Instance], wanted: str) -> Instance:
    if not wanted:
        return instances[0]
    found = [one for one in instances if one.id == wanted]
    return found[0] if found else suite(instances[0].suite, instances=[wanted])[0]


def _check(playing: "asyncio.Task[RunOutcome]") -> None:
    """Raises what the run has failed with."""
    outcome = playing.result()
    if outcome.reason not in ("complete", "interrupt"):
        raise RunError(" ".join(outcome.messages) or f"The run has ended: {outcome.reason}.")


def _knows(run: Run, name: str) -> bool:
    """Whether the log has a row of an episode."""
    try:
        run.episode(name)
    except RunError:
        return False
    return True
