"""Whether a run's episodes are all different: an episode is one agent on one instance, wherever a spec names the two.

A suite's or an agent's name is no part of an episode's id. So a spec that says the same thing under two names asks for
one episode twice; played at two places at once, its steps would be logged twice.
"""

from collections.abc import Iterator
from itertools import combinations

from evalkit.engine.universe import cells
from evalkit.store.instances import Instances, laid
from evalkit.store.manifest import Manifest

LOOKED_AT = 64
"""Of the ids that two suites share, how many are looked at where the suites are large."""


def shared(manifest: Manifest) -> Iterator[str]:
    """What the manifest asks for twice, in words: agents that are the same, suites that have instances in common."""
    yield from _shared_agents(manifest)
    suites: dict[str, str] = {}
    for suite in manifest.suites.values():
        if suite.source:
            continue
        found = [(suites[one.digest], one.id) for one in suite.instances if one.digest in suites]
        if found:
            more = f" and {len(found) - 1} more" if found[1:] else ""
            yield _words(found[0][0], suite.name, f"{found[0][1]!r}{more}")
        suites |= {one.digest: suite.name for one in suite.instances}
    yield from _shared_large(manifest)


def _shared_large(manifest: Manifest) -> Iterator[str]:
    """The same of suites that are too large to be looked into: some of the ids that they share are. What is not found
    so is found when it is reached (`universe.py`)."""
    for one, other in combinations(manifest.suites.values(), 2):
        if (one.source or other.source) and one.environment == other.environment:
            found = next(_in_common(laid(one.instances), laid(other.instances)), None)
            if found is not None:
                yield _words(one.name, other.name, f"{found!r} among others")


def _in_common(one: Instances, other: Instances) -> Iterator[str]:
    import numpy as np

    _, here, there = np.intersect1d(one.marks(), other.marks(), return_indices=True)
    for place in np.linspace(0, len(here) - 1, min(len(here), LOOKED_AT), dtype=int).tolist():
        mine, theirs = one.at(int(here[place])), other.at(int(there[place]))
        if mine.digest == theirs.digest:
            yield mine.id


def _words(one: str, other: str, instances: str) -> str:
    return (
        f"the suites {one!r} and {other!r} have instances in common ({instances}): an instance belongs to one suite of "
        "a run, so choose others by `instances`, or leave one of the suites out"
    )


def _shared_agents(manifest: Manifest) -> Iterator[str]:
    firsts: dict[tuple[str, str], str] = {}
    same: dict[tuple[str, str], list[str]] = {}
    for (agent, environment), cell in cells(manifest).items():
        first = firsts.setdefault((environment, cell.key), agent)
        if first != agent:
            same.setdefault((first, agent), []).append(environment)
    for (first, agent), shared_in in same.items():
        one, other = manifest.agents[first], manifest.agents[agent]
        if len(shared_in) == len(one.packs) == len(other.packs):
            yield (
                f"the agents {first!r} and {agent!r} are the same: leave one of them out; to play an agent more than "
                "once, set `replicates`"
            )
        else:  # prompt packs may say something of one environment only, and policies sit others out
            where = " and ".join(shared_in)
            yield (
                f"the agents {first!r} and {agent!r} are the same in {where}, where they read the same texts: play "
                f"{where} in a sweep of its own, with one of them"
            )
