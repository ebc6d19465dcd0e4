"""Whether a run's episodes are all different: an episode is one agent on one instance, wherever a spec names the two.

An episode's id does not contain the name of its suite or agent. So a spec with the same thing under two names asks for
one episode twice; played twice at the same time, its steps would be logged twice.
"""

from collections import Counter
from collections.abc import Iterator

from evalkit.engine.universe import cells
from evalkit.store.instances import laid
from evalkit.store.manifest import Manifest


def shared(manifest: Manifest) -> Iterator[str]:
    """What the manifest asks for twice, as messages: equal agents, and suites with common instances."""
    yield from _shared_agents(manifest)
    suites: dict[str, str] = {}
    played = Counter(suite.environment for suite in manifest.suites.values())
    for suite in manifest.suites.values():
        if played[suite.environment] == 1:  # an instance's digest is that of its environment too
            continue
        own = laid(suite.instances)
        repeated = [
            (suites[digest], name) for name, digest in zip(own.ids, own.digests, strict=True) if digest in suites
        ]
        if repeated:
            more = f" and {len(repeated) - 1} more" if repeated[1:] else ""
            yield _words(repeated[0][0], suite.name, f"{repeated[0][1]!r}{more}")
        suites |= dict.fromkeys(own.digests, suite.name)


def _words(first: str, second: str, instances: str) -> str:
    return (
        f"the suites {first!r} and {second!r} have instances in common ({instances}): an instance belongs to one "
        "suite of a run, so choose others with `instances`, or leave one of the suites out"
    )


def _shared_agents(manifest: Manifest) -> Iterator[str]:
    firsts: dict[tuple[str, str], str] = {}
    same: dict[tuple[str, str], list[str]] = {}
    for (agent, environment), cell in cells(manifest).items():
        first = firsts.setdefault((environment, cell.key), agent)
        if first != agent:
            same.setdefault((first, agent), []).append(environment)
    for (first, agent), shared_in in same.items():
        earlier, later = manifest.agents[first], manifest.agents[agent]
        if len(shared_in) == len(earlier.packs) == len(later.packs):
            yield (
                f"the agents {first!r} and {agent!r} are the same: leave one of them out; to play an agent more than "
                "once, set `replicates`"
            )
        else:  # prompt packs may say something of one environment only, and policies sit others out
            where = " and ".join(shared_in)
            yield (
                f"the agents {first!r} and {agent!r} are the same in {where}, where they read the same prompts: play "
                f"{where} in a sweep of its own, with one of them"
            )
