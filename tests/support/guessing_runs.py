"""Runs of the guessing game for tests: a manifest, and the rows that playing it leaves in the log."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import pyarrow as pa

from evalkit.dialogue import Reply
from evalkit.digests import NOTHING, step_digest
from evalkit.envs.environment import Kit, Pack
from evalkit.envs.lines import instance_digest
from evalkit.envs.replay import advance, begin
from evalkit.frozen.instances import ManifestInstance
from evalkit.frozen.manifest import Manifest, ManifestAgent, ManifestPack, ManifestSuite
from evalkit.money import PicoUsd
from evalkit.replies import encode_reply
from evalkit.report.report import Report, build_report
from evalkit.report.run_data import RunData
from evalkit.results.cells import Cell, cells
from evalkit.results.episodes import episode_results
from evalkit.spec.identity import episode_id, episode_key
from evalkit.store.files.record import LedgerRecord, StepRecord
from evalkit.store.files.schema import ledger_table
from tests.support.guessing_game import GUESSING, guess, hint

ENVIRONMENTS = {"guessing": GUESSING}
PRICE = {"input": 1_000_000, "output": 4_000_000, "cached_read": 100_000, "cached_write": 1_000_000, "request": 0}


def a_suite(name: str, secrets: Sequence[int], axes: Mapping[str, Any] | None = None) -> ManifestSuite:
    lines: list[dict[str, Any]] = [{"value": secret, "family": "odd" if secret % 2 else "even"} for secret in secrets]
    return ManifestSuite(
        name=name,
        base=name.split("?", maxsplit=1)[0],
        axes=axes or {},
        environment="guessing",
        environment_version=1,
        digest="s",
        instances=tuple(
            ManifestInstance(
                id=f"i{i}",
                digest=instance_digest("guessing", {**line, "at": f"{name} {i}"}),
                stratum=line["family"],
                line=line,
            )
            for i, line in enumerate(lines)
        ),
    )


def an_agent(name: str, pack: str = "d0", **fields: Any) -> ManifestAgent:
    plain: dict[str, Any] = {
        "lane": "lab/m1",
        "provider": "lab",
        "model": "m1",
        "policy": "",
        "script": "",
        "overrides": {},
        "sampling": {"guessing": {}},
        "packs": {"guessing": pack},
        "pack": "standard",
        "notes": True,
        "tags": (),
        "price": PRICE,
    }
    return ManifestAgent(name=name, identity=name, **{**plain, **fields})


def a_manifest(agents: Iterable[ManifestAgent], suites: Iterable[ManifestSuite], replicates: int = 1) -> Manifest:
    return Manifest(
        evalkit="0.1.0",
        name="nightly",
        created_at=1.5e9,
        replicates=replicates,
        agents={agent.name: agent for agent in agents},
        suites={suite.name: suite for suite in suites},
        packs={
            "d0": ManifestPack(name="standard", digest="d0", texts={"system": "Guess the number."}),
            "d1": ManifestPack(name="terse", digest="d1", texts={"system": "Guess."}),
        },
    )


def rows(
    manifest: Manifest,
    agent: str,
    suite: str,
    instance: str,
    replicate: int = 0,
    replies: Iterable[Reply] = (),
    refused: str = "",
    **fields: Any,
) -> list[StepRecord]:
    """The rows of an episode that got these replies; `refused` adds an ending that brought none."""
    target = next(one for one in manifest.suites[suite].instances if one.id == instance)
    pack = manifest.packs[manifest.agents[agent].packs["guessing"]]
    kit = Kit(pack=Pack(name=pack.name, digest=pack.digest, texts=pack.texts), notes=manifest.agents[agent].notes)
    position = begin(GUESSING, GUESSING.load(target.line), kit)
    known: dict[str, Any] = {
        "episode": episode_id(episode_key(agent, {}, pack.digest, "guessing", 1), target.digest, replicate),
        "environment": "guessing",
        "suite": suite,
        "instance": instance,
        "agent": agent,
        "replicate": replicate,
        "take": 0,
        "raw": None,
        "tokens_in": 1000,
        "tokens_out": 20,
        "tokens_cached_read": 400,
        "tokens_cached_write": 0,
        "tokens_reasoning": 5,
        "cost": PicoUsd(720_000_000),
        "latency_s": 0.8,
        "queue_s": 0.01,
        "attempts": "ok",
        "started_at": 1.5e9,
        "served_model": "m1-2026",
        "fingerprint": "",
        "response_id": "r",
        "worker": "host:1",
        **fields,
    }
    made = []
    for reply in replies:
        if position.ending:
            break
        data = encode_reply(reply)
        turn = advance(GUESSING, position, reply, data)
        made.append(
            StepRecord(
                **known,
                step=turn.step,
                period=turn.period,
                turn=turn.turn,
                reply=data,
                facts=turn.facts_bytes,
                observation_digest=turn.observation_digest,
                request_digest=turn.request_digest,
                step_digest=turn.step_digest,
                finish=reply.finish,
                ending=turn.ending,
            )
        )
    if refused:
        silent = {"tokens_in": 0, "tokens_out": 0, "tokens_cached_read": 0, "tokens_reasoning": 0, "cost": PicoUsd(0)}
        made.append(
            StepRecord(
                **{**known, **silent, "attempts": refused},
                step=position.step,
                period=position.period,
                turn=position.turn,
                reply=None,
                facts=b"{}",
                observation_digest=NOTHING,
                request_digest=position.request_digest,
                step_digest=step_digest(position.request_digest, None, b"{}", NOTHING),
                finish="",
                ending=refused,
            )
        )
    return made


def source_of_cells(
    cells: Sequence[Cell],
    manifest: Manifest | None = None,
    judged: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
) -> RunData:
    """What tables of cells made by hand are made of; agents that the manifest lacks join it."""
    packs = {cell.agent: {other.suite.environment: "d0" for other in cells} for cell in cells}
    agents = {name: msgspec.structs.replace(an_agent(name, model=name), packs=packs[name]) for name in packs}
    agents |= dict(manifest.agents if manifest else {})
    known = a_manifest(agents.values(), []) if manifest is None else msgspec.structs.replace(manifest, agents=agents)
    return RunData(known, cells, judged=judged)


def search(secret: int) -> list[Reply]:
    """A good player: solved in two periods, three turns."""
    return [guess((secret + 3) % 10), hint(), guess(secret)]


def report_of(
    manifest: Manifest, steps: pa.Table, ledger: Iterable[LedgerRecord] = (), log: pa.Table | None = None
) -> Report:
    """A report without a run directory; nothing is void. `log`: all rows, where some of them were superseded."""
    return build_report(source_of(manifest, steps, ledger, log))


def source_of(
    manifest: Manifest,
    steps: pa.Table,
    ledger: Iterable[LedgerRecord] = (),
    log: pa.Table | None = None,
    threads: int = 1,
) -> RunData:
    """What such a report is made of."""
    results = episode_results(steps, manifest, ENVIRONMENTS)
    logged = {"steps": steps, "log": steps if log is None else log, "ledger": ledger_table(list(ledger))}
    return RunData(manifest, cells(manifest, results), logged, threads=threads)
