"""`runs/*.toml`: the spec of a sweep, read and checked. It describes a desired state: run it again and only what is
missing is asked for.
"""

import math
import os
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import msgspec
import orjson

from evalkit.dialogue import Sampling
from evalkit.errors import UsageError, nearest
from evalkit.files import at_home
from evalkit.money import PicoUsd, parse_usd
from evalkit.policy.table import is_policy, policy_names
from evalkit.seats import AgentFn
from evalkit.shipped import find
from evalkit.spec.agent_code import find_agent
from evalkit.spec.catalogue import LaneFile, TierChoice, checked_tier
from evalkit.spec.decide import DecideTable, checked_decide
from evalkit.spec.gate import GateTable
from evalkit.spec.model import AgentSpec, Machines, SuiteUse, Sweep
from evalkit.spec.reading import check_record, parse_span, plain_values, read_values
from evalkit.wire.exhausted import COUNTED, MODELS_PART

# `--set agents.gpt.effort=high`: values of a sweep that the command line replaces, before anything is checked.

# An agent table whose values are lists stands for every combination of them: `effort = ["low", "high"]`.
#
# Each combination is an agent of its own, called after what it has of each list: `gpt@effort=low`. It gets the same
# as a tag, `effort:low`, so that `report --by effort` compares the values.

LISTS = frozenset({"name", "tags", "tier"})
"""Keys that do not cross: their values are lists anyway, or names."""
NAMING = ("policy", "model")
"""Keys after which an agent without a name is called."""
MOST = 1000
"""Agents that one table may stand for."""
_MOST_WORD = 40


def crossed(table: Mapping[str, Any], where: str, letters: Collection[str]) -> Iterator[dict[str, Any]]:
    """The tables that it stands for, the first key's values changing slowest; itself, if no value is a list.

    `letters`: those that a name may consist of. Raises UsageError.
    """
    axes = {key: value for key, value in table.items() if isinstance(value, list) and key not in LISTS}
    for key, values in axes.items():
        if not values:
            raise UsageError(f"{where}.{key}: the list of values is empty.")
    if math.prod(map(len, axes.values())) > MOST:
        raise UsageError(f"{where}: its lists have more than {MOST:,} combinations.")
    for places in product(*(range(len(values)) for values in axes.values())):
        chosen = {key: (values[place], place) for (key, values), place in zip(axes.items(), places, strict=True)}
        yield _varied_agent(table, chosen, letters) if chosen else dict(table)


def _varied_agent(
    table: Mapping[str, Any], chosen: Mapping[str, tuple[Any, int]], letters: Collection[str]
) -> dict[str, Any]:
    agent = {**table, **{key: value for key, (value, _) in chosen.items()}}
    words = {key: _word(value, place, letters) for key, (value, place) in chosen.items()}
    named_by = [key for key in NAMING if agent.get(key)] if not agent.get("name") else []
    base = agent.get("name") or (agent[named_by[0]] if named_by else "")
    if isinstance(base, str) and base:
        suffix = "".join(f"@{key}={word}" for key, word in words.items() if key not in named_by[:1])
        agent["name"] = f"{base}{suffix}"
    tags = agent.get("tags", [])
    if isinstance(tags, list):
        known = {tag.partition(":")[0] for tag in tags if isinstance(tag, str)}
        more = [f"{key}:{word}" for key, word in words.items() if key not in known and not set(word) & set("/@:=")]
        agent["tags"] = [*tags, *more]
    return agent


def _word(value: Any, place: int, letters: Collection[str]) -> str:
    """What a value is called in a name: itself, or its number in the list where a name cannot hold it."""
    word = str(value).lower() if isinstance(value, bool) else str(value)
    plain = isinstance(value, str | int | float) and 0 < len(word) <= _MOST_WORD
    return word if plain and set(word) <= set(letters) - {"@", "="} else str(place + 1)


Plain = dict[str, Any]
EXAMPLE = "--set agents.gpt.effort=high"


