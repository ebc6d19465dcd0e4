"""`evalkit plan`: predict what a sweep costs and how long it takes, and what its budget pays for."""

import argparse
import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from evalkit.cli.choosing import again, only_of, program, sweep_of
from evalkit.engine.planning.planned import (
    ITSELF,
    RATE,
    STAND_IN,
    THIS_PROCESS,
    Answerable,
    CellPlan,
    LanePlan,
    Plan,
    QuestionPlan,
)
from evalkit.frozen.question_files import ABOUT
from evalkit.money import show_usd, simulated_words
from evalkit.playing.planning import planned
from evalkit.store.bucket import place_of
from evalkit.store.reading.totals import outlook_words
from evalkit.text import many, span

if TYPE_CHECKING:
    from rich.table import Table


def plan(args: argparse.Namespace) -> int:
    """Print the plan."""
    directory = place_of(args.dir) if args.dir else None
    found = planned(sweep_of(args), only=only_of(args.only), directory=directory, mark="--")
    if args.json:
        import orjson

        print(orjson.dumps(found.to_json(), option=orjson.OPT_INDENT_2).decode())
        return 0

    print_plan(found)
    spec = again(args) + (f" --dir {shlex.quote(args.dir)}" if args.dir else "")
    print(f"\n{next_step(found, program(), spec)}")
    return 0


# A plan as text and tables, for a terminal of at least 80 columns.

PICO_PER_CENT = 10**10
WIDE = 110
"""The least columns for showing each cell's range and basis."""
NAMED = 4
"""Names that are shown of a long list."""


def print_plan(plan: Plan) -> None:
    """Print a plan: cells, totals, lanes, warnings, notes."""
    from evalkit.report.render.terminal import console as console_of

    console = console_of()
    wide = console.width >= WIDE
    table = _grid(("suite", "agent"), ("episodes", "requests", "tok in", "tok out", "cost"), console.width)
    if wide:
        table.add_column("95 % range", justify="right", no_wrap=True)
    table.add_column("longest", justify="right", no_wrap=True)
    if wide:
        table.add_column("basis", overflow="fold")
    above = ""
    for cell in plan.cells:
        table.add_row(*_cell(cell, above, wide=wide))
        above = cell.suite
    console.print(table)
    console.print()
    for line in _summary(plan):
        console.print(line, markup=False)
    if plan.question is not None:
        console.print()
        for line in _question_words(plan.question):
            console.print(line, markup=False)
    for line in _notes(plan, wide=wide):
        console.print(line, markup=False, style="dim")


def _question_words(question: QuestionPlan) -> Iterator[str]:
    """What can be decided, for differences that are supposed."""
    what = "draws" if question.about == "this suite" else "instances"
    yield (
        f"What can be decided: {many(question.parts, 'question')} about {many(question.agents, 'agent')}, equal within "
        f"{question.margin:g} points, from at most {question.draws:,} {what}."
    )
    yield f"Answers are about {ABOUT[question.about]}."
    if question.least > question.draws:
        yield (
            f"Nothing can be decided with {question.draws:,} {what}: {question.least:,} are the least for any answer, "
            "however large a difference is."
        )
        return
    for answer in question.answers:
        points = f"{answer.points:g} point{'s' * (answer.points != 1)}"
        yield f"  {points} apart: {_answer_words(answer, question.draws, what)}"
    source = "as the run's pairs do so far" if question.seen else "which is supposed, as nothing has been played"
    yield (
        f"These are forecasts for one pair whose differences vary by {question.spread:.0f} points, {source}; dollars "
        "are those of all agents until then."
    )
    if question.agents > 1:
        yield (
            f"No agent begins more than {question.ahead:,} {what} beyond the slowest that it is still compared with, "
            "so at most so many of each are wasted when it is known."
        )
    if question.affordable is not None and question.affordable < question.draws:
        yield f"The budget pays for about {math.floor(question.affordable):,} {what} of all agents."


