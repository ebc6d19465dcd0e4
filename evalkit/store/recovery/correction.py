"""What makes running totals right again that say something else than the rows do, as after a repair."""

from dataclasses import fields

from evalkit.store.reading.accounts import Account
from evalkit.store.reading.totals import SUMMED, CellTotals, Totals

COUNTS = tuple(name for name in SUMMED if name not in ("ended_squares", "earlier", "earlier_s"))
"""Fields of cells that are whole numbers of rows, episodes and money."""


def difference(wanted: Totals, said: Totals) -> Totals:
    """What makes of `said`, added to it, the sums that are wanted; of spells and closing words those it lacks."""
    found = Totals()
    for place in {**wanted.cells, **said.cells}:
        cell = CellTotals(agent=place[0], suite=place[1])
        mine, theirs = wanted.cells.get(place, cell), said.cells.get(place, cell)
        made = CellTotals(agent=place[0], suite=place[1])
        for name in SUMMED:
            setattr(made, name, getattr(mine, name) - getattr(theirs, name))
        words = {**mine.endings, **theirs.endings}
        made.endings = {
            word: count for word in words if (count := mine.endings.get(word, 0) - theirs.endings.get(word, 0))
        }
        for far_off, held in mine.going.items():
            made.stay(far_off, *held)
        for far_off, (count, steps, cost) in theirs.going.items():
            made.stay(far_off, -count, -steps, -cost)
        made.earlier, made.earlier_s, made.spells = 0, 0.0, mine.spells
        found.cells[place] = made
    for name in {**wanted.workers, **said.workers}:
        found.workers[name] = wanted.workers.get(name, 0) - said.workers.get(name, 0)
    for name in {**wanted.accounts, **said.accounts}:
        none = Account(session=name)
        found.accounts[name] = _less(wanted.accounts.get(name, none), said.accounts.get(name, none))
    return found


def _less(account: Account, other: Account) -> Account:
    """What `_join` adds to the other to make it like the first."""
    found = Account(session=account.session)
    for one in fields(Account):
        mine, theirs = getattr(account, one.name), getattr(other, one.name)
        if isinstance(mine, bool) or one.name in ("said", "width"):
            setattr(found, one.name, mine)
        elif one.name != "session":
            setattr(found, one.name, mine - theirs)
    return found