def with_settings(written: Mapping[str, Any], settings: Sequence[str]) -> Plain:
    """What a sweep's file says, with some values replaced; `settings`: `KEY=VALUE` each.

    A key is that of the file (`replicates`), or names a table first: `agents.NAME.KEY`, `suites.NAME.KEY`,
    `limits.LANE.KEY`. A value is read as TOML, and as text where it is none. Raises UsageError.
    """
    data: Plain = dict(written)
    for setting in settings:
        key, equals, text = setting.partition("=")
        key, where = key.strip(), f"--set {setting}"
        if not equals or not key:
            raise UsageError(f"{where}: expected KEY=VALUE, as in `{EXAMPLE}`.")
        data = _replaced(data, key, _value(text.strip()), where)
    return data


def _value(text: str) -> Any:
    try:
        read = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return text
    value = read["value"]
    return value if len(read) == 1 and isinstance(value, str | int | float | list | dict) else text


def _replaced(data: Plain, key: str, value: Any, where: str) -> Plain:
    head, _, rest = key.partition(".")
    if head in ("agents", "suites") and rest:
        tables = [table for table in data.get(head, ()) if isinstance(table, Mapping)]
        name, inner = _split(rest, [_name(table) for table in tables], where, head.removesuffix("s"))
        if not inner:
            raise UsageError(f"{where}: {name!r} is a table; name a key of it, as in `{EXAMPLE}`.")
        changed = [_deep(table, inner, value, where) if _name(table) == name else table for table in tables]
        return {**data, head: changed}
    if head == "limits" and rest:
        own = data.get(head)
        agents = [agent for agent in data.get("agents", ()) if isinstance(agent, Mapping)]
        lanes = [f"{agent.get('provider')}/{agent.get('model')}" for agent in agents if agent.get("provider")]
        names = [*(own if isinstance(own, Mapping) else ()), *lanes, *(lane.partition("/")[0] for lane in lanes)]
        name, inner = _split(rest, names, where, "lane or provider")
        return {**data, head: _deep(own if isinstance(own, Mapping) else {}, (name, *inner), value, where)}
    return _deep(data, tuple(key.split(".")), value, where)


def _name(table: Mapping[str, Any]) -> str:
    """What an agent or a suite is called."""
    return str(table.get("name") or table.get("policy") or table.get("model") or "")


def _split(rest: str, names: Iterable[str], where: str, kind: str) -> tuple[str, tuple[str, ...]]:
    """(the name, which may contain dots; the keys after it). The longest name that fits is meant."""
    known = sorted({name for name in names if name}, key=len, reverse=True)
    for name in known:
        if rest == name or rest.startswith(f"{name}."):
            return name, tuple(rest[len(name) + 1 :].split(".")) if rest != name else ()
    name = rest.partition(".")[0]
    raise UsageError(f"{where}: the sweep has no {kind} {name!r}.{nearest(name, known)}")


def _deep(table: Mapping[str, Any], keys: Sequence[str], value: Any, where: str) -> Plain:
    """The table with a value replaced, at some depth."""
    key, rest = keys[0], keys[1:]
    if not key:
        raise UsageError(f"{where}: a part of the key is empty.")
    if not rest:
        return {**table, key: value}
    inner = table.get(key, {})
    if not isinstance(inner, Mapping):
        raise UsageError(f"{where}: {key!r} is no table, so it has no key {rest[0]!r}.")
    return {**table, key: _deep(inner, rest, value, where)}


MAX_WIDTH = 100_000
MAX_WORKERS = 256
MAX_SEED = 2**31 - 1
"""The highest that every provider takes."""
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+@:/=")


