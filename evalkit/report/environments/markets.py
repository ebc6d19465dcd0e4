"""What the environments that are played in periods share: the tables and figures of their paper, and kinds of error."""

from collections.abc import Callable

from evalkit.report.extras.record import ErrorKind, Find
from evalkit.report.figures.econ import ladder_figures
from evalkit.results.moves import Move

TABLE_FIGURES = (("econ_scores", ladder_figures),)


def errors(environment: str) -> tuple[ErrorKind, ...]:
    """The kinds of error that playing in periods brings."""
    kinds: tuple[tuple[str, str, str, Callable[[Move], bool]], ...] = (
        ("reply without a call", "replies", "without_call", _silent),
        ("period without an action", "periods", "no_action", _idle),
        (
            "unresponsive",
            "episodes",
            "ending = 'unresponsive'",
            lambda move: bool(move.ending),
        ),
    )
    return tuple(
        ErrorKind(name=name, environment=environment, unit=unit, sql=sql, find=_first(holds))
        for name, unit, sql, holds in kinds
    )


def _first(holds: Callable[[Move], bool]) -> Find:
    return lambda _, played: next(((i, None) for i, move in enumerate(played) if holds(move)), None)


def _idle(move: Move) -> bool:
    return move.facts.get("period_end") in ("no_action", "restart")


def _silent(move: Move) -> bool:
    return move.reply is not None and not move.reply.calls
