"""The tables about what was done and what it took: completeness, money, speed.

They count everything the log and the ledger hold, also of episodes that no score stands on: it was paid for.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from evalkit.money import show_usd
from evalkit.report import queries
from evalkit.report.scores import AGENT, packs_of, place, where
from evalkit.report.tables import Column, Table
from evalkit.results.cells import Cell
from evalkit.results.voided import reasons
from evalkit.store.files.record import ANSWERED, LedgerRecord
from evalkit.store.manifest import Manifest
from evalkit.store.reading.unmetered import UnmeteredRows, together

if TYPE_CHECKING:
    import pyarrow as pa

EVERYBODY = "all"
NOBODY = "(unassigned)"
"""Money of the ledger that names no agent."""


def completeness_table(cells: Sequence[Cell]) -> Table:
    """Suite by agent: what is planned, how it ended, what is owed, and what the estimates stand on."""
    struck = any(cell.voided for cell in cells)
    return Table(
        name="completeness",
        title="Completeness",
        columns=(
            *where(cells),
            AGENT,
            Column(key="planned", title="Planned", kind="count", unit="episodes"),
            Column(key="ended", title="Ended", kind="count", unit="episodes"),
            Column(key="owed", title="Owed", kind="count", unit="episodes"),
            Column(key="begun", title="Begun", kind="count", unit="episodes"),
            Column(key="prefix", title="Used", kind="count", unit="episodes"),
            Column(key="outside", title="Left out", kind="count", unit="episodes"),
            Column(key="endings", title="Endings", kind="counts", unit="episodes"),
            *([Column(key="void", title="Void", kind="counts", unit="episodes")] if struck else []),
        ),
        rows=tuple(_completeness_row(cell, struck) for cell in cells),
        packs=packs_of(cells),
        notes=(
            "ended: by the agent or its environment, and scored; owed: not played yet, or stopped by the world",
            "begun: owed, with steps in the log; used: all up to the first that has not ended; scores use these",
            "left out: ended behind that one; what ends early is often good, so no estimate uses them",
            *(["void: declared so, with the reason; in no other column and no score, but paid for"] if struck else []),
        ),
        query=_completeness_query(cells, struck),
    )


def _completeness_query(cells: Sequence[Cell], struck: bool) -> str:
    keys = ", ".join(queries.place(cells))
    lines = (
        f"select {keys}, planned, ended, planned - ended as owed, begun, prefix, ended - prefix as outside, endings"
        + (", void" if struck else ""),
        "from (",
        "    select c.base, c.axes, c.agent, planned - count(*) filter (where e.void) as planned,",
        "        count(*) filter (where finished) as ended,",
        "        count(*) filter (where not finished and not e.void) as begun, count(*) filter (where used) as prefix,",
        "        histogram(ending) filter (where finished) as endings"
        + (", histogram(void_reason) filter (where e.void) as void" if struck else ""),
        "    from cells c left join episodes e using (suite, agent)",
        "    group by c.suite, c.base, c.axes, c.agent, c.planned",
        ") order by all",
    )
    return "\n".join(lines)


def _completeness_row(cell: Cell, struck: bool) -> dict[str, Any]:
    endings = Counter(episode.ending for episode in cell.episodes if episode.finished)
    return {
        **place(cell),
        "planned": cell.planned,
        "ended": cell.ended,
        "owed": cell.owed,
        "begun": sum(not episode.finished for episode in cell.episodes),
        "prefix": len(cell.prefix),
        "outside": cell.outside,
        "endings": dict(sorted(endings.items(), key=lambda item: (-item[1], item[0]))),
        **({"void": reasons(cell)} if struck else {}),
    }


@dataclass(slots=True)
class _Charges:
    known: Counter[str] = field(default_factory=Counter)
    crash: Counter[str] = field(default_factory=Counter)


def money_table(
    manifest: Manifest,
    cells: Sequence[Cell],
    steps: "pa.Table",
    ledger: Iterable[LedgerRecord],
    paid: Mapping[str, int],
    unmetered: Mapping[str, UnmeteredRows],
) -> Table:
    """By agent: requests, tokens, cost of replies, and charges for attempts that nobody saw the end of; where replies
    came without usage, how many and at what cost.

    `paid`: by agent, the cost of all replies, of those too that a later take supersedes; in pico-dollars. `unmetered`:
    of the same replies, those without usage.
    """
    charges = _charges(ledger, manifest)
    agents = [*manifest.agents, *([NOBODY] if charges.known[NOBODY] or charges.crash[NOBODY] else [])]
    sums = _sums(steps)
    ended = _cost_of_ended(cells)
    replayed = sum(max(0, cost - sums.get(agent, {}).get("cost", 0)) for agent, cost in paid.items())
    for agent, totals in sums.items():
        # Of a run that is being written, the rows may have been read after the sums.
        totals["cost"] = max(totals["cost"], paid.get(agent, 0))
    rows = [_money_row(agent, sums.get(agent, {}), ended.get(agent), charges) for agent in agents]
    if unmetered:
        rows = [{**row, **_unmetered(unmetered.get(row["agent"]))} for row in rows]
    if len(rows) > 1:
        rows.append(_all_row(rows, ended))
    unpriced = [agent.name for agent in manifest.agents.values() if agent.price is None]
    return Table(
        name="money",
        title="Money",
        columns=(
            AGENT,
            Column(key="requests", title="Requests", kind="count", unit="answered requests"),
            Column(key="tokens_in", title="Tokens in", kind="tokens", unit="tokens"),
            Column(key="tokens_cached_read", title="Cached", kind="tokens", unit="tokens"),
            Column(key="tokens_out", title="Tokens out", kind="tokens", unit="tokens"),
            Column(key="cost_pico_usd", title="Cost", kind="usd", unit="1e-12 USD"),
            Column(key="cost_per_episode_pico_usd", title="Per episode", kind="usd", unit="1e-12 USD"),
            Column(key="charged_pico_usd", title="Charged", kind="usd", unit="1e-12 USD"),
            Column(key="unconfirmed_pico_usd", title="Unconfirmed", kind="usd", unit="1e-12 USD"),
            *(_UNMETERED_COLUMNS if unmetered else ()),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        notes=(
            "cost: replies, at the prices frozen when the agent joined; per episode: mean of those that ended",
            "charged: attempts of unknown cost, at their worst; unconfirmed: what crashes may have left unpaid",
            *(_unmetered_notes(unmetered, manifest)),
            *([f"cost includes {show_usd(replayed)} for replies of episodes played again"] if replayed else []),
            *([f"no price known, counted as free: {', '.join(unpriced)}"] if unpriced else []),
        ),
        query=_MONEY_UNMETERED if unmetered else _MONEY,
    )


_UNMETERED_COLUMNS = (
    Column(key="unmetered", title="No usage", kind="count", unit="replies"),
    Column(key="unmetered_pico_usd", title="At worst", kind="usd", unit="1e-12 USD"),
)


def _unmetered(rows: UnmeteredRows | None) -> dict[str, int]:
    return {
        "unmetered": 0 if rows is None else rows.replies,
        "unmetered_pico_usd": 0 if rows is None else rows.cost,
    }


def _unmetered_notes(unmetered: Mapping[str, UnmeteredRows], manifest: Manifest) -> Iterator[str]:
    words = together(unmetered, manifest).words()
    if words:
        yield f"{words}; in the cost, in no usage: replies whose provider did not say what they used"
    for agent, rows in unmetered.items():
        if rows.estimated:
            yield (
                f"tokens of {agent}: {rows.tokens_in:,} in and {rows.tokens_out:,} out are estimated from the text "
                f"of {rows.estimated:,} replies"
            )


_MONEY = """with everybody as (select name as agent from agents union all select '(unassigned)'),
replies as (
    select agent, count(*) filter (where regexp_matches(attempts, '(^|,)(ok|unmetered|estimated)$')) as requests,
        sum(tokens_in) as tokens_in,
        sum(tokens_cached_read) as tokens_cached_read, sum(tokens_out) as tokens_out
    from steps group by agent
),
paid as (select agent, sum(cost) as cost from log group by agent),
ended as (select agent, sum(cost) as cost, count(*) as n from episodes where finished group by agent),
moved as (
    select if(agent in (select name from agents), agent, '(unassigned)') as agent,
        sum(case kind when 'charge' then amount when 'release' then -amount else 0 end) as charged,
        sum(if(kind = 'crash', amount, 0)) as unconfirmed
    from ledger group by 1
)
select if(grouping(everybody.agent) = 1, 'all', everybody.agent) as agent,
    coalesce(sum(requests), 0) as requests, coalesce(sum(tokens_in), 0) as tokens_in,
    coalesce(sum(tokens_cached_read), 0) as tokens_cached_read, coalesce(sum(tokens_out), 0) as tokens_out,
    coalesce(sum(paid.cost), 0) as cost_pico_usd,
    round(sum(ended.cost) / sum(ended.n)) as cost_per_episode_pico_usd,
    coalesce(sum(charged), 0) as charged_pico_usd, coalesce(sum(unconfirmed), 0) as unconfirmed_pico_usd