class AgentFile(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[agents]]` table."""

    name: str = ""
    provider: str = ""
    model: str = ""
    policy: str = ""
    agent: str = ""
    models: dict[str, str] = {}
    params: dict[str, Any] = {}
    temperature: float | None = None
    max_tokens: int | None = None
    tool_choice: str | None = None
    top_p: float | None = None
    effort: str | None = None
    extra: dict[str, Any] | None = None
    seed: int | bool | None = None
    prompts: str = "standard"
    notes: bool = True
    tags: tuple[str, ...] = ()
    budget_usd: str | int | float | None = None
    tier: TierChoice = None


class ScriptParams(msgspec.Struct, frozen=True, kw_only=True):
    """The `params` of the policy `scripted`."""

    replies: list[str | dict[str, Any]]


class SuiteTable(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[suites]]` table."""

    name: str
    vary: dict[str, list[Any]] = {}
    instances: tuple[str, ...] = ()
    counted_refusals: tuple[str, ...] = COUNTED


class MachinesTable(msgspec.Struct, frozen=True, kw_only=True):
    """The `[machines]` table."""

    workers: int | str = 1
    on: Machines = "here"


class AlertsTable(msgspec.Struct, frozen=True, kw_only=True):
    """The `[alerts]` table."""

    budget: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """The share of the budget at which somebody is told."""


class SweepFile(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    agents: list[AgentFile]
    suites: list[SuiteTable]
    name: str = ""
    replicates: int = 1
    width: int = 64
    budget_usd: str | int | float | None = None
    deadline: str | None = None
    limits: dict[str, LaneFile] = {}
    machines: MachinesTable = MachinesTable()
    decide: DecideTable | None = None
    gate: GateTable = GateTable()
    alerts: AlertsTable = AlertsTable()


def find_sweep(name: str) -> Path:
    """A sweep's file by path, or by name among the folders that hold sweeps. Raises UsageError."""
    path = Path(at_home(name))
    if path.suffix == ".toml" and (path.is_file() or path.parent != Path()):
        if not path.is_file():
            raise UsageError(f"{name}: no such file. Write a sweep with `evalkit new {name}`.")
        return path
    return find("runs", f"{name.removeprefix('runs/').removesuffix('.toml')}.toml")


def read_sweep(path: Path, settings: Sequence[str] = (), agents: Mapping[str, AgentFn] = {}) -> Sweep:
    """The sweep a file describes; `settings`: values that are replaced (`--set`); `agents`: code by the
    name that the file has for it. Raises UsageError naming file, key and the nearest valid name."""
    written = read_values(path)
    if settings:
        written = plain_values(with_settings(written, settings), str(path))
    return replace(_sweep(written, str(path), path.stem, agents), settings=tuple(settings))


def sweep_from(values: Mapping[str, Any], where: str, name: str, agents: Mapping[str, AgentFn] = {}) -> Sweep:
    """The sweep that a program describes, as a file would; `name`: of one that says none. Raises UsageError."""
    return _sweep(plain_values(values, where), where, name, agents)


def _sweep(written: Mapping[str, Any], where: str, name: str, given: Mapping[str, AgentFn]) -> Sweep:
    file, tables = _read(written, where)
    if not file.name and not name:
        raise UsageError(f"{where}: name: a sweep without a file needs a name: its run is in runs/NAME.")
    if not file.agents or not file.suites:
        raise UsageError(f"{where}: a sweep needs at least one [[agents]] and one [[suites]] table.")
    agents = tuple(_agent(agent, f"{where}: agents[{i}]", given) for i, agent in tables)
    _unique([agent.name for agent in agents], f"{where}: agents")
    suites = tuple(_suite(suite, f"{where}: suites[{i}]") for i, suite in enumerate(file.suites, 1))
    for key, value, most in (("replicates", file.replicates, 10**6), ("width", file.width, MAX_WIDTH)):
        if not 1 <= value <= most:
            raise UsageError(f"{where}: {key}: must be 1 to {most:,}, not {value}.")
    models = [part for agent in agents for part in agent.roles.values() if part.provider]
    lanes = {part.lane for part in models} | {part.provider for part in models}
    for lane in file.limits:
        if lane not in lanes:
            kind = "lane" if "/" in lane else "provider"
            raise UsageError(f"{where}: limits: no agent uses the {kind} {lane!r}.{nearest(lane, lanes)}")
    return Sweep(
        name=checked_name(file.name or name, f"{where}: name", "/:="),
        source=where,
        agents=agents,
        suites=suites,
        replicates=file.replicates,
        width=file.width,
        budget=parse_budget(file.budget_usd, f"{where}: budget_usd"),
        workers=parse_workers(file.machines.workers, f"{where}: machines.workers"),
        on=file.machines.on,
        deadline_s=parse_deadline(file.deadline, f"{where}: deadline"),
        limits={
            lane: limits.checked(f"{where}: limits.{lane}")
            for lane, limits in file.limits.items()
            # A tier or a cache alone leaves the limits as they are.
            if limits == LaneFile() or limits != LaneFile(tier=limits.tier, cache=limits.cache)
        },
        tiers={
            lane: checked_tier(limits.tier, f"{where}: limits.{lane}.tier")
            for lane, limits in file.limits.items()
            if limits.tier is not None
        },
        caches={lane: limits.cache for lane, limits in file.limits.items() if limits.cache},
        decide=None
        if file.decide is None
        else checked_decide(file.decide, [agent.name for agent in agents], file.replicates, f"{where}: decide"),
        gate=file.gate,
        alert_at=file.alerts.budget,
        written=written,
    )


