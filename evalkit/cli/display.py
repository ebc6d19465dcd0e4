"""The live display of a running sweep: a table on a terminal, JSON lines anywhere else."""

import json
import sys
from collections.abc import Callable, Iterator
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


@contextmanager
def display(*, json_lines: bool) -> Iterator[Callable[[View], None]]:
    """Gives a function that shows a view; what it shows goes to standard error, results go to standard output."""
    console = Console(stderr=True)
    if json_lines or not console.is_terminal:
        yield _line_writer()
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield lambda view: live.update(render(view))


def _line_writer() -> Callable[[View], None]:
    shown_at = monotonic()

    def show(view: View) -> None:
        nonlocal shown_at
        if monotonic() - shown_at >= LINE_EVERY_S:
            shown_at = monotonic()
            print(json.dumps(view.to_json()), file=sys.stderr, flush=True)

    return show


def render(view: View) -> Group:
    """The view for a terminal."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("lane", no_wrap=True)
    table.add_column("", width=18)
    for column in ("episodes", "steps/s", "in flight", "waiting", "reply"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("trouble", overflow="ellipsis", no_wrap=True)
    for lane in view.lanes:
        bar = ProgressBar(total=max(1, lane.episodes), completed=lane.done, width=18)
        flight = f"{lane.in_flight}/{lane.window}" if lane.window else f"{lane.playing}"
        reply = f"{lane.latency_s * 1000:,.0f} ms" if lane.latency_s else ""
        table.add_row(
            lane.name, bar, f"{lane.done:,}/{lane.episodes:,}", f"{lane.rate:,.0f}", flight, f"{lane.waiting}", reply,
            Text(_trouble(lane), style="yellow"),
        )  # fmt: skip
    return Group(table, Text(_money_line(view), style="bold"))


def _trouble(lane: LaneView) -> str:
    parts = [f"paused {lane.paused_s:.0f} s"] if lane.paused_s > 0 else []
    parts += [f"{kind} {count}" for kind, count in sorted(lane.failures.items())]
    parts += [f"{why} {count}" for why, count in lane.left.items() if why in ("unavailable", "internal_error")]
    return ", ".join(parts)


def _money_line(view: View) -> str:
    parts = [f"{view.elapsed_s:,.0f} s"]
    if view.eta_s is not None:
        parts.append(f"about {view.eta_s:,.0f} s to go")
    spent = show_usd(view.spent)
    parts.append(f"{spent} spent" if view.budget is None else f"{spent} of {show_usd(view.budget)} spent")
    if view.stopping:
        parts.append(f"draining ({view.stopping})")
    return "   ".join(parts)
