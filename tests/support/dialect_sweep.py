"""A small sweep of all four environments: a model in each dialect and the oracle, or policies alone. How it is played
beside a simulated provider, and what its steps and requests were."""

import asyncio
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evalkit.client.transport import EndpointTransport
from evalkit.engine.freezing.freeze import resolve
from evalkit.engine.options import RunOptions
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.universe import Choice, episodes, lanes
from evalkit.frozen.manifest import Manifest
from evalkit.playing.sweeps import run_sweep
from evalkit.spec.model import Provider
from evalkit.spec.sweep import find_sweep, read_sweep
from evalkit.store.reading.reader import scan
from tests.provider.options import options_from
from tests.provider.serving import serving

DIALECTS = {
    "chat": "openai_chat",
    "responses": "openai_responses",
    "messages": "anthropic_messages",
    "gemini": "gemini",
}
"""The providers, with their dialects; those of clouds differ from one of them in two fields (`tests/wire`)."""

AGENTS = """
replicates = 2
width = 4
budget_usd = "40.00"
[[agents]]
name = "chat"
provider = "chat"
model = "noisy"
max_tokens = 900
tags = ["family:a", "open"]
[[agents]]
name = "responses"
provider = "responses"
model = "random"
max_tokens = 900
tags = ["family:a", "proprietary"]
[[agents]]
name = "messages"
provider = "messages"
model = "noisy"
max_tokens = 900
notes = false
prompts = "known_horizon"
tags = ["family:b", "reasoning"]
[[agents]]
name = "gemini"
provider = "gemini"
model = "random"
max_tokens = 900
tags = ["family:b", "open"]
"""

ORACLE = '[[agents]]\npolicy = "oracle"\n'

POLICIES = "replicates = 2\n" + "".join(
    f'[[agents]]\npolicy = "{name}"\n'
    for name in ("knuth", "climber", "learner", "replanner", "greedy", "random", "noisy", "oracle")
)

SUITES = """
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3"]
vary = { periods = [3] }
[[suites]]
name = "procurement/basic"
instances = ["seed-0", "seed-3"]
vary = { periods = [3] }
[[suites]]
name = "pricing/basic"
instances = ["seed-0", "seed-1"]
vary = { periods = [4] }
[[suites]]
name = "costbench/basic"
instances = ["dining-0004"]
vary = { block = ["none", "cost_change"] }
"""

SWEEPS = {"dialects": AGENTS + ORACLE + SUITES, "policies": POLICIES + SUITES}
"""The two sweeps by name."""

PROVIDER = """dialect = "{dialect}"
timeout_s = {timeout}
[simulate]
latency = "{latency}"
{more}
[usd_per_mtok]
input = "1"
output = "4"
cached_read = "0.1"
cached_write = "1.25"
source = "made up, 2026-11-21"
"""

PRICE = "1:4:0.1:1.25"
"""What the simulated provider takes: the prices of `PROVIDER`."""


def lay(folder: Path, sweep: str) -> Path:
    """Write a sweep and its providers into a folder; the spec's path."""
    providers(folder)
    path = folder / "sweep.toml"
    path.write_text(sweep)
    return path


def providers(folder: Path, *, latency: str = "1ms", more: str = f'price = "{PRICE}"', timeout: int = 60) -> None:
    """The files of the four simulated providers, one a dialect."""
    (folder / "providers").mkdir(parents=True, exist_ok=True)
    for name, dialect in DIALECTS.items():
        text = PROVIDER.format(dialect=dialect, latency=latency, more=more, timeout=timeout)
        (folder / "providers" / f"{name}.toml").write_text(text)


@contextmanager
def inside(folder: Path, **variables: str) -> Iterator[None]:
    """Work in a folder, without keys of providers: tables of providers say which are set."""
    before, place = dict(os.environ), Path.cwd()
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        del os.environ[name]
    os.environ.update(variables)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(place)
        os.environ.clear()
        os.environ.update(before)


