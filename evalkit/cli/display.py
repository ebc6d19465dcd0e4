"""The live display of a running sweep: a table on a terminal, else plain lines, or JSON lines on request."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from evalkit.cli.pipes import guarded_streams, unread
from evalkit.cli.question_words import counted, open_lines, server_words
from evalkit.client.lanes.health import GIVE_UP_S
from evalkit.engine.episode import NOT_ENDED
from evalkit.engine.view import LaneView, View
from evalkit.money import money_words, show_usd
from evalkit.report.render.terminal import Output
from evalkit.text import many, span, visible

LINE_EVERY_S = 5.0
BAR_LEAST, BAR_MOST = 6, 24
"""The least and the most columns of a progress bar; without room for the least there is no bar."""
GAP = 2
NAMES_LEAST, NAMES_MOST = 4, 30
WAITS, WORDS_MOST = "waits for", 44
"""Columns for what a lane waits for. With less room, the reasons are printed in lines below the table."""
OPEN_MOST = 3
"""Open questions that are shown."""
TROUBLES_MOST = 5
"""Lines that are reserved below the lanes if lanes have failures."""
LONG_PAUSE_S = 1.0
"""Seconds. A shorter pause is the normal effect of a rate limit and is not shown."""
LANES_LEAST = 3
"""Lanes that are shown however few lines the terminal has."""


class Display:
    """Shows views of a run and, before the first of them, what is being done."""

    def __init__(self, show: Callable[[View], None], phase: Callable[[str], None]) -> None:
        self._show, self._phase = show, phase

    def __call__(self, view: View) -> None:
        """Show a view."""
        self._show(view)

    def phase(self, words: str) -> None:
        """Say what is being done; on a terminal alone, where it is overwritten."""
        self._phase(words)


@contextmanager
def display(*, json_lines: bool) -> Iterator[Display]:
    """Yields what shows a run. The display goes to standard error; results go to standard output."""
    console = Output(stderr=True)
    if json_lines or not console.is_terminal:
        write = _line_writer(lambda view: json.dumps(view.to_json()) if json_lines else plain(view))
        yield Display(write, _say_nothing)
        return
    live, began = Live(console=console, refresh_per_second=4, transient=True), monotonic()

    def show(what: Group | Phase, *, refresh: bool = False) -> None:
        with unread(sys.stderr):  # the run goes on, and ends in good order, if the terminal has gone
            live.update(what, refresh=refresh)

    live.start()
    try:
        # Before what the live display puts in the place of both outputs: it would read escapes as colours and links.
        with guarded_streams():
            yield Display(
                lambda view: show(render(view, console.width, console.height)),
                lambda words: show(Phase(words, began), refresh=True),
            )
    finally:
        with unread(sys.stderr):
            live.stop()


def _say_nothing(words: str) -> None:
    """Lines in a file tell of the run alone."""
    del words


class Phase:
    """What is being done before the first request, with the seconds since the command began."""

    def __init__(self, words: str, began: float) -> None:
        self._words, self._began = words, began

    def __rich__(self) -> Text:
        return Text(f"{self._words} ...   {monotonic() - self._began:,.0f} s", style="bold")


def _line_writer(words: Callable[[View], str]) -> Callable[[View], None]:
    shown_at: float | None = None
    stopping = ""

    def show(view: View) -> None:
        nonlocal shown_at, stopping
        if shown_at is None:  # a call with nothing to play writes no line, however long it took to start
            shown_at = monotonic()
        # Confirm a stop at once.
        if monotonic() - shown_at >= LINE_EVERY_S or view.stopping != stopping:
            shown_at, stopping = monotonic(), view.stopping
            with unread(sys.stderr):  # the run goes on if nobody reads about it
                print(words(view), file=sys.stderr, flush=True)

    return show


def plain(view: View) -> str:
    """The view in one line, plus one line per lane that is delayed."""
    known = f"   {counted(view.question)}" if view.question is not None else ""
    lines = [f"{_progress(view)}   {_money_line(view)}{known}"]
    return "\n".join([*lines, *(f"  {line}" for line in (*_unmetered(view), *_servers(view.lanes), *_troubles(view)))])


def render(view: View, width: int, height: int = 50) -> Group:
    """The view for a terminal of so many columns and lines.

    Names, bars, reasons and lanes are cut, numbers never are. If not all lanes fit, those with failures and those with
    most episodes remaining are shown, in their order.
    """
    head = [*(Text(line, style="yellow") for line in _unmetered(view)), Text(_money_line(view), style="bold")]
    if len(view.lanes) > 1 or any(lane.target < lane.episodes for lane in view.lanes):
        head.insert(0, Text(_progress(view), style="bold"))
    if view.question is not None:
        head.append(Text(counted(view.question), style="bold"))
        head += [
            Text(visible(line), no_wrap=True, overflow="ellipsis") for line in open_lines(view.question, OPEN_MOST)
        ]
    room = max(LANES_LEAST + 1, height - len(head) - 2)
    troubles = [*_servers(view.lanes), *_troubles(view)]
    lanes, hidden = _fitting(view.lanes, room - min(TROUBLES_MOST, len(troubles) + 1))
    table, waits_told = _table(lanes, width)
    below = troubles if waits_told else [*troubles, *_waits(view.lanes, width)]
    shown = below[: max(1, room - len(lanes) - bool(hidden))]
    if len(shown) < len(below):
        shown[-1] = f"and {len(below) - len(shown) + 1:,} more lines of this kind"
    more = [Text(_of_the_rest(hidden), style="dim")] if hidden else []
    return Group(table, *more, *(Text(line, style="yellow") for line in shown), *head)


def _fitting(lanes: Sequence[LaneView], room: int) -> tuple[list[LaneView], list[LaneView]]:
    """(the lanes that are shown, the others), each in their order."""
    if len(lanes) <= room:
        return list(lanes), []
    first = sorted(range(len(lanes)), key=lambda i: (not _is_held_up(lanes[i]), lanes[i].done - lanes[i].episodes, i))
    shown = set(first[: room - 1])
    return [lanes[i] for i in sorted(shown)], [lanes[i] for i in range(len(lanes)) if i not in shown]


def _is_held_up(lane: LaneView) -> bool:
    return lane.paused_s >= LONG_PAUSE_S or bool(lane.ended or lane.trouble)


def _of_the_rest(lanes: Sequence[LaneView]) -> str:
    done, episodes = sum(lane.done for lane in lanes), sum(lane.target for lane in lanes)
    return (
        f"and {len(lanes):,} more lanes: {done:,}/{episodes:,} episodes, "
        f"{sum(lane.rate for lane in lanes):,.0f} steps/s"
    )


def _table(lanes: Sequence[LaneView], width: int) -> tuple[Table, bool]:
    """(the table of lanes, whether it says what each lane waits for)."""
    titles = ["lane", "episodes", "steps/s", "in flight", "reply"]
    rows = [_cells(lane) for lane in lanes]
    if any(lane.waiting for lane in lanes):
        titles.append("waiting")
        rows = [[*row, f"{lane.waiting:,}"] for row, lane in zip(rows, lanes, strict=True)]
    taken = [max(len(row[column]) for row in [titles, *rows]) for column in range(len(titles))]
    room = width - sum(taken[1:]) - GAP * len(taken[1:])
    taken[0] = max(NAMES_LEAST, min(taken[0], NAMES_MOST, room))
    words = [visible(lane.waits_for) for lane in lanes]
    wanted = min(WORDS_MOST, max(len(WAITS), *map(len, words)))
    spare = room - taken[0] - GAP
    waits_told = any(words) and spare - GAP - BAR_LEAST >= wanted
    if waits_told:
        spare -= wanted + GAP
    bar = min(BAR_MOST, spare)
    table = Table(box=None, header_style="dim", padding=(0, GAP, 0, 0), pad_edge=False)
    table.add_column(titles[0], no_wrap=True, overflow="ellipsis", width=taken[0])
    if bar >= BAR_LEAST:
        table.add_column("", width=bar)
    for title, columns in zip(titles[1:], taken[1:], strict=True):
        table.add_column(title, justify="right", no_wrap=True, min_width=columns)
    if waits_told:
        table.add_column(WAITS, no_wrap=True, overflow="ellipsis", width=wanted)
    for lane, row, word in zip(lanes, rows, words, strict=True):
        bars = [ProgressBar(total=max(1, lane.target), completed=lane.done, width=bar)] if bar >= BAR_LEAST else []
        table.add_row(Text(row[0]), *bars, *row[1:], *([Text(word, style="dim")] if waits_told else []))
    return table, waits_told


def _cells(lane: LaneView) -> list[str]:
    flight = f"{lane.in_flight:,}/{lane.window:,}" if lane.window else f"{lane.playing:,}"
    reply = f"{lane.latency_s * 1000:,.0f} ms" if lane.latency_s else ""
    return [visible(lane.name), f"{lane.done:,}/{lane.target:,}", f"{lane.rate:,.0f}", flight, reply]


def _troubles(view: View) -> Iterator[str]:
    """A line for each lane that is delayed or has failures."""
    for lane in view.lanes:
        parts = []
        if lane.ended and not view.stopping:  # else all of them have
            parts.append(lane.ended.removeprefix(f"{lane.name}: "))
        elif lane.paused_s >= LONG_PAUSE_S:
            parts.append(f"paused, retries in {lane.paused_s:.0f} s")
        elif lane.trouble:
            parts.append(f"{lane.trouble} (tried for {span(GIVE_UP_S)} at most)")
        parts += [f"{kind} {count:,}" for kind, count in sorted(lane.failures.items())]
        parts += [f"{why} {count:,}" for why, count in lane.left.items() if why in NOT_ENDED - {"stopped"}]
        if parts:
            yield visible(f"{lane.name}: {', '.join(parts)}")


def _servers(lanes: Sequence[LaneView]) -> Iterator[str]:
    """A line for each lane that has several servers."""
    for lane in lanes:
        if lane.servers and not lane.ended:
            yield visible(f"{lane.name}: servers {server_words(lane.servers)}")


def _waits(lanes: Sequence[LaneView], width: int) -> Iterator[str]:
    """A line for each reason that lanes wait for, with as many of their names as fit."""
    names: dict[str, list[str]] = {}
    for lane in lanes:
        if lane.waits_for and not _is_held_up(lane):
            names.setdefault(lane.waits_for, []).append(lane.name)
    for reason, lane_names in names.items():
        line = visible(f"{WAITS} {reason}: {', '.join(lane_names)}")
        yield line if len(line) <= width else f"{line[: width - 1]}…"


def _unmetered(view: View) -> Iterator[str]:
    """The line about replies without usage, if there are any."""
    if view.unmetered.words():
        yield f"{view.unmetered.words()}."


def _time_words(view: View) -> Iterator[str]:
    """How long it still takes; before the first replies, that these are awaited."""
    models = [lane for lane in view.lanes if lane.window]
    if models and not any(lane.steps for lane in models):
        yield (
            f"~{many(view.requests_left, 'reply', 'replies')} awaited"
            if view.requests_left
            else "first replies awaited"
        )
    elif view.eta_s is not None:
        yield f"about {span(view.eta_s)} to go"
    elif view.requests_left:
        yield f"~{many(view.requests_left, 'request')} to go"


def _progress(view: View) -> str:
    done, target, episodes = (sum(getattr(lane, key) for lane in view.lanes) for key in ("done", "target", "episodes"))
    spared = f" ({view.spared:,} spared)" if view.spared else ""
    limited = f" (--limit; {episodes:,} in all)" if target + view.spared < episodes else spared
    return f"{done:,}/{many(target, 'episode')}{limited}   {sum(lane.rate for lane in view.lanes):,.0f} steps/s"


def _money_line(view: View) -> str:
    parts = [f"{view.elapsed_s:,.0f} s"]
    if view.workers:
        parts.append(f"workers {view.workers}")
    if not view.stopping:
        parts += _time_words(view)
    parts.append(money_words(view.spent, view.budget, view.simulated))
    if view.reserved:
        parts.append(f"{show_usd(view.reserved)} reserved")
    if view.stopping == "interrupt":
        parts.append("stopping: waiting for replies in flight; Ctrl-C again stops at once")
    elif view.stopping:
        parts.append(f"stopping ({view.stopping}): waiting for replies in flight")
    return "   ".join(parts)
