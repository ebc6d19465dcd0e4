"""The live display of a running sweep: a table on a terminal, JSON lines anywhere else."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from evalkit.money import show_usd
from evalkit.run.view import LaneView, View

LINE_EVERY_S = 5.0
BAR_LEAST, BAR_MOST = 6, 24
"""Columns of a progress bar; where there is no room for the least there is none."""
GAP = 2
NAMES_LEAST, NAMES_MOST = 4, 30


@contextmanager
def display(*, json_lines: bool) -> Iterator[Callable[[View], None]]:
    """Gives a function that shows a view; what it shows goes to standard error, results go to standard output."""
    console = Console(stderr=True)
    if json_lines or not console.is_terminal:
        yield _line_writer()
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield lambda view: live.update(render(view, console.width))


def _line_writer() -> Callable[[View], None]:
    shown_at, stopping = monotonic(), ""

    def show(view: View) -> None:
        nonlocal shown_at, stopping
        # Whoever has stopped the run is told at once that it was heard.
        if monotonic() - shown_at >= LINE_EVERY_S or view.stopping != stopping:
            shown_at, stopping = monotonic(), view.stopping
            print(json.dumps(view.to_json()), file=sys.stderr, flush=True)

    return show


def render(view: View, width: int) -> Group:
    """The view for a terminal of so many columns: no number is cut, names and bars give way."""
    titles = ["lane", "episodes", "steps/s", "in flight", "reply"]
    rows = [_cells(lane) for lane in view.lanes]
    if any(lane.waiting for lane in view.lanes):
        titles.append("waiting")
        rows = [[*row, f"{lane.waiting:,}"] for row, lane in zip(rows, view.lanes, strict=True)]
    taken = [max(len(row[place]) for row in [titles, *rows]) for place in range(len(titles))]
    room = width - sum(taken[1:]) - GAP * len(taken[1:])
    taken[0] = max(NAMES_LEAST, min(taken[0], NAMES_MOST, room))
    bar = min(BAR_MOST, room - taken[0] - GAP)
    table = Table(box=None, header_style="dim", padding=(0, GAP, 0, 0), pad_edge=False)
    table.add_column(titles[0], no_wrap=True, overflow="ellipsis", width=taken[0])
    if bar >= BAR_LEAST:
        table.add_column("", width=bar)
    for title, columns in zip(titles[1:], taken[1:], strict=True):
        table.add_column(title, justify="right", no_wrap=True, min_width=columns)
    for lane, row in zip(view.lanes, rows, strict=True):
        bars = [ProgressBar(total=max(1, lane.episodes), completed=lane.done, width=bar)] if bar >= BAR_LEAST else []
        table.add_row(Text(row[0]), *bars, *row[1:])
    return Group(table, *_troubles(view.lanes), Text(_money_line(view), style="bold"))


def _cells(lane: LaneView) -> list[str]:
    flight = f"{lane.in_flight:,}/{lane.window:,}" if lane.window else f"{lane.playing:,}"
    reply = f"{lane.latency_s * 1000:,.0f} ms" if lane.latency_s else ""
    return [lane.name, f"{lane.done:,}/{lane.episodes:,}", f"{lane.rate:,.0f}", flight, reply]


def _troubles(lanes: Sequence[LaneView]) -> Iterator[Text]:
    for lane in lanes:
        parts = [f"paused, tries again in {lane.paused_s:.0f} s"] if lane.paused_s > 0 else []
        parts += [f"{kind} {count:,}" for kind, count in sorted(lane.failures.items())]
        parts += [f"{why} {count:,}" for why, count in lane.left.items() if why in ("unavailable", "internal_error")]
        if parts:
            yield Text(f"{lane.name}: {', '.join(parts)}", style="yellow")


def _money_line(view: View) -> str:
    parts = [f"{view.elapsed_s:,.0f} s"]
    if view.eta_s is not None and not view.stopping:
        parts.append(f"about {view.eta_s:,.0f} s to go")
    spent = show_usd(view.spent)
    parts.append(f"{spent} spent" if view.budget is None else f"{spent} of {show_usd(view.budget)} spent")
    if view.stopping == "interrupt":
        parts.append("stopping: replies in flight are awaited; Ctrl-C again stops at once")
    elif view.stopping:
        parts.append(f"stopping ({view.stopping}): replies in flight are awaited")
    return "   ".join(parts)