from everybody left join replies using (agent) left join paid using (agent) left join ended using (agent)
    left join moved using (agent)
group by rollup (everybody.agent)"""

_MONEY_UNMETERED = _MONEY.replace(
    "ended as (",
    """unsaid as (
    select agent, count(*) as n, sum(cost) as cost from log
    where regexp_matches(attempts, '(^|,)(unmetered|estimated)$') group by agent
),
ended as (""",
).replace(
    """ as unconfirmed_pico_usd
from everybody""",
    """ as unconfirmed_pico_usd,
    coalesce(sum(unsaid.n), 0) as unmetered, coalesce(sum(unsaid.cost), 0) as unmetered_pico_usd
from everybody left join unsaid using (agent)""",
)


def _charges(ledger: Iterable[LedgerRecord], manifest: Manifest) -> _Charges:
    charges = _Charges()
    for record in ledger:
        agent = record.agent if record.agent in manifest.agents else NOBODY
        if record.kind == "charge":
            charges.known[agent] += record.amount
        elif record.kind == "release":
            charges.known[agent] -= record.amount
        elif record.kind == "crash":
            charges.crash[agent] += record.amount
    return charges


_SUMMED = ("tokens_in", "tokens_cached_read", "tokens_out", "cost")


def _sums(steps: "pa.Table") -> dict[str, dict[str, int]]:
    from pyarrow import compute

    answered = _answered(steps)
    table = steps.select(["agent", *_SUMMED]).append_column("requests", compute.cast(answered, "int64"))
    grouped = table.group_by("agent").aggregate([(name, "sum") for name in (*_SUMMED, "requests")])
    return {row["agent"]: {name: row[f"{name}_sum"] for name in (*_SUMMED, "requests")} for row in grouped.to_pylist()}


def _cost_of_ended(cells: Sequence[Cell]) -> dict[str, tuple[int, int]]:
    """By agent: pico-dollars and number of its ended episodes."""
    sums: dict[str, tuple[int, int]] = {}
    for cell in cells:
        cost, count = sums.get(cell.agent, (0, 0))
        cost += sum(episode.cost for episode in cell.episodes if episode.finished)
        sums[cell.agent] = cost, count + cell.ended
    return sums


def _money_row(agent: str, sums: Mapping[str, int], ended: tuple[int, int] | None, charges: _Charges) -> dict[str, Any]:
    return {
        "agent": agent,
        "requests": sums.get("requests", 0),
        "tokens_in": sums.get("tokens_in", 0),
        "tokens_cached_read": sums.get("tokens_cached_read", 0),
        "tokens_out": sums.get("tokens_out", 0),
        "cost_pico_usd": sums.get("cost", 0),
        "cost_per_episode_pico_usd": _mean(ended),
        "charged_pico_usd": charges.known[agent],
        "unconfirmed_pico_usd": charges.crash[agent],
    }


def _all_row(rows: Sequence[Mapping[str, Any]], ended: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    total = {key: sum(row[key] or 0 for row in rows) for key in rows[0] if key != "agent"}
    mean = _mean((sum(cost for cost, _ in ended.values()), sum(count for _, count in ended.values())))
    return {"agent": EVERYBODY, **total, "cost_per_episode_pico_usd": mean}


def _mean(ended: tuple[int, int] | None) -> int | None:
    return None if ended is None or not ended[1] else round(ended[0] / ended[1])


def speed_table(manifest: Manifest, cells: Sequence[Cell], steps: "pa.Table") -> Table:
    """By agent: how long replies took and waited, and the attempts that brought none."""
    from pyarrow import compute

    rows = []
    for agent in manifest.agents:
        own_steps = steps.filter(compute.equal(steps.column("agent"), agent))
        answered = own_steps.filter(_answered(own_steps))
        latency, queue = answered.column("latency_s").to_numpy(), answered.column("queue_s").to_numpy()
        failures = _failures(own_steps)
        rows.append(
            {
                "agent": agent,
                "requests": answered.num_rows,
                "latency_median_s": _quantile(latency, 0.5),
                "latency_p99_s": _quantile(latency, 0.99),
                "queue_median_s": _quantile(queue, 0.5),
                "queue_p99_s": _quantile(queue, 0.99),
                "failed": sum(failures.values()),
                "failures": failures,
            }
        )
    return Table(
        name="speed",
        title="Speed",
        columns=(
            AGENT,
            Column(key="requests", title="Requests", kind="count", unit="answered requests"),
            Column(key="latency_median_s", title="Latency", kind="seconds", unit="s"),
            Column(key="latency_p99_s", title="p99", kind="seconds", unit="s"),
            Column(key="queue_median_s", title="Queue", kind="seconds", unit="s"),
            Column(key="queue_p99_s", title="p99", kind="seconds", unit="s"),
            Column(key="failed", title="Failed", kind="count", unit="attempts"),
            Column(key="failures", title="By kind", kind="counts", unit="attempts"),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        notes=(
            "latency: median and 99th percentile of attempts that succeeded; queue: waiting for the limits",
            "failed: attempts a step made in vain; those of steps that never came are in events.jsonl",
        ),
        query=_SPEED,
    )


_SPEED = """with vain as (
    select agent, sum(n) as failed, map_from_entries(list((word, n) order by n desc, word)) as failures
    from (
        select agent, word, count(*) as n
        from (select agent, unnest(string_split(attempts, ',')) as word from steps)
        where word not in ('ok', 'unmetered', 'estimated')
        group by all
    ) group by agent
),
answered as (
    select agent, count(*) as requests,
        quantile_cont(latency_s, 0.5) as latency_median_s, quantile_cont(latency_s, 0.99) as latency_p99_s,
        quantile_cont(queue_s, 0.5) as queue_median_s, quantile_cont(queue_s, 0.99) as queue_p99_s
    from steps where regexp_matches(attempts, '(^|,)(ok|unmetered|estimated)$') group by agent
)
select name as agent, coalesce(requests, 0) as requests, latency_median_s, latency_p99_s, queue_median_s, queue_p99_s,
    coalesce(failed, 0) as failed, failures
from agents left join answered on answered.agent = name left join vain on vain.agent = name order by name"""


def _answered(steps: "pa.Table") -> Any:
    from pyarrow import compute

    return compute.match_substring_regex(steps.column("attempts"), f"(^|,)({'|'.join(ANSWERED)})$")


def _failures(steps: "pa.Table") -> dict[str, int]:
    """Failed attempts by kind, most frequent first."""
    counts: Counter[str] = Counter()
    for pair in steps.column("attempts").value_counts().to_pylist():
        for word in pair["values"].split(","):
            if word not in ANSWERED:
                counts[word] += pair["counts"]
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _quantile(values: Any, q: float) -> float | None:
    return float(np.quantile(values, q)) if len(values) else None