def _answer_words(answer: Answerable, draws: int, what: str) -> str:
    if answer.half > draws:
        most = "never" if math.isinf(answer.half) else f"half of all runs would need {answer.half:,.0f}"
        return f"cannot be decided with {draws:,} {what} ({most})."
    half = f"half of all runs know after {answer.half:,.0f} ({show_usd(round(answer.usd_half))})"
    if answer.nine_tenths > draws:
        return f"{half}, fewer than nine of ten with all {draws:,}."
    return f"{half}, nine of ten after {answer.nine_tenths:,.0f} ({show_usd(round(answer.usd_nine_tenths))})."


def _grid(names: Sequence[str], numbers: Sequence[str], width: int) -> "Table":
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 2 if width >= WIDE else 1, 0, 0))
    for column in names:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _cell(cell: CellPlan, above: str, *, wide: bool) -> Iterator[str]:
    free, nothing = cell.basis == THIS_PROCESS, not cell.episodes
    part = f" ({cell.played:,})" if _is_part(cell) else ""
    yield cell.suite if cell.suite != above else ""
    yield cell.agent
    yield f"{cell.episodes:,}{part}"
    if free or nothing:
        yield from ("-", "", "", "free" if free else "done")
    else:
        yield f"{cell.requests:,.0f}"
        yield _short(cell.tokens_in)
        yield _short(cell.tokens_out)
        yield show_usd(round(cell.cost))
    if wide:
        yield _range(cell.cost_low, cell.cost_high)
    yield "" if free or nothing else f"{cell.chain:,}"
    if wide:
        yield cell.basis.replace(STAND_IN, f"{STAND_IN} {cell.stand_in}")


def _is_part(cell: CellPlan) -> bool:
    """Whether the figures of a cell come from the play of a part of it."""
    return 0 < cell.played < cell.episodes + cell.ended and bool(cell.episodes)


def _range(low: float, high: float) -> str:
    shown = show_usd(round(low)), show_usd(round(high))
    return f"{shown[0]} to {shown[1]}" if shown[0] != shown[1] else ""


def _summary(plan: Plan) -> Iterator[str]:
    episodes, requests = (round(sum(getattr(cell, key) for cell in plan.cells)) for key in ("episodes", "requests"))
    tokens = [_short(sum(getattr(cell, key) for cell in plan.cells)) for key in ("tokens_in", "tokens_out")]
    ended = sum(cell.ended for cell in plan.cells)
    left = f" left to play ({ended:,} have ended, {show_usd(plan.spent)} spent)" if ended or plan.spent else ""
    yield f"{many(episodes, 'episode')}{left}, {many(requests, 'request')}, {tokens[0]} tokens in, {tokens[1]} out."
    yield f"Cost: {_cost_words(plan)}{simulated_words(plan.simulated)}."
    yield _budget_words(plan)
    guessed = sorted({cell.agent for cell in plan.cells if cell.basis == STAND_IN and cell.cost})
    if guessed:
        yield (
            f"No episode of {_listed(guessed)} has ended yet: expected cost and range are those of the policies that "
            "stand in, not of a model."
        )
    for lane in plan.lanes:
        if lane.requests:
            yield _lane_words(plan, lane)
    for name in dict.fromkeys(one.lane for one in plan.tiers):
        yield outlook_words([one for one in plan.tiers if one.lane == name], name)
    yield from plan.advice
    if plan.in_flight is not None and any("in flight" in lane.bound for lane in plan.lanes):
        yield (
            f"By worst-case cost, the budget allows {many(plan.in_flight, 'request')} in flight at first, "
            f"over all lanes ({show_usd(plan.dearest)} each)."
        )
    for cell in plan.cells:
        if cell.too_long is not None:
            over = cell.too_long
            yield (
                f"Warning: {cell.agent} on {cell.suite}: period {over.period}, turn {over.turn} needs "
                f"{_short(over.tokens)} tokens with `max_tokens`; the model accepts {_short(cell.context_tokens or 0)}."
            )
    yield from (f"{agent}: {mark}." for agent, marks in plan.marks.items() for mark in marks)


def _cost_words(plan: Plan) -> str:
    spread, cost = _range(plan.low, plan.high), show_usd(round(plan.cost))
    standard = f"; by the standard tier alone {show_usd(round(plan.standard))}" if plan.tiers else ""
    return f"{cost} ({spread}){standard}" if spread else f"{cost}{standard}"


