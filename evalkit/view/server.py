"""`evalkit view`: pages of runs on the loopback alone. Only GET, only its own host name, nothing from anywhere else.

Whoever can reach the loopback can read the pages: they show what the run directories hold, and change nothing.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from evalkit.errors import EvalkitError, RunError, UsageError
from evalkit.frozen.manifests import read_manifest
from evalkit.loopback import HOST, REFUSED, refusal
from evalkit.report.tables import as_csv
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.store.lock import holder
from evalkit.view.comparing import beside_page, comparing, instance_page, named, read_compared
from evalkit.view.episode import episode_figure, episode_frame, episode_page, period_page
from evalkit.view.grid import NUMBERS, Plot, plot
from evalkit.view.home import home, known_nights, nights_overview, progress
from evalkit.view.listing import around, listing, read_wanted
from evalkit.view.overview import (
    Overview,
    coming_figures,
    overview,
    overview_frame,
    read_query,
    run_address,
    run_frame,
    table_of,
    table_page,
)
from evalkit.view.reading import Reading
from evalkit.view.render import LIVE, SCRIPT, STYLE, VEGA, Frame, PageLink, asset, environment, episode_at, render
from evalkit.view.run_cache import RunCache

# What every request to the pages is checked for, and what every answer is sent with.

RETRY_S = 1
"""Seconds after which a page that is being computed is asked for again."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RunBeingRead(Exception):
    """The run is being read for the first time: the page is asked for again."""

    def __init__(self, name: str, elapsed_s: float) -> None:
        super().__init__(name)
        self.name, self.elapsed_s = name, elapsed_s


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse foreign host names and anything but reading; put the headers on every answer."""
    try:
        response = await _guarded(request, handler)
    except RunBeingRead as wait:
        frame = run_frame(wait.name, "", wait.name, refresh_s=RETRY_S)
        response = answer("computing.html", frame, status=202, name=wait.name, elapsed_s=wait.elapsed_s)
    except web.HTTPException as left:
        response = message(left.status, left.reason, "")
    except RunError as flaw:
        response = message(404, "Not found", str(flaw))
    except UsageError as flaw:
        response = message(400, "This cannot be shown", str(flaw))
    except EvalkitError as flaw:
        response = message(500, "This cannot be shown", str(flaw))
    response.headers.update({name: value for name, value in HEADERS.items() if name not in response.headers})
    return response


async def _guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    if why := refusal(request.headers.getall("Host", []), request.headers.getall("Origin", [])):
        return message(REFUSED, "Refused", why)
    if request.method not in ("GET", "HEAD"):
        return message(405, "Refused", "Pages can only be read.")
    return await handler(request)


def message(status: int, heading: str, text: str) -> web.Response:
    """A page that only says something."""
    return answer("message.html", Frame(title=heading), status=status, heading=heading, text=text)


def answer(template: str, frame: Frame, *, status: int = 200, **values: object) -> web.Response:
    """A page of a template; `values`: what it names."""
    frame = replace(frame, simulated=frame.simulated or _SIMULATED.get())
    return web.Response(status=status, text=render(template, frame, **values), content_type="text/html")


_SIMULATED = ContextVar("_SIMULATED", default="")
"""Whether the money of the run that a request asks about is real, as of its manifest."""

RUN_CACHE = web.AppKey("cache", RunCache)
FIRST_TABLE = "scores"
"""What the tab of tables opens with."""
AGAIN_S = 3
"""The same for the list of runs, while one of them is being read or played."""

FOR_EVER = "private, max-age=31536000, immutable"
TYPES = {STYLE: "text/css", **dict.fromkeys((SCRIPT, LIVE, VEGA), "text/javascript")}


@asynccontextmanager
async def serving(cache: RunCache, *, port: int = 0) -> AsyncIterator[str]:
    """Serve the pages; gives their address. `port` 0: any that is free. Raises UsageError if it is taken."""
    app = web.Application(middlewares=[guard])
    app[RUN_CACHE] = cache
    app.add_routes([web.get(path, handler) for path, handler in ROUTES.items()])
    runner = web.AppRunner(app, access_log=None, logger=_log())
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        try:
            await site.start()
        except OSError as flaw:
            raise UsageError(f"--port: cannot listen on {port}: {flaw.strerror}. Choose another port.") from flaw
        yield f"http://{HOST}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        cache.close()


async def serve_until_signal(cache: RunCache, *, port: int, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM. `ready` is told the address. Raises as `serving`."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serving(cache, port=port) as url:
        ready(url)
        await stop.wait()


def _log() -> logging.Logger:
    """What the server could not answer is logged, except what is not a request: anybody here may send that."""
    log = logging.getLogger(__name__)
    log.addFilter(_no_request)
    return log


def _no_request(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


async def _static(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name not in TYPES:
        raise web.HTTPNotFound
    text = await asyncio.to_thread(asset, name)
    # The pages name an asset with its version, so what such an address leads to never changes.
    headers = {"Cache-Control": FOR_EVER} if "v" in request.query else None
    return web.Response(text=text, content_type=TYPES[name], headers=headers)


def _place(request: web.Request) -> tuple[str, Path]:
    """(the run's name, its directory) of an address. Raises RunError."""
    name = request.match_info["run"]
    directory = request.app[RUN_CACHE].directory(name)
    with suppress(EvalkitError):  # the page itself says what is wrong
        _SIMULATED.set(read_manifest(directory).simulated)
    return name, directory


async def _reading(request: web.Request) -> tuple[str, Reading]:
    """The run of an address. Raises `RunBeingRead` while it is read for the first time."""
    name, directory = _place(request)
    return name, await _read(request, name, directory)


async def _read(request: web.Request, name: str, directory: Path) -> Reading:
    cache = request.app[RUN_CACHE]
    reading = await cache.reading(directory)
    if reading is None:
        raise RunBeingRead(name, cache.elapsed_s(directory))
    return reading


async def _run(request: web.Request) -> web.Response:
    name, reading = await _reading(request)
    flaw = request.app[RUN_CACHE].flaw(reading.directory)
    return web.Response(text=_overview(reading, name, flaw), content_type="text/html")


def _overview(reading: Reading, name: str, flaw: str) -> str:
    page = overview(reading, name)
    if flaw:
        words = f"The log has changed since and is no longer readable: {flaw} This page shows its earlier state."
        page = replace(page, word="damaged", warnings=[words, *page.warnings])
    return render("run.html", overview_frame(page, name), page=page)


async def _table(request: web.Request) -> web.Response:
    wanted = read_query(request.query)
    name, reading = await _reading(request)
    table = request.match_info.get("table", FIRST_TABLE)
    try:
        page = await asyncio.to_thread(table_page, reading, table, wanted, run_address(name))
    except RunError:
        if reading.whole:
            raise
        # The quoted errors and the numbers of figures are made after the other tables.
        raise RunBeingRead(name, request.app[RUN_CACHE].elapsed_s(reading.directory)) from None
    frame = run_frame(name, "tables", page.grid.title, sections=page.others)
    return answer("table.html", frame, page=page)


async def _csv(request: web.Request) -> web.Response:
    _, reading = await _reading(request)
    table = table_of(reading, request.match_info["table"])
    return web.Response(text=await asyncio.to_thread(as_csv, table), content_type="text/csv")


async def _figures(request: web.Request) -> web.Response:
    name, reading = await _reading(request)
    figures = coming_figures(reading, name)
    busy = not reading.whole and not figures
    frame = run_frame(
        name,
        "figures",
        "Figures",
        sections=[PageLink(title=figure.title, href=f"#figure-{figure.name}") for figure in figures],
        figures=bool(figures),
        refresh_s=RETRY_S if busy else 0,
    )
    return answer("figures.html", frame, figures=figures, busy=busy)


async def _figure(request: web.Request) -> web.Response:
    name, reading = await _reading(request)
    wanted = request.match_info["figure"]
    figure = next((figure for figure in reading.figures if figure.name == wanted), None)
    if figure is None:
        raise web.HTTPNotFound
    numbers = f"{run_address(name)}/table/{quote(wanted + NUMBERS, safe='')}"
    return _drawn(plot(figure, str(reading.directory), numbers=numbers))


def _drawn(one: Plot) -> web.Response:
    text = environment().get_template("figure.html").render(one=one)
    return web.Response(text=text, content_type="text/html")


async def _episodes(request: web.Request) -> web.Response:
    wanted = read_wanted(request.query)
    name, reading = await _reading(request)
    prefix = f"/run/{request.match_info['run']}"
    page = listing(reading.report.cells, wanted, str(reading.directory), prefix)
    return answer("episodes.html", run_frame(name, "episodes", "Episodes"), page=page)


async def _episode(request: web.Request) -> web.Response:
    name, directory = _place(request)
    cells, found = await _found(request, directory)
    beside = None if found is None else around(cells, found, run_address(name), request.query)
    episode = request.match_info["episode"] if found is None else found.id
    page = await asyncio.to_thread(episode_page, directory, name, episode, around=beside)
    return answer("episode.html", episode_frame(page, name), page=page)


async def _episode_figure(request: web.Request) -> web.Response:
    _, directory = _place(request)
    _, found = await _found(request, directory)
    episode = found.id if found else request.match_info["episode"]
    one = await asyncio.to_thread(episode_figure, directory, episode, request.match_info["figure"])
    return _drawn(one)


async def _found(request: web.Request, directory: Path) -> tuple[Sequence[Cell], EpisodeResult | None]:
    """(the run's cells, the episode of an address); nothing while the run is read for the first time, or cannot be as a
    whole: it may hold the episode all the same."""
    try:
        reading = await request.app[RUN_CACHE].reading(directory)
    except EvalkitError:
        reading = None
    if reading is None:
        return (), None
    return reading.report.cells, episode_at(reading.report.cells, request.match_info["episode"])


async def _instance(request: web.Request) -> web.Response:
    name, reading = await _reading(request)
    page = await asyncio.to_thread(instance_page, reading, name, request.match_info["place"])
    title, figures = f"{page.instance} across agents", any(card.spec for card in page.cards)
    return answer("instance.html", run_frame(name, "episodes", title, figures=figures), page=page)


async def _beside(request: web.Request) -> web.Response:
    name, directory = _place(request)
    page = await asyncio.to_thread(beside_page, directory, name, request.query.getall("episode", []))
    title = " and ".join(column.title for column in page.columns)
    return answer("beside.html", run_frame(name, "episodes", title), page=page)


async def _period(request: web.Request) -> web.Response:
    name, directory = _place(request)
    _, found = await _found(request, directory)
    episode, number = found.id if found else request.match_info["episode"], int(request.match_info["period"])
    page = await asyncio.to_thread(period_page, directory, name, episode, number, full="full" in request.query)
    template = "period_part.html" if "part" in request.query else "period.html"
    return answer(template, run_frame(name, "episodes", page.heading), page=page)


async def _home(request: web.Request) -> web.Response:
    page = home(request.app[RUN_CACHE])
    frame = Frame(title="Runs", links=_shelf_links("/"), refresh_s=AGAIN_S if page.waiting else 0)
    return answer("home.html", frame, page=page)


async def _nights(request: web.Request) -> web.Response:
    sweep = request.match_info["sweep"]
    folder = request.app[RUN_CACHE].nights(sweep)
    running = holder(folder) is not None
    page = await asyncio.to_thread(_nights_of, sweep, folder, running)
    if page is None:
        text = "No night has ended yet." if running else "There is no history of nights yet."
        return message(200, f"{sweep}: nights", text)
    frame = replace(overview_frame(page, sweep), links=ALL_RUNS_LINKS)
    return answer("run.html", frame, page=page)


def _nights_of(sweep: str, folder: Path, running: bool) -> Overview | None:
    history = known_nights(folder)
    return nights_overview(sweep, folder, history, running=running) if history else None


async def _live(request: web.Request) -> web.Response:
    name, directory = _place(request)
    read_manifest(directory)
    prefix, frame = run_address(name), run_frame(name, "live", f"{name}, live", live=True)
    return answer("live.html", frame, name=name, source=f"{prefix}/live.json", overview=f"{prefix}/")


async def _live_json(request: web.Request) -> web.Response:
    _, directory = _place(request)
    return web.json_response(progress(directory))


async def _compare(request: web.Request) -> web.Response:
    cache = request.app[RUN_CACHE]
    runs = cache.everything()
    asked = read_compared({key: request.query.getall(key) for key in request.query}, runs)
    readings = [[await _read(request, one, runs[one]) for one in named(name, runs)] for name in asked.runs]
    page = await asyncio.to_thread(comparing, asked, readings, list(runs))
    frame = Frame(title=f"Compare {page.heading}", links=_shelf_links("/compare"))
    return answer("compare.html", frame, page=page)


def _shelf_links(active: str) -> list[PageLink]:
    return [replace(link, active=link.href == active) for link in ALL_RUNS_LINKS]


ALL_RUNS_LINKS = (PageLink(title="Runs", href="/"), PageLink(title="Compare", href="/compare"))

ROUTES: Mapping[str, Handler] = {
    "/": _home,
    "/compare": _compare,
    "/nights/{sweep}": _nights,
    "/static/{name}": _static,
    "/run/{run}/": _run,
    "/run/{run}/live": _live,
    "/run/{run}/live.json": _live_json,
    "/run/{run}/episodes": _episodes,
    "/run/{run}/tables": _table,
    "/run/{run}/table/{table}.csv": _csv,
    "/run/{run}/table/{table}": _table,
    "/run/{run}/figures": _figures,
    "/run/{run}/figure/{figure}": _figure,
    r"/run/{run}/episode/{episode:.+}/period/{period:\d{1,7}}": _period,
    "/run/{run}/episode/{episode:.+}/figure/{figure}": _episode_figure,
    "/run/{run}/episode/{episode:.+}": _episode,
    "/run/{run}/instance/{place:.+}": _instance,
    "/run/{run}/beside": _beside,
}
