"""`evalkit budget` shows where a run's money went; `budget reconcile` releases what the provider did not bill."""

import argparse
import asyncio
import math
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evalkit.api.specs import run_directory
from evalkit.errors import UsageError
from evalkit.money import parse_usd, show_usd


def budget(args: argparse.Namespace) -> int:
    """Print a run's money, or reconcile it."""
    if args.words[0] == "reconcile" and len(args.words) == 2:
        return _reconcile(args, run_directory(args.words[1]))
    if len(args.words) != 1:
        raise UsageError("budget: write `evalkit budget RUN`, or `evalkit budget reconcile RUN --usage FILE`.")
    for option in ("usage", "lane", "spent", "since", "until"):
        if getattr(args, option) is not None:
            raise UsageError(f"budget: --{option} is an option of `evalkit budget reconcile RUN`.")
    _show(run_directory(args.words[0]), as_json=args.json)
    return 0


def _reconcile(args: argparse.Namespace, run: Path) -> int:
    from evalkit.engine.spending.reconcile import reconcile_total, reconcile_usage
    from evalkit.engine.spending.usage import read_usage

    if (args.usage is None) == (args.lane is None) or (args.lane is None) != (args.spent is None):
        raise UsageError("budget reconcile: give either --usage FILE, or --lane PROVIDER/MODEL and --spent USD.")
    if args.lane is None:
        if args.since or args.until:
            raise UsageError("budget reconcile: --since and --until need --lane.")
        outcome = asyncio.run(reconcile_usage(run, read_usage(Path(args.usage))))
    else:
        since, until = _moment(args.since, "--since", -math.inf), _moment(args.until, "--until", math.inf)
        try:
            truth = parse_usd(args.spent)
        except ValueError as flaw:
            raise UsageError(f"--spent: {flaw}.") from flaw
        outcome = asyncio.run(reconcile_total(run, args.lane, truth, since=since, until=until))
    if args.json:
        _print_json(
            {
                "version": 1,
                "run": str(run),
                "before_pico_usd": outcome.before,
                "after_pico_usd": outcome.after,
                "released_pico_usd": outcome.released,
                "releases": outcome.rows,
                "billed_pico_usd": outcome.billed,
                "flaws": list(outcome.flaws),
                "foreign": outcome.foreign,
            }
        )
        return 0
    print(
        f"{show_usd(outcome.released)} released in {outcome.rows:,} rows: {show_usd(outcome.before)} spent before, "
        f"{show_usd(outcome.after)} now. The usage sums to {show_usd(outcome.billed)}."
    )
    for line in outcome.flaws:
        print(line)
    if outcome.foreign:
        print(f"{outcome.foreign:,} requests of the usage do not belong to this run, and were ignored.")
    return 0


def _moment(text: str | None, option: str, default: float) -> float:
    if text is None:
        return default
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as flaw:
        raise UsageError(f"{option}: {text!r} is not a date or time; write 2026-11-21 or 2026-11-21T18:00Z.") from flaw
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _show(run: Path, *, as_json: bool) -> None:
    from evalkit.engine.spending.reconcile import last_budget, read_books
    from evalkit.store.reading.sums import read_totals
    from evalkit.store.reading.unmetered import together

    books = read_books(run)
    accounts, limit = books.accounts.values(), last_budget(run)
    reasons = Counter[str]()
    for row in books.ledger:
        if row.kind == "charge":
            reasons[row.reason] += row.amount
    leases = [row.amount for row in books.ledger if row.kind == "lease"]
    open_sessions = sum(not account.closed for account in accounts)
    unmetered = together(read_totals(run).unmetered(), books.manifest)
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
        "in_open_leases": sum(account.unspent for account in accounts if not account.closed),
    }
    if as_json:
        pico = {f"{name}_pico_usd": amount for name, amount in money.items()}
        pico |= unmetered.to_json()
        by_reason = {"charges_by_reason_pico_usd": dict(sorted(reasons.items()))}
        counts = {"leases": len(leases), "sessions": len(accounts), "open_sessions": open_sessions}
        _print_json({"version": 1, "run": str(run), **pico, **by_reason, **counts})
        return
    bound = "no budget" if limit is None else f"budget {show_usd(limit)}, {show_usd(money['left'] or 0)} left"
    rows = [
        ("replies", money["steps"], ""),
        *((f"charge: {why}", amount, "cost unknown, counted at its worst case") for why, amount in reasons.items()),
        ("crashes", money["crash_charges"], "may have been in flight when a session died"),
        ("released", -(money["released"] or 0), "shown unspent by the provider's usage"),
        ("spent", money["spent"], bound),
    ]
    room = max(len(name) for name, _, _ in rows)
    for name, amount, words in rows:
        sign = "-" if (amount or 0) < 0 else ""
        print(f"{name:<{room}}  {sign + show_usd(abs(amount or 0)):>12}  {words}".rstrip())
    print(f"Sessions: {len(accounts):,}. Leases: {len(leases):,}, the largest {show_usd(money['largest_lease'] or 0)}.")
    if open_sessions:
        print(
            f"{open_sessions} sessions are open (running, or crashed and not settled) and hold "
            f"{show_usd(money['in_open_leases'] or 0)} in leases."
        )
    if unmetered.words():
        print(unmetered.advice())
    if money["unconfirmed"]:
        print("Crash charges are unconfirmed: `evalkit budget reconcile RUN --usage FILE` releases what was not spent.")


def _print_json(value: dict[str, Any]) -> None:
    import orjson

    print(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
