"""Corrections of running totals that do not agree with the rows, for example after a repair."""

from dataclasses import fields

from evalkit.store.reading.accounts import Account
from evalkit.store.reading.totals import SUMMED, CellTotals, Totals

COUNTS = tuple(name for name in SUMMED if name not in ("ended_squares", "earlier", "earlier_s"))
"""Fields of cells that are whole numbers of rows, episodes and money."""


def difference(wanted: Totals, recorded: Totals) -> Totals:
    """What makes of `recorded`, added to it, the sums that are wanted; of spells and closing words those it lacks."""
    correction = Totals()
    for key in {**wanted.cells, **recorded.cells}:
        cell = CellTotals(agent=key[0], suite=key[1])
        wanted_cell, recorded_cell = wanted.cells.get(key, cell), recorded.cells.get(key, cell)
        made = CellTotals(agent=key[0], suite=key[1])
        for name in SUMMED:
            setattr(made, name, getattr(wanted_cell, name) - getattr(recorded_cell, name))
        words = {**wanted_cell.endings, **recorded_cell.endings}
        made.endings = {
            word: count
            for word in words
            if (count := wanted_cell.endings.get(word, 0) - recorded_cell.endings.get(word, 0))
        }
        for far_off, amounts in wanted_cell.going.items():
            made.stay(far_off, *amounts)
        for far_off, (count, steps, cost) in recorded_cell.going.items():
            made.stay(far_off, -count, -steps, -cost)
        made.earlier, made.earlier_s, made.spells = 0, 0.0, wanted_cell.spells
        correction.cells[key] = made
    for name in {**wanted.workers, **recorded.workers}:
        correction.workers[name] = wanted.workers.get(name, 0) - recorded.workers.get(name, 0)
    for name in {**wanted.accounts, **recorded.accounts}:
        none = Account(session=name)
        correction.accounts[name] = _less(wanted.accounts.get(name, none), recorded.accounts.get(name, none))
    return correction


def _less(account: Account, other: Account) -> Account:
    """What `_join` adds to the other to make it like the first."""
    remainder = Account(session=account.session)
    for field in fields(Account):
        value, subtracted = getattr(account, field.name), getattr(other, field.name)
        if isinstance(value, bool) or field.name in ("said", "width"):
            setattr(remainder, field.name, value)
        elif field.name != "session":
            setattr(remainder, field.name, value - subtracted)
    return remainder