def _read(written: Mapping[str, Any], where: str) -> tuple[SweepFile, list[tuple[int, AgentFile]]]:
    """(the file, its agents with the number of the table that each is from). Raises UsageError."""
    agents = written.get("agents")
    if not isinstance(agents, list) or not all(isinstance(agent, Mapping) for agent in agents):
        return check_record(written, SweepFile, where), []
    every = [list(crossed(agent, f"{where}: agents[{i}]", _NAME)) for i, agent in enumerate(agents, 1)]
    # One of each table first, so that errors name the tables as the file counts them.
    file = check_record({**written, "agents": [tables[0] for tables in every]}, SweepFile, where)
    return file, [
        (i, check_record(table, AgentFile, where, f"agents[{i}]"))
        for i, tables in enumerate(every, 1)
        for table in tables
    ]


def parse_budget(text: str | int | float | None, where: str) -> PicoUsd | None:
    """A budget in USD; None: no bound. Raises UsageError."""
    try:
        return None if text is None else parse_usd(str(text))
    except ValueError as flaw:
        raise UsageError(f"{where}: {flaw}.") from flaw


def parse_workers(text: str | int, where: str) -> int:
    """How many processes play a run: a number, or `cores` for one a core that this process may use. Raises
    UsageError."""
    if text == "cores":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    number = int(text) if str(text).isascii() and str(text).isdigit() and len(str(text)) < 5 else 0
    if isinstance(text, bool) or not 1 <= number <= MAX_WORKERS:
        raise UsageError(f"{where}: expected a number from 1 to {MAX_WORKERS}, or `cores`, not {text!r}.")
    return number


def parse_deadline(text: str | None, where: str) -> float | None:
    """A deadline as a span of time, in seconds; None: none. Raises UsageError."""
    if text is None:
        return None
    try:
        return parse_span(text)
    except ValueError as flaw:
        raise UsageError(f"{where}: {flaw}.") from flaw


def _agent(file: AgentFile, where: str, given: Mapping[str, AgentFn]) -> AgentSpec:
    if file.agent:
        return _coded(file, where, given)
    if file.models:
        raise UsageError(f"{where}.models: they are those of an `agent` that is code.")
    if bool(file.policy) == bool(file.provider and file.model):
        raise UsageError(f"{where}: set either `policy`, or both `provider` and `model`.")
    if file.policy and (file.provider or file.model):
        raise UsageError(f"{where}: an agent with a `policy` has no `provider` or `model`.")
    if file.policy and not is_policy(file.policy):
        raise UsageError(f"{where}.policy: there is no policy {file.policy!r}.{nearest(file.policy, policy_names())}")
    scripted = file.policy == "scripted"
    if file.params.keys() != ({"replies"} if scripted else set()):
        raise UsageError(
            f"{where}.params: the policy 'scripted' has `replies`, and nothing else."
            if scripted
            else f"{where}.params: they are those of an `agent` that is code, or of the policy 'scripted'."
        )
    script = check_record(file.params, ScriptParams, where, "params") if scripted else None
    if file.policy and file.budget_usd is not None:
        raise UsageError(f"{where}.budget_usd: a policy in this process costs nothing.")
    if file.policy and file.tier is not None:
        raise UsageError(f"{where}.tier: a policy in this process asks no provider.")
    overrides = _overrides(file, where)
    if overrides and file.policy:
        raise UsageError(f"{where}.{min(overrides)}: a policy in this process has no sampling settings.")
    return AgentSpec(
        name=checked_name(file.name or file.policy or file.model, f"{where}.name", ""),
        provider=file.provider,
        model=file.model,
        policy=file.policy,
        script="" if script is None else orjson.dumps(script.replies, option=orjson.OPT_SORT_KEYS).decode(),
        overrides=overrides,
        prompts=file.prompts,
        notes=file.notes,
        tags=tuple(_tag(tag, f"{where}.tags") for tag in file.tags),
        budget=parse_budget(file.budget_usd, f"{where}.budget_usd"),
        tier=checked_tier(file.tier, f"{where}.tier"),
    )


