"""`evalkit status`: a run's progress and cost; what was predicted, and what it takes to finish."""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from evalkit.cli.choosing import run_of
from evalkit.cli.question_words import question_lines, server_words
from evalkit.engine.forecast import Range
from evalkit.engine.status import CellStatus, Status, read_status
from evalkit.money import money_words, show_usd, simulated_words
from evalkit.report.tables import Column, Table, columns_of
from evalkit.store.reading.totals import outlook_words, tier_words, tiers_json
from evalkit.text import many, span, visible


def print_money(run: Path, *, as_json: bool) -> None:
    """Print where a run's money went, as words or as JSON."""
    from evalkit.engine.spending.reconcile import read_books
    from evalkit.store.events import budget_of, last_session
    from evalkit.store.reading.index import read_index

    books = read_books(run)
    accounts, limit = books.accounts.values(), budget_of(last_session(run)[0])
    reasons = Counter[str]()
    for row in books.ledger:
        if row.kind == "charge":
            reasons[row.reason] += row.amount
    leases = [row.amount for row in books.ledger if row.kind == "lease"]
    open_sessions = sum(not account.closed for account in accounts)
    index = read_index(run)
    unmetered = index.unmetered
    money = {
        "budget": limit,
        "spent": books.spent,
        "left": None if limit is None else max(0, limit - books.spent),
        "steps": books.by_session.total(),
        "charges": sum(account.charged for account in accounts),
        "crash_charges": sum(account.crashed for account in accounts),
        "unconfirmed": sum(account.crashed - account.confirmed for account in accounts),
        "released": sum(account.released for account in accounts),
        "leased": sum(leases),
        "largest_lease": max(leases, default=0),
        "in_open_leases": sum(account.open_leases for account in accounts),
    }
    if as_json:
        pico = {f"{name}_pico_usd": amount for name, amount in money.items()}
        pico |= unmetered.to_json()
        by_reason = {"charges_by_reason_pico_usd": dict(sorted(reasons.items())), "by_tier": tiers_json(index.tiers)}
        counts = {"leases": len(leases), "sessions": len(accounts), "open_sessions": open_sessions}
        values = {"version": 1, "run": str(run), **pico, **by_reason, **counts}
        print(orjson.dumps(values, option=orjson.OPT_INDENT_2).decode())
        return
    bound = "no budget" if limit is None else f"budget {show_usd(limit)}, {show_usd(money['left'] or 0)} left"
    rows = [
        ("replies", money["steps"], ""),
        *((f"charge: {why}", amount, "cost unknown, counted at its worst case") for why, amount in reasons.items()),
        ("crashes", money["crash_charges"], "may have been in flight when a session died"),
        ("released", -(money["released"] or 0), "shown unspent by the provider's usage"),
        ("spent", money["spent"], bound + simulated_words(books.manifest.simulated)),
    ]
    room = max(len(name) for name, _, _ in rows)
    for name, amount, words in rows:
        sign = "-" if (amount or 0) < 0 else ""
        print(f"{name:<{room}}  {sign + show_usd(abs(amount or 0)):>12}  {words}".rstrip())
    largest = show_usd(money["largest_lease"] or 0)
    print(f"{many(len(accounts), 'session')}; {many(len(leases), 'lease')}, the largest {largest}.")
    if open_sessions:
        print(
            f"{many(open_sessions, 'session is', 'sessions are')} open (running, or crashed and not settled). "
            f"A crash costs their open leases: {show_usd(money['in_open_leases'] or 0)}."
        )
    for words in filter(None, (tier_words(index.tiers), unmetered.advice())):
        print(words)
    if money["unconfirmed"]:
        print("Crash charges are unconfirmed: `evalkit tools reconcile RUN --spent USD` releases what was not spent.")


MOST_OPEN = 20
"""Open parts of a question that are shown."""
WIDE = 110
"""The least columns for showing each cell's range and time."""


