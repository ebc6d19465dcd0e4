"""Which instances a night begins with: those that were measured longest ago.

A night whose money or time does not cover all instances leaves the last ones of its order owed. The next night begins
with these, then takes the others in the order in which they were measured last, so that every instance has its turn.
Instances of equal age come in the sweep's order (strata interleaved, a random order within each), so what a night
covers stays a balanced sample, and a random one. All agents share the order, and all instances still get replicate r
before any gets r+1: agents stay paired.
"""

from collections.abc import Mapping, Sequence

import msgspec

from evalkit.report.nights.history import NightRecord, cell_key
from evalkit.store.instances import ManifestInstance
from evalkit.store.manifest import Manifest, ManifestOrder, ManifestSuite

NEVER = -1

Seen = Mapping[tuple[str, str, str, int], int]
"""(agent, suite, instance's digest, replicate) -> the place of the last night in which it ended."""


def rotated(manifest: Manifest, history: Sequence[NightRecord]) -> Manifest:
    """The manifest with each suite's instances listed in tonight's order. `history`: nights before, oldest first."""
    last_seen = _last_seen(manifest, history)
    suites = {
        name: msgspec.structs.replace(suite, instances=tuple(_ordered(manifest, suite, last_seen)))
        for name, suite in manifest.suites.items()
    }
    return msgspec.structs.replace(manifest, suites=suites, order=ManifestOrder())


def _ordered(manifest: Manifest, suite: ManifestSuite, last_seen: Seen) -> list[ManifestInstance]:
    agents = [agent.name for agent in manifest.agents.values() if suite.environment in agent.packs]

    def age(digest: str) -> list[int]:
        """When its episodes were last measured, the oldest first: lists compare by their oldest."""
        return sorted(
            last_seen.get((agent, suite.name, digest, replicate), NEVER)
            for agent in agents
            for replicate in range(manifest.replicates)
        )

    return sorted(manifest.admitted(suite), key=lambda instance: age(instance.digest))


def _last_seen(manifest: Manifest, history: Sequence[NightRecord]) -> Seen:
    keys = {
        (agent.name, suite.name): cell_key(agent, suite)
        for suite in manifest.suites.values()
        for agent in manifest.agents.values()
        if suite.environment in agent.packs
    }
    last_seen: dict[tuple[str, str, str, int], int] = {}
    for index, record in enumerate(history):
        for cell in record.cells:
            if keys.get(cell.cell) != cell.key:
                continue
            for digest, count in cell.ended.items():
                for replicate in range(count):
                    last_seen[*cell.cell, digest, replicate] = index
    return last_seen
