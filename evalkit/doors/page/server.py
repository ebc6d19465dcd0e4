"""The pages on which a person plays, beside those of `evalkit view`, on this machine alone.

A reply changes the log, so its form has two things that no other page has. The server's token is what another site
cannot read. The step that it is meant for lets two tabs or a double click give a turn one reply. A reply is on disk
before the browser is sent to what it has led to.
"""

import asyncio
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl

from aiohttp import web

from evalkit.doors.page.forms import WAYS, Sent, empty_forms, filled_forms
from evalkit.doors.page.showing import (
    LIST,
    Notice,
    PlayPage,
    address_of,
    ended_page,
    play_list,
    playing_page,
    with_past,
)
from evalkit.doors.recorded import OutsideEpisode, Record
from evalkit.doors.sitting import Sitting
from evalkit.errors import EvalkitError
from evalkit.view.guard import answer, message
from evalkit.view.overview import run_address
from evalkit.view.render import Frame, PageLink
from evalkit.view.run_cache import RunCache, run_name
from evalkit.view.server import serve_until_signal

PLACE = LIST + r"/{instance:.+}:{replicate:\d{1,4}}"
MOST_FIELDS = 5000
FORM = "application/x-www-form-urlencoded"

GIVEN_BEFORE = (
    "This turn has a reply already, from another tab or a second click. What you wrote here was not given. "
    "If its tool is still offered, it stands in its form."
)
STARTED_AGAIN = (
    "The server has been started again since this page was opened. What you wrote has not been given yet: it stands in "
    "its form. Look at it, and send it again."
)
NOT_OFFERED = "This tool is not offered any more, so nothing was given."


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A form that a browser has sent."""

    sent: Sent
    step: int
    """The turn that it is meant for."""
    token: str


@dataclass(kw_only=True)
class PlayPages:
    """Answers the requests of a person who plays."""

    record: Record
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def name(self) -> str:
        """The run's, as the view calls it."""
        return run_name(self.record.directory)

    def routes(self) -> list[web.RouteDef]:
        """Where what is served."""
        return [
            web.get(LIST, self._list),
            web.get(PLACE, self._episode, allow_head=True),
            web.post(PLACE, self._reply),
        ]

    async def _list(self, _: web.Request) -> web.Response:
        page = await asyncio.to_thread(play_list, self.record)
        return answer("play.html", self._frame(f"Play {page.heading}", LIST), page=page)

    async def _episode(self, request: web.Request) -> web.Response:
        return await self._shown(self._seat(request))

    async def _reply(self, request: web.Request) -> web.Response:
        if not _from_here(request):
            return message(403, "Refused", "A reply is accepted only from the pages of this server.")
        seat, arrived = self._seat(request), await _arrived(request)
        if arrived is None:
            return message(400, "This is no reply", f"A reply is one of the forms at {address_of(seat)}.")
        if not hmac.compare_digest(arrived.token.encode(), self.token.encode()):
            if "Sec-Fetch-Site" not in request.headers:
                return message(403, "Refused", "A reply is accepted only from the pages of this server.")
            return await self._shown(seat, arrived, Notice(text=STARTED_AGAIN, kind="flaw"), status=409)
        sitting = await self._sitting(seat)
        if sitting is None or arrived.step != sitting.game.step:
            return await self._shown(seat, arrived, Notice(text=GIVEN_BEFORE, kind="flaw"), status=409)
        reply = filled_forms(sitting.game.tools, arrived.sent, arrived.step).reply
        if reply is None:
            return await self._shown(seat, arrived, status=422)
        try:
            turn = await sitting.reply(reply, step=arrived.step)
        except EvalkitError as flaw:
            words = f"The reply could not be kept, so it does not count: {flaw}"
            return await self._shown(seat, arrived, Notice(text=words, kind="flaw"), status=500)
        if turn is None:
            return await self._shown(seat, arrived, Notice(text=GIVEN_BEFORE, kind="flaw"), status=409)
        return web.Response(status=303, headers={"Location": f"{address_of(seat)}#now"})

    def _seat(self, request: web.Request) -> OutsideEpisode:
        """Raises UsageError, RunError."""
        return self.record.episode(request.match_info["instance"], int(request.match_info["replicate"]))

    async def _sitting(self, seat: OutsideEpisode) -> Sitting | None:
        """None: the episode has ended."""
        if seat.id in self.record.ended:
            return None
        sitting = await self.record.sit(seat.instance.id, seat.replicate)
        return None if sitting.game.ending else sitting

    async def _shown(
        self, seat: OutsideEpisode, arrived: Arrived | None = None, *told: Notice, status: int = 200
    ) -> web.Response:
        """The episode as it is now; `arrived`: a form that was not accepted, which is shown again."""
        sitting, directory = await self._sitting(seat), self.record.directory
        prefix = run_address(self.name)
        if sitting is None:
            told = tuple(replace(one, words=arrived.sent.words) for one in told) if arrived is not None else told
            page = await asyncio.to_thread(ended_page, seat, directory, prefix, *told)
            return self._page(page, status)
        game = sitting.game
        if arrived is None:
            forms = empty_forms(game.tools)
        else:
            forms = filled_forms(game.tools, arrived.sent, game.step)
            if arrived.sent.way != "say" and not any(form.open for form in forms.tools):
                told = (*told, Notice(text=NOT_OFFERED, kind="flaw", words=arrived.sent.words))
        page = playing_page(seat, sitting, forms, *told)
        return self._page(await asyncio.to_thread(with_past, page, seat, directory, prefix, game.period), status)

    def _page(self, page: PlayPage, status: int) -> web.Response:
        frame = self._frame(page.heading, page.action)
        return answer("played.html", frame, status=status, page=page, token=self.token, list=LIST)

    def _frame(self, title: str, active: str) -> Frame:
        links = [
            PageLink(title="Play", href=LIST, active=active == LIST),
            PageLink(title="The run", href=f"{run_address(self.name)}/"),
        ]
        return Frame(title=title, run=self.name, links=links)


async def serve_page(record: Record, *, port: int, ready: Callable[[str], None], first: str = "") -> None:
    """Serve until Ctrl-C or SIGTERM. `ready` is told the address of `first`; empty: of the suite's episodes. Raises
    UsageError if the port is taken, RunError if the run cannot be played."""
    await record.begun()
    pages, cache = PlayPages(record=record), RunCache([record.directory])
    await serve_until_signal(cache, port=port, ready=lambda url: ready(url + (first or LIST)), beside=pages.routes())


def _from_here(request: web.Request) -> bool:
    """Whether a page of this server sent the request, as far as the browser says. Its token says the rest."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    # Our pages give no referrer, and a form of such a page has the origin `null`.
    return site in (None, "same-origin", "none") and origin in (None, "null", f"http://{request.host}")


async def _arrived(request: web.Request) -> Arrived | None:
    """The form; None: it is none of ours."""
    if request.content_type != FORM:
        return None
    text = (await request.read()).decode("utf-8", "replace")
    try:
        given: Mapping[str, str] = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        return None
    step, way = given.get("step", ""), given.get("way", "")
    if way not in WAYS or not (step.isascii() and step.isdecimal() and len(step) < 10):
        return None
    fields = {name: value for name, value in given.items() if name not in ("step", "way", "token", "tool")}
    sent = Sent(way=way, tool=given.get("tool", ""), given=fields)
    return Arrived(sent=sent, step=int(step), token=given.get("token", ""))