def _lane_words(plan: Plan, lane: LanePlan) -> str:
    if lane.members:
        return (
            f"{lane.lane}: {len(lane.members)} lanes, at least {span(lane.seconds)}; "
            f"what limits them: {lane.bound}, which they share."
        )
    if lane.bound == RATE:
        return f"{lane.lane}: about {span(lane.seconds)} at {RATE}, {_pace(lane.requests / lane.seconds)}."
    assumed = " (assumed)" if lane.lane in plan.assumed else ""
    return (
        f"{lane.lane}: about {span(lane.seconds)} at {plan.reply_s[lane.lane] * 1000:,.0f} ms a reply{assumed}; "
        f"what limits it: {lane.bound}."
    )


def _pace(requests_per_s: float) -> str:
    return f"{requests_per_s:,.1f} requests/s" if requests_per_s >= 1 else f"{60 * requests_per_s:,.1f} requests/min"


def _notes(plan: Plan, *, wide: bool) -> Iterator[str]:
    if any(cell.basis == THIS_PROCESS for cell in plan.cells):
        yield "-: played in this process, without a request"
    if any(_is_part(cell) for cell in plan.cells):
        yield "episodes (n): n episodes were played; the estimate for the rest is based on them"
    yield "longest: requests of the longest episode, which follow one another"
    stand_ins: dict[str, dict[str, None]] = {}
    others: dict[str, dict[str, None]] = {}
    for cell in plan.cells:
        if cell.basis == STAND_IN and cell.stand_in != cell.agent:
            stand_ins.setdefault(cell.stand_in, {})[cell.agent] = None
        elif cell.basis not in (THIS_PROCESS, STAND_IN, ITSELF):
            others.setdefault(cell.basis, {})[f"{cell.agent} on {cell.suite}"] = None
    together: dict[str, list[str]] = {}
    for stand_in, agents in stand_ins.items():
        together.setdefault(_listed(agents), []).append(stand_in)
    for agents_words, names in together.items():
        policies = f"polic{'ies' if len(names) > 1 else 'y'} {', '.join(names)}"
        yield f"turns of {agents_words} are those of the {policies}; a model's may differ"
    if not wide:
        for basis, cells in others.items():
            yield f"{basis}: {_listed(cells)}"
    yield "four bytes are counted as a token"


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - NAMED:,} more" if len(listed) > NAMED else ""
    return ", ".join(listed[:NAMED]) + more


def _budget_words(plan: Plan) -> str:
    if plan.budget is None:
        own = _listed(f"{agent} {show_usd(budget)}" for agent, budget in plan.own_budgets.items())
        return f"The run has no budget, but agents have their own: {own}." if own else "No budget is set."
    budget = show_usd(plan.budget)
    if plan.spent + plan.cost > plan.budget:
        fits = sum(math.floor(plan.pays_for * cell.episodes) for cell in plan.cells)
        return (
            f"The budget of {budget} will not do: it pays for about {plan.pays_for:.0%}, {many(fits, 'episode')}, the "
            "first ones of every agent on every suite. Raise `budget_usd`, or narrow the sweep with --only."
        )
    if plan.needed > plan.budget:
        return (
            f"The budget of {budget} is what it costs, but the last episode will not start without room for doubt and "
            f"for a request's worst case ({show_usd(plan.dearest)}): {show_usd(round(plan.needed))} will do."
        )
    enough = plan.spent + plan.high <= plan.budget
    return f"The budget of {budget} is {'enough' if enough else 'probably enough'}."


def next_step(plan: Plan, command: str, spec: str) -> str:
    """What to do next, with a command; `spec`: the sweep as a word of it."""
    if not any(cell.episodes for cell in plan.cells):
        return f"Next: {command} report {shlex.quote(f'runs/{plan.name}')}"
    if not plan.fits:
        assert plan.budget is not None
        # Up to the next cent.
        enough = f"{math.ceil(plan.needed / PICO_PER_CENT) / 100:.2f}".rstrip("0").removesuffix(".")
        return f"Next: {command} run {spec} --budget {enough:<11}all of it"
    return f"Next: {command} run {spec}"


def _short(count: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.0f}"