@dataclass(frozen=True, slots=True)
class Played:
    """One call of `run`."""

    outcome: RunOutcome
    sent: Mapping[str, bytes]
    """The body of each request by its id, EPISODE/STEP/ATTEMPT."""
    bill: int
    """What the provider took for them, in pico-dollars."""

    @property
    def asked(self) -> set[tuple[str, int]]:
        """The steps that a request asked for: episode and step."""
        return {(episode, int(step)) for episode, step, _ in (name.split("/") for name in self.sent)}


def play(folder: Path, run: Path, **options: Any) -> Played:
    """Run a folder's sweep into `run` beside a simulated provider on the same loop. No request may be sent twice."""
    sent: dict[str, bytes] = {}
    plain = EndpointTransport.send

    async def send(self: EndpointTransport, body: bytes, request_id: str, *rest: Any, **more: Any) -> Any:
        assert request_id not in sent, f"{request_id} was sent twice"
        sent[request_id] = bytes(body)
        return await plain(self, body, request_id, *rest, **more)

    async def both() -> Played:
        async with serving(options_from({"price": PRICE})) as (url, simulator):

            @contextmanager
            def launch(provider: Provider, directory: Path) -> Iterator[str]:
                yield url

            resolved = resolve(read_sweep(find_sweep("sweep.toml")))
            outcome = await run_sweep(resolved, RunOptions(directory=run, launch=launch, **options), lambda view: None)
            return Played(outcome, sent, simulator.totals.bill)

    with inside(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(EndpointTransport, "send", send)
        return asyncio.run(both())


def in_order(manifest: Manifest) -> list[str]:
    """The episodes of every lane in admission order: id, lane, agent, suite, instance, replicate."""
    return [
        f"{one.id} {lane} {one.cell.agent.name} {one.suite.name} {one.target.id} {one.replicate}"
        for lane, agents in lanes(manifest, Choice()).items()
        for one in episodes(manifest, agents, Choice())
    ]


def digests(run: Path) -> list[str]:
    """A line an episode: its place, its number of steps, its ending, and one digest over those of all its steps."""
    columns = ["agent", "suite", "instance", "replicate", "step", "ending", "episode"]
    kinds = ("request_digest", "observation_digest", "step_digest")
    rows = scan(run, [*columns, *kinds]).to_pylist()
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["step"]):
        found.setdefault(tuple(row[name] for name in columns[:4]), []).append(row)
    lines = []
    for place, steps in sorted(found.items()):
        over = [short_digest(b"".join(row[kind] for row in steps)) for kind in kinds]
        lines.append(
            " ".join([steps[0]["episode"], *map(str, place), str(len(steps)), steps[-1]["ending"] or "-", *over])
        )
    return lines


def held(run: Path) -> set[tuple[str, int]]:
    """The steps on disk that a reply made: episode and step."""
    return {(row["episode"], row["step"]) for row in scan(run, ["episode", "step"]).to_pylist()}


def bodies_sent(run: Path, sent: Mapping[str, bytes]) -> list[str]:
    """A line a step that was asked for: agent, environment, EPISODE/STEP and a digest of the body.

    Attempts at one step have one body.
    """
    rows = scan(run, ["episode", "agent", "environment"]).to_pylist()
    cell = {row["episode"]: f"{row['agent']} {row['environment']}" for row in rows}
    found: dict[tuple[str, str, int], str] = {}
    for name, body in sent.items():
        episode, step, _ = name.split("/")
        place, digest = (cell[episode], episode, int(step)), short_digest(body)
        assert found.setdefault(place, digest) == digest, f"{name}: another body than the attempt before"
    return [f"{where} {episode}/{step} {digest}" for (where, episode, step), digest in sorted(found.items())]


def short_digest(data: bytes) -> str:
    """32 hexadecimal digits of SHA-256."""
    return hashlib.sha256(data).hexdigest()[:32]
