"""`evalkit plan`: what a sweep will cost and how long it will take."""

import argparse
import asyncio
import shlex
from collections.abc import Iterator, Mapping

from evalkit.cli.choosing import choice_of, program, sweep_of
from evalkit.money import show_usd
from evalkit.run.freeze import Resolved, resolve
from evalkit.run.plan import ASSUMED_REPLY_S, Plan, plan_sweep

SECONDS = 8.0
"""CPU time to spend on playing; a small sweep is played whole long before."""


def plan(args: argparse.Namespace) -> int:
    """Print the plan."""
    resolved = resolve(sweep_of(args))
    made = asyncio.run(
        plan_sweep(resolved, choice_of(args.only, resolved), seconds=SECONDS, reply_s=simulated_reply_s(resolved))
    )
    if args.json:
        import orjson

        print(orjson.dumps(made.to_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        _print(made)
        print(f"\nNext: {program()} run {shlex.quote(args.sweep)}")
    return 0


def simulated_reply_s(resolved: Resolved) -> Mapping[str, float]:
    """Seconds a reply of a provider that evalkit simulates takes on average, by lane."""
    known = {}
    for name, endpoint in resolved.endpoints.items():
        if endpoint.provider.simulate is not None:
            from evalkit.serve.options import options_from

            options = options_from(endpoint.provider.simulate, endpoint.provider.name)
            known[resolved.manifest.agents[name].lane] = options.latency.mean_s
    return known


def _print(plan: Plan) -> None:
    from rich.table import Table

    from evalkit.report.terminal import console as console_of

    console = console_of()
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    for column in ("suite", "agent"):
        table.add_column(column, overflow="fold")
    for column in ("episodes", "requests", "tok in", "tok out", "cost", "longest"):
        table.add_column(column, justify="right", no_wrap=True)
    above = ""
    for cell in plan.cells:
        free = not cell.requests
        part = "" if cell.played == cell.episodes else f" ({cell.played:,})"
        table.add_row(
            cell.suite if cell.suite != above else "",
            cell.agent,
            f"{cell.episodes:,}{part}",
            "-" if free else f"{cell.requests:,.0f}",
            "" if free else _short(cell.tokens_in),
            "" if free else _short(cell.tokens_out),
            "free" if free else show_usd(round(cell.cost)),
            "" if free else f"{cell.chain:,}",
        )
        above = cell.suite
    console.print(table)
    console.print()
    for line in _summary(plan):
        console.print(line, markup=False)
    for line in _notes(plan):
        console.print(line, markup=False, style="dim")


def _summary(plan: Plan) -> list[str]:
    totals = [round(sum(getattr(cell, key) for cell in plan.cells)) for key in ("episodes", "requests")]
    tokens = [_short(sum(getattr(cell, key) for cell in plan.cells)) for key in ("tokens_in", "tokens_out")]
    low, high = (round(sum(getattr(cell, f"cost_{end}") for cell in plan.cells)) for end in ("low", "high"))
    spread = f" ({show_usd(low)} to {show_usd(high)})" if show_usd(low) != show_usd(high) else ""
    lines = [
        f"{totals[0]:,} episodes, {totals[1]:,} requests, {tokens[0]} tokens in, {tokens[1]} out.",
        f"Cost: {show_usd(round(plan.cost))}{spread}.{_budget_words(plan, high)}",
    ]
    for lane in plan.lanes:
        if lane.requests:
            reply_s = plan.reply_s[lane.lane]
            assumed = " (assumed)" if reply_s == ASSUMED_REPLY_S else ""
            lines.append(
                f"{lane.lane}: about {_span(lane.seconds)} at {reply_s * 1000:,.0f} ms a reply{assumed}; "
                f"what limits it: {lane.bound}."
            )
    lines += [f"{agent}: {mark}." for agent, marks in plan.marks.items() for mark in marks]
    return lines


def _notes(plan: Plan) -> Iterator[str]:
    if any(not cell.requests for cell in plan.cells):
        yield "-: played in this process, without a request"
    if any(cell.played < cell.episodes for cell in plan.cells):
        yield "episodes (n): only n of them were played, the rest is estimated from these"
    yield "longest: requests of the longest episode, which follow one another"
    stand_ins: dict[str, dict[str, None]] = {}
    for cell in plan.cells:
        if cell.stand_in != cell.agent:
            stand_ins.setdefault(cell.stand_in, {})[cell.agent] = None
    for stand_in, agents in stand_ins.items():
        yield f"turns of {', '.join(agents)} are those of the policy {stand_in}; a model's may differ (`stand_in`)"
    yield "four bytes are counted as a token"


def _budget_words(plan: Plan, high: int) -> str:
    if plan.budget is None:
        return " No budget is set."
    budget = show_usd(plan.budget)
    if plan.cost > plan.budget:
        return f" The budget of {budget} will not do: raise `budget_usd`, or narrow the sweep with --only."
    if plan.needed > plan.budget:
        dearest = show_usd(round(plan.needed - plan.cost))
        return (
            f" The budget of {budget} will not do: a request may cost up to {dearest}, and the last one must fit too."
        )
    return f" The budget of {budget} is {'enough' if high <= plan.budget else 'probably enough'}."


def _short(count: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.0f}"


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
