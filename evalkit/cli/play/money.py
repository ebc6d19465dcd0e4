"""`evalkit status --money`: where a run's money went."""

from collections import Counter
from pathlib import Path

import orjson

from evalkit.engine.spending.reconcile import last_budget, read_books
from evalkit.money import show_usd
from evalkit.store.reading.sums import read_totals
from evalkit.store.reading.unmetered import together


def print_money(run: Path, *, as_json: bool) -> None:
    """Print where a run's money went, as words or as JSON."""
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
        values = {"version": 1, "run": str(run), **pico, **by_reason, **counts}
        print(orjson.dumps(values, option=orjson.OPT_INDENT_2).decode())
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
        print("Crash charges are unconfirmed: `evalkit tools reconcile RUN --usage FILE` releases what was not spent.")
