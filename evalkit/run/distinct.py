"""Whether a run's episodes are all different: an episode is one agent on one instance, wherever a spec names the two.

A suite's or an agent's name is no part of an episode's id. So a spec that says the same thing under two names asks for
one episode twice; played at two places at once, its steps would be logged twice.
"""

from collections.abc import Iterator

from evalkit.run.universe import cells
from evalkit.store.manifest import Manifest


def shared(manifest: Manifest) -> Iterator[str]:
    """What the manifest asks for twice, in words: agents that are the same, suites that have instances in common."""
    yield from _shared_agents(manifest)
    suites: dict[str, str] = {}
    for suite in manifest.suites.values():
        found = [(suites[one.digest], one.id) for one in suite.instances if one.digest in suites]
        if found:
            yield (
                f"the suites {found[0][0]!r} and {suite.name!r} have instances in common ({found[0][1]!r}"
                f"{f' and {len(found) - 1} more' if found[1:] else ''}): an instance belongs to one suite of a run, so "
                "choose others by `instances`, or leave one of the suites out"
            )
        suites |= {one.digest: suite.name for one in suite.instances}


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