def status(args: argparse.Namespace) -> int:
    """Print the status, or where the money went."""
    if args.money:
        print_money(run_of(args.run), as_json=args.json)
        return 0
    status = read_status(run_of(args.run))
    if args.json:
        print(orjson.dumps(status.to_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        _print(status)
    return 0


def _print(status: Status) -> None:
    from evalkit.report.render.terminal import console as console_of
    from evalkit.report.render.terminal import print_bare

    console = console_of()
    print_bare(_progress(status.cells), console)
    paid = [cell for cell in status.cells if cell.predicted is not None]
    if paid:
        console.print()
        print_bare(_predictions(paid, wide=console.width >= WIDE), console)
    console.print()
    for line in _words(status):
        console.print(line, highlight=False, markup=False)


WHERE = (Column(key="suite", title="Suite", group=True), Column(key="agent", title="Agent"))


def _progress(cells: Sequence[CellStatus]) -> Table:
    """How far each agent is on each suite."""
    refused = {"refused": "Refused"} if any(cell.refused for cell in cells) else {}
    return Table(
        name="status",
        title="",
        columns=(
            *WHERE,
            *columns_of("count", planned="Planned", ended="Ended", begun="Begun", **refused, steps="Steps"),
            Column(key="spent", title="Spent", kind="usd"),
            Column(key="endings", title="Endings", kind="counts"),
        ),
        rows=tuple(
            {
                "suite": cell.suite,
                "agent": cell.agent,
                "planned": cell.planned,
                "ended": cell.ended,
                "begun": cell.started,
                "refused": cell.refused,
                "steps": cell.steps,
                "spent": cell.cost,
                "endings": {**cell.endings, **cell.deferred},
            }
            for cell in cells
        ),
        packs=(),
    )


def _predictions(cells: Sequence[CellStatus], *, wide: bool) -> Table:
    """An average episode as predicted and as observed, and what the remaining episodes need."""
    return Table(
        name="predictions",
        title="",
        columns=(
            *WHERE,
            *columns_of("usd", predicted="Predicted", seen="Seen"),
            *columns_of("percent", requests="Requests", requests_seen="Seen"),
            Column(key="left", title="Left", kind="count"),
            Column(key="to_finish", title="To finish", kind="usd"),
            *(columns_of(range="95 % range", time="Time") if wide else ()),
        ),
        rows=tuple(map(_prediction, cells)),
        packs=(),
    )


def _prediction(cell: CellStatus) -> dict[str, Any]:
    assert cell.predicted is not None
    known = cell.remaining and cell.seconds_left is not None
    return {
        "suite": cell.suite,
        "agent": cell.agent,
        "predicted": round(cell.predicted.cost),
        "seen": None if cell.seen is None else round(cell.seen.cost),
        "requests": cell.predicted.requests,
        "requests_seen": None if cell.seen is None else cell.seen.requests,
        "left": cell.remaining or None,
        "to_finish": round(cell.to_finish.expected) if cell.remaining else None,
        "range": _range(cell.to_finish) if cell.remaining else None,
        "time": span(cell.seconds_left or 0.0) if known else None,
    }


def _range(amount: Range) -> str:
    return f"{show_usd(round(amount.low))} to {show_usd(round(amount.high))}"


def _words(status: Status) -> list[str]:
    planned, ended = sum(cell.planned for cell in status.cells), sum(cell.ended for cell in status.cells)
    answered = status.question is not None and bool(status.question.get("decided"))
    if status.written_by is not None:
        state = f"being written by process {status.written_by.pid} on {status.written_by.host}"
        if status.workers:
            state += f" (workers: {status.workers})"
    else:
        state = "complete" if ended == planned else "every question answered" if answered else "not running"
    spent = money_words(status.spent, status.budget, status.simulated)
    money = [f"{spent}: {show_usd(status.steps_cost)} for replies"]
    if status.charges:
        money.append(f"{show_usd(status.charges)} charged for attempts whose cost nobody knows")
    if status.crash_charges:
        money.append(f"{show_usd(status.crash_charges)} for what crashes may have left in flight (unconfirmed)")
    lines = [f"{status.name}: {ended:,} of {many(planned, 'episode')} ended, {state}."]
    if status.written_by is None and ended < planned:
        lines += map(visible, status.why.splitlines())
    lines += [*status.deferred_words, ", ".join(money) + "."]
    if status.open_leases:
        when = "A crash now would cost" if status.written_by is not None else "A session has crashed; that costs"
        lines.append(f"{when} {show_usd(status.open_leases)}, its open leases, until `tools reconcile` releases them.")
    lines += [*_left_words(status), *refused_lines(status)]
    lines += [tier_words(status.tiers), status.unmetered.advice()]
    if ended < planned:
        lines.append(_finish(status) + (" Only `--play-all` plays on." if answered else ""))
        lines.append(outlook_words(status.by_tier))
    lines += [visible(f"Servers of {lane}: {server_words(servers)}.") for lane, servers in status.servers.items()]
    lines = list(dict.fromkeys(filter(None, lines)))
    return [*lines, *question_lines(status.question, MOST_OPEN), *status.kept]


def _left_words(status: Status) -> Iterator[str]:
    """What is left of the budget, beside what is still to be spent."""
    if status.budget is None:
        return
    left, wanted = status.budget - status.spent, round(status.to_finish.expected)
    if left < 0:
        yield f"That is {show_usd(-left)} more than the budget: nothing is sent until it is raised."
    elif wanted:
        enough = "" if wanted <= left else ", less than finishing is predicted to cost"
        yield f"{show_usd(left)} of the budget remain{enough}."


def refused_lines(status: Status) -> list[str]:
    """By agent, how many of its episodes remain because the provider refused their last request, and its words."""
    counts: Counter[str] = Counter()
    for cell in status.cells:
        counts[cell.agent] += cell.refused
    return [
        f"{agent}: {many(count, 'episode was', 'episodes were')} refused by the provider and not scored; the "
        f"same command plays {'them' if count > 1 else 'it'} again. It said: {visible(status.refused_words[agent])}"
        for agent, count in counts.items()
        if count and agent in status.refused_words
    ]


def _finish(status: Status) -> str:
    words = f"To finish: {show_usd(round(status.to_finish.expected))}"
    if status.to_finish.expected:
        words += f" ({_range(status.to_finish)})"
    if status.seconds_left is not None:
        slowest = max(status.lane_seconds, key=lambda lane: status.lane_seconds[lane])
        words += f", about {span(status.seconds_left)} at the rate so far"
        words += f" ({slowest} takes longest)" if len(status.lane_seconds) > 1 else ""
    return words + "."