def _coded(file: AgentFile, where: str, given: Mapping[str, AgentFn]) -> AgentSpec:
    """An agent that is code. Raises UsageError."""
    for key in ("policy", "provider", "model"):
        if getattr(file, key):
            raise UsageError(f"{where}.{key}: an agent that is code has `models`, one for each role.")
    code = find_agent(file.agent, given, f"{where}.agent")
    for role in {*code.models, *file.models}:
        if role not in file.models:
            raise UsageError(f"{where}.models: {file.agent} asks the role {role!r}: give it a `provider/model`.")
        if role not in code.models:
            raise UsageError(f"{where}.models: {file.agent} has no role {role!r}.{nearest(role, code.models)}")
        provider, _, model = file.models[role].partition("/")
        if not provider or not model:
            raise UsageError(f"{where}.models.{role}: expected `provider/model`, got {file.models[role]!r}.")
    table = msgspec.structs.replace(file, agent="", models={}, params={}, policy="")
    provider, _, model = file.models[code.models[0]].partition("/")
    name = file.name or file.agent.rpartition(":")[2]
    spec = _agent(msgspec.structs.replace(table, name=name, provider=provider, model=model), where, given)
    models = {role: file.models[role] for role in code.models}
    return replace(spec, agent=file.agent, version=code.version, code=code, models=models, params=file.params)


def _tag(tag: str, where: str) -> str:
    """The tag, if it is a word, or a name and a value. Raises UsageError."""
    name, colon, value = tag.partition(":")
    if not name or (colon and not value) or set(tag) - _NAME or set(tag) & set("/@=") or ":" in value:
        raise UsageError(f"{where}: {tag!r} is not a tag: write a word (open), or a name and a value (family:qwen).")
    return tag


def _overrides(file: AgentFile, where: str) -> dict[str, object]:
    overrides: dict[str, object] = {}
    for key in ("temperature", "max_tokens", "tool_choice", "top_p", "effort", "seed"):
        value = getattr(file, key)
        if value is not None:
            overrides[key] = value
    if file.extra is not None:
        overrides["extra"] = orjson.dumps(file.extra, option=orjson.OPT_SORT_KEYS).decode()
    if file.tool_choice not in (None, "auto", "required", "none"):
        raise UsageError(f"{where}.tool_choice: must be auto, required or none, not {file.tool_choice!r}.")
    if file.max_tokens is not None and file.max_tokens < 1:
        raise UsageError(f"{where}.max_tokens: must be at least 1, not {file.max_tokens}.")
    if file.seed is True or (file.seed is not None and not 0 <= file.seed <= MAX_SEED):
        raise UsageError(
            f"{where}.seed: must be false (none is sent) or 0 to {MAX_SEED:,} (sent with every request), not "
            f"{str(file.seed).lower()}. Leave it out for a different seed per request."
        )
    for key, value, most in (("temperature", file.temperature, 10.0), ("top_p", file.top_p, 1.0)):
        if value is not None and not 0 <= value <= most:
            raise UsageError(f"{where}.{key}: must be 0 to {most:g}, not {value}.")
    Sampling().with_overrides(overrides)
    return overrides


def _suite(file: SuiteTable, where: str) -> SuiteUse:
    for key, values in file.vary.items():
        if not values:
            raise UsageError(f"{where}.vary.{key}: the list of values is empty.")
    for kind in file.counted_refusals:
        if kind not in MODELS_PART:
            raise UsageError(
                f"{where}.counted_refusals: {kind!r} is no refusal that a model may cause.{nearest(kind, MODELS_PART)}"
            )
    return SuiteUse(
        name=file.name,
        vary={key: tuple(values) for key, values in file.vary.items()},
        instances=file.instances,
        counted_refusals=file.counted_refusals,
    )


def _unique(names: list[str], where: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{where}: two agents have the name {name!r}; names must be unique.")


def checked_name(name: str, where: str, forbidden: str) -> str:
    """The name, if it is one for a run or an agent. Raises UsageError."""
    wrong = sorted(set(name) - _NAME | set(name) & set(forbidden))
    if not name or wrong or name.startswith((".", "/", "-")):
        raise UsageError(
            f"{where}: {name!r} is not a valid name: use the letters a to z and A to Z, digits and . _ - +"
        )
    return name
