"""Goldens of what is sent: request bytes by environment, dialect and prompt pack; ids of episodes; digests of steps."""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evalkit.client.transport import EndpointTransport
from evalkit.dialogue import Reply, ToolCall
from evalkit.engine.freezing.freeze import resolve
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.session import RunOptions
from evalkit.engine.sweep import run_sweep
from evalkit.engine.universe import Choice, episodes, lanes
from evalkit.envs.environment import Environment, Kit, Pack
from evalkit.envs.replay import advance, begin
from evalkit.envs.table import ENVIRONMENTS
from evalkit.replies import encode_reply
from evalkit.serve.options import options_from
from evalkit.serve.server import serving
from evalkit.spec.model import Provider
from evalkit.spec.packs import read_pack
from evalkit.spec.sweep import find_sweep, read_sweep
from evalkit.store.manifest import Manifest
from evalkit.store.manifests import read_manifest
from evalkit.store.reading.reader import scan
from evalkit.wire.dialect import Quirks
from evalkit.wire.table import DIALECTS
from tests.net.workspace import HERE, RUN, RUNS, copy, inside

REPLIES = HERE / "replies"
PACKS = HERE / "packs"

IN_TEXT = {
    ("scheduling", "openai_chat", "standard"),
    ("procurement", "openai_responses", "standard"),
    ("pricing", "anthropic_messages", "standard"),
    ("costbench", "gemini", "standard"),
}
"""Environment, dialect and pack of which the last request is golden as readable text too."""

ONE_RUN = ("finished", "killed-early", "killed-late", "faulty", "policies", "merged", "repaired", "judged")
"""Fixtures that hold one run."""

PRICED = {"price": "1:4:0.1:1.25"}
"""The simulated provider of the fixtures, without its latency."""

FOUR = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
"""The dialects; those of clouds differ from one of them in two fields (`tests/wire`)."""

CHOICES: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "-required": {"tool_choice": "required", "max_tokens": 512},
    "-none": {"tool_choice": "none"},
}
"""By ending of a golden's name: what an agent asks for instead of its environment's defaults."""


def scripted(environment: str) -> tuple[dict[str, Any], list[Reply]]:
    """(an instance's line, the replies of an episode on it): kept, so that no policy decides what is sent."""
    kept = json.loads((REPLIES / f"{environment}.json").read_text())
    replies = [
        Reply(text=one["text"], calls=tuple(ToolCall(**call) for call in one["calls"]), finish=one["finish"])
        for one in kept["replies"]
    ]
    return kept["line"], replies


def bodies(
    environment: str, dialect: str, pack: Pack, *, notes: bool = True, overrides: Mapping[str, Any] | None = None
) -> list[bytes]:
    """Every request's body of the scripted episode, as the engine puts them together."""
    env: Environment[Any, Any] = ENVIRONMENTS[environment]
    speaks = DIALECTS[dialect]
    line, replies = scripted(environment)
    position = begin(env, env.load(line), Kit(pack=pack, notes=notes))
    head = speaks.head("model-1", env.defaults.with_overrides(overrides or {}), Quirks())
    made: list[bytes] = []
    parts: list[bytes] = []
    chat, joined = position.messages, 0
    tools, encoded = position.tools, speaks.encode_tools(position.tools)
    for reply in replies:
        if position.ending:
            break
        if position.messages is not chat:
            parts, chat, joined = [], position.messages, 0
        if position.tools is not tools:
            tools, encoded = position.tools, speaks.encode_tools(position.tools)
        speaks.join(parts, chat[joined:])
        joined = len(chat)
        made.append(speaks.body(head, encoded, parts, 1000 + position.step))
        advance(env, position, reply, encode_reply(reply))
    return made


def packs(environment: str) -> Iterator[tuple[str, Pack, bool]]:
    """(name, pack, with notes?): evalkit's own, one imported long ago, and the texts that old manifests hold."""
    yield "standard", read_pack("standard", environment), True
    yield "standard-no-notes", read_pack("standard", environment), False
    yield "standard-reasoning", read_pack("standard", environment, "reasoning"), True
    for name in ("known_horizon", "known_horizon_goal"):
        yield name, read_pack(name, environment), True
    yield "imported", read_pack(str(PACKS / "imported.toml"), environment), True
    manifest = read_manifest(RUNS / "finished" / RUN)
    for agent in ("chat", "messages"):
        kit = manifest.kit_of(manifest.agents[agent], environment)
        yield f"manifest-{agent}", kit.pack, kit.notes


def of_requests(folder: Path) -> dict[str, str]:
    """By environment, dialect and pack: a digest a request of an episode."""
    made: dict[str, str] = {}
    for environment in ("scheduling", "procurement", "pricing", "costbench"):
        for dialect in FOUR:
            for name, pack, notes in packs(environment):
                for ending, overrides in CHOICES.items() if name == "standard" else [("", {})]:
                    found = bodies(environment, dialect, pack, notes=notes, overrides=overrides)
                    place = f"requests/{environment}/{dialect}/{name}{ending}"
                    made[place] = "".join(f"{step} {len(body)} {_sha(body)}\n" for step, body in enumerate(found))
                    if not ending and (environment, dialect, name) in IN_TEXT:
                        made[f"{place}-text"] = json.dumps(json.loads(found[-1]), indent=1, ensure_ascii=False) + "\n"
    return made


