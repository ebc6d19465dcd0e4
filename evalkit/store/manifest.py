"""`run.json`: what a run is made of, frozen when it began and extended only by addition.

It holds everything that replay needs beside the log itself (instances, prompt packs, sampling), so that a run can be
verified and reported when the suites and packs it was started from have changed or gone.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from evalkit.env.environment import Kit, Pack
from evalkit.env.table import ENVIRONMENTS
from evalkit.errors import CorruptLogError, RunError
from evalkit.seeds import Permutation
from evalkit.store.disk import make_directories, write_durably

FILE = "run.json"
FORMAT = 1


class ManifestInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a suite."""

    id: str
    digest: str
    stratum: str
    line: Mapping[str, Any]
    """The suite's line: what the environment's `load` reads."""


class ManifestSuite(msgspec.Struct, frozen=True, kw_only=True):
    """One suite as it is played: a base suite, with the parameters that the sweep varied set to one value each."""

    name: str
    """Base name, with `?k=2` behind it where parameters were varied."""
    base: str
    axes: Mapping[str, Any]
    environment: str
    environment_version: int
    digest: str
    instances: tuple[ManifestInstance, ...]


class ManifestPack(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt pack as it was resolved for one environment and variant."""

    name: str
    digest: str
    texts: Mapping[str, str]
    own: tuple[str, ...] = ()
    """Keys of the texts that the pack itself names; the others are `standard`'s."""
    file: bool | None = None
    """Whether it is a user's own file; None: the run began before this was noted."""


class ManifestAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent."""

    name: str
    identity: str
    """Digest of what it reads and how it samples; a change is a conflict."""
    lane: str
    provider: str
    model: str
    policy: str
    script: str
    """For the policy `scripted`: its replies, as JSON text."""
    stand_in: str
    """The policy `plan` plays in its place; empty: the environment's choice."""
    overrides: Mapping[str, Any]
    sampling: Mapping[str, Mapping[str, Any]]
    """By environment: the sampling in force."""
    packs: Mapping[str, str]
    """By environment: digest of the pack in force."""
    pack: str
    """The pack's name, for tables."""
    notes: bool
    tags: tuple[str, ...]
    marks: tuple[str, ...] = ()
    """What readers must know of it: `temperature not sent: the model refuses it`."""
    price: Mapping[str, int] | None = None
    """Pico-dollars a token by kind, frozen when the agent joined the run; None: no price is known."""
    price_source: str = ""


class ManifestExtent(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was to hold before it was extended: these agents on these suites."""

    agents: tuple[str, ...]
    suites: tuple[str, ...]
    replicates: int

    def holds(self, agent: str, suite: str, replicate: int) -> bool:
        """Whether an episode was part of it."""
        return replicate < self.replicates and agent in self.agents and suite in self.suites


class ManifestOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order in which episodes are admitted (`run/universe.py`), frozen when the run began."""

    key: int | None = None
    """Of the permutations within strata; None: instances come as they are listed, as in runs that began without a
    key, and in nights, whose lists are in the night's order."""
    before: tuple[ManifestExtent, ...] = ()
    """The run before each extension, oldest first: what joins comes after what was frozen."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The run."""

    format: int
    evalkit: str
    name: str
    created_at: float
    replicates: int
    agents: Mapping[str, ManifestAgent]
    suites: Mapping[str, ManifestSuite]
    packs: Mapping[str, ManifestPack]
    """By digest."""
    order: ManifestOrder = ManifestOrder()

    @property
    def extent(self) -> ManifestExtent:
        """All that the run is to hold."""
        return ManifestExtent(agents=tuple(self.agents), suites=tuple(self.suites), replicates=self.replicates)

    def admitted(self, suite: ManifestSuite) -> Iterator[ManifestInstance]:
        """A suite's instances in the order of admission, lazily.

        Each stratum keeps its places in the suite's list, so that strata stay interleaved; within a stratum the
        instances are permuted by the key.
        """
        if self.order.key is None:
            yield from suite.instances
            return
        members: dict[str, list[ManifestInstance]] = {}
        for one in suite.instances:
            members.setdefault(one.stratum, []).append(one)
        orders = {name: Permutation(len(held), self.order.key, name) for name, held in members.items()}
        taken = dict.fromkeys(members, 0)
        for one in suite.instances:
            place = taken[one.stratum]
            taken[one.stratum] += 1
            yield members[one.stratum][orders[one.stratum].at(place)]

    def kit_of(self, agent: ManifestAgent, environment: str) -> Kit:
        """What an agent plays an environment with. Raises KeyError if it does not play it."""
        pack = self.packs[agent.packs[environment]]
        known = ENVIRONMENTS.get(environment)  # a record that is played without the table has its texts in the pack
        texts = {**known.later_texts, **pack.texts} if known is not None and known.later_texts else pack.texts
        return Kit(pack=Pack(name=pack.name, digest=pack.digest, texts=texts), notes=agent.notes)


def read_manifest(run: Path) -> Manifest:
    """The manifest of a run directory. Raises RunError if it is none, CorruptLogError if the file is damaged."""
    path = run / FILE
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise RunError(f"{run} is no run directory: it has no {FILE}. Start one with `evalkit run SPEC`.") from None
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except msgspec.DecodeError as flaw:
        raise CorruptLogError(
            f"{path} is damaged: {flaw}. Restore it from a copy; the log beside it is intact."
        ) from flaw
    if manifest.format != FORMAT:
        raise RunError(
            f"{run} has run format {manifest.format}, this evalkit reads format {FORMAT}. "
            "Use the evalkit that wrote it."
        )
    return manifest


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as indented JSON in the spec's order, so that two of them can be compared by eye."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def write_manifest(run: Path, manifest: Manifest) -> None:
    """Make the run directory's manifest this one, whole or not at all; the directory is created if need be.

    Raises StorageError.
    """
    make_directories(run)
    write_durably(run / FILE, encode_manifest(manifest))
