"""Episodes that are played from outside and kept in a run, as any agent's are: logged, resumed, verified, reported.

The engine plays the agent's episodes; each waits for its replies. Who comes back to an episode goes on behind its last
reply.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from evalkit.api.environments import Instance, suite
from evalkit.api.games import game
from evalkit.api.running import Call, call_of
from evalkit.api.runs import Run, load
from evalkit.api.specs import changed
from evalkit.client.outside import OutsideAsker
from evalkit.dialogue import Reply
from evalkit.doors.sitting import Sitting
from evalkit.engine.episode import Stop
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.stand_in import admitted
from evalkit.engine.universe import Choice, cells
from evalkit.errors import RunError, UsageError
from evalkit.spec.sweep import sweep_from
from evalkit.store.manifests import described
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


@dataclass(slots=True, kw_only=True)
class Record:
    """A run whose episodes are played from outside."""

    outsider: Outsider
    instances: list[Instance]
    call: Call
    asker: OutsideAsker
    playing: "asyncio.Task[RunOutcome]"
    ended: frozenset[str]
    """Episodes that had ended before."""
    sittings: dict[tuple[str, int], Sitting] = field(default_factory=dict)

    async def sit(self, instance: str = "", replicate: int = 0) -> Sitting:
        """An episode, where it was left; an empty instance is the suite's first. Raises UsageError, RunError."""
        chosen = _chosen(self.instances, instance)
        if not 0 <= replicate < self.call.resolved.manifest.replicates:
            raise UsageError(f"replicate: this run has 0 to {self.call.resolved.manifest.replicates - 1}.")
        key = chosen.id, replicate
        if key not in self.sittings:
            self.sittings[key] = await self._sit(chosen, replicate)
        return self.sittings[key]

    async def _sit(self, instance: Instance, replicate: int) -> Sitting:
        name = self._id(instance, replicate)
        place = f"{self.outsider.agent}:{instance.suite}:{instance.id}:{replicate}"
        if name in self.ended:
            raise RunError(f"{place} has ended. Choose another --instance or --replicate.")
        waiting = asyncio.ensure_future(self.asker.opened(name))
        await asyncio.wait({waiting, self.playing}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            _check(self.playing)
            raise RunError(f"{place} cannot be played: `evalkit status` says what the run is missing.")
        played, run = game(instance, prompts=self.outsider.prompts), load(self.call.options.directory)
        for reply in run.episode(name).replies if _knows(run, name) else ():
            assert reply is not None
            played.reply(reply)
        if played.messages != waiting.result():
            raise RunError(f"{place} was begun with other prompts than {self.outsider.prompts!r}.")
        return Sitting(played, keep=lambda reply: self._keep(name, reply), tag=place)

    async def _keep(self, name: str, reply: Reply) -> None:
        giving = asyncio.ensure_future(self.asker.give(name, reply))
        await asyncio.wait({giving, self.playing}, return_when=asyncio.FIRST_COMPLETED)
        if not giving.done():
            giving.cancel()
            _check(self.playing)
        await giving

    def _id(self, instance: Instance, replicate: int) -> str:
        manifest = self.call.resolved.manifest
        cell = cells(manifest)[self.outsider.agent, instance.environment]
        return next(
            one.id
            for one in admitted(manifest, cell, manifest.suites[instance.suite])
            if (one.target.id, one.replicate) == (instance.id, replicate)
        )


@asynccontextmanager
async def recorded(outsider: Outsider) -> AsyncIterator[Record]:
    """The run, begun or gone on with. What is not ended remains to be played. Raises UsageError, RunError."""
    instances = suite(outsider.suite)
    directory = Path("runs") / outsider.run
    old = described(directory)
    known = read_index(directory).episodes if old else {}
    ended = frozenset(name for name, progress in known.items() if progress.ending)
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