def of_ids(folder: Path) -> dict[str, str]:
    """Ids of episodes: of each fixture's manifest in its order, and of specs resolved today."""
    made = {f"ids/manifests/{name}": in_order(read_manifest(RUNS / name / RUN)) for name in ONE_RUN}
    with inside(copy("finished", folder)):
        for name in ("sweep.toml", "quickstart", "baselines", "nightly"):
            manifest = resolve(read_sweep(find_sweep(name))).manifest
            text = in_order(manifest)
            stem = name.removesuffix(".toml")
            made[f"ids/fresh/{stem}-order"] = text if len(text) < 20_000 else _sha(text.encode()) + "\n"
            ids = "\n".join(sorted(line.split()[0] for line in text.splitlines()))
            made[f"ids/fresh/{stem}-set"] = f"{len(text.splitlines())} {_sha(ids.encode())}\n"
    return made


def in_order(manifest: Manifest) -> str:
    """The episodes of every lane in admission order: id, agent, suite, instance, replicate."""
    lines = []
    for lane, agents in lanes(manifest, Choice()).items():
        for one in episodes(manifest, agents, Choice()):
            lines.append(f"{one.id} {lane} {one.cell.agent.name} {one.suite.name} {one.target.id} {one.replicate}")
    return "\n".join(lines) + "\n"


def of_steps(folder: Path) -> dict[str, str]:
    """Digests of the steps that fixtures hold, and of those of the same sweep played afresh, with its requests."""
    made: dict[str, str] = {}
    for name in ONE_RUN:
        made[f"steps/{name}"] = digests(RUNS / name / RUN)
    place = copy("finished", folder)
    sent = play(place, "fresh").sent
    made["steps/afresh"] = digests(place / "fresh")
    made |= {f"steps/sent/{name}": text for name, text in by_cell(place / "fresh", sent).items()}
    return made


def digests(run: Path) -> str:
    """A line an episode: its place, its number of steps, its ending, and one digest over those of all its steps."""
    columns = ["agent", "suite", "instance", "replicate", "step", "ending", "episode"]
    kinds = ("request_digest", "observation_digest", "step_digest")
    rows = scan(run, [*columns, *kinds]).to_pylist()
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["step"]):
        found.setdefault(tuple(row[name] for name in columns[:4]), []).append(row)
    lines = []
    for place, steps in sorted(found.items()):
        over = [_sha(b"".join(row[kind] for row in steps)) for kind in kinds]
        lines.append(
            " ".join([steps[0]["episode"], *map(str, place), str(len(steps)), steps[-1]["ending"] or "-", *over])
        )
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Played:
    """One call of `run`."""

    outcome: RunOutcome
    sent: Mapping[str, bytes]
    """The body of each request by its id, EPISODE/STEP/ATTEMPT."""
    bill: int
    """What the provider took for them, in pico-dollars."""


def play(
    folder: Path, run: str, *, simulate: Mapping[str, Any] = PRICED, sweep: str = "sweep.toml", **options: Any
) -> Played:
    """Run the sweep of a fixture's folder beside a simulated provider on the same loop."""
    sent: dict[str, bytes] = {}
    plain = EndpointTransport.send

    async def send(self: EndpointTransport, body: bytes, request_id: str, *rest: Any, **more: Any) -> Any:
        assert request_id not in sent, f"{request_id} was sent twice"
        sent[request_id] = bytes(body)
        return await plain(self, body, request_id, *rest, **more)

    async def both() -> Played:
        async with serving(options_from(simulate)) as (url, simulator):

            @contextmanager
            def launch(provider: Provider, directory: Path) -> Iterator[str]:
                yield url

            resolved = resolve(read_sweep(find_sweep(sweep)))
            chosen = RunOptions(directory=Path(run), launch=launch, **options)
            outcome = await run_sweep(resolved, chosen, lambda view: None)
            return Played(outcome, sent, simulator.totals.bill)

    with inside(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(EndpointTransport, "send", send)
        return asyncio.run(both())


def places(run: Path) -> dict[str, str]:
    """The cell of each episode that a run holds: AGENT/ENVIRONMENT by id."""
    rows = scan(run, ["episode", "agent", "environment"]).to_pylist()
    return {row["episode"]: f"{row['agent']}/{row['environment']}" for row in rows}


def by_cell(run: Path, sent: Mapping[str, bytes]) -> dict[str, str]:
    """A line a request, EPISODE/STEP and a digest of its body, by cell. Attempts at one step have one body."""
    cell, found = places(run), dict[str, dict[tuple[str, int], str]]()
    for name, body in sent.items():
        episode, step, _ = name.split("/")
        lines, digest = found.setdefault(cell[episode], {}), _sha(body)
        assert lines.setdefault((episode, int(step)), digest) == digest, f"{name}: another body than the attempt before"
    return {
        name: "".join(f"{episode}/{step} {digest}\n" for (episode, step), digest in sorted(lines.items()))
        for name, lines in found.items()
    }


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
