"""A person at the pages of `evalkit play --page`, over HTTP: reads forms out of a page, fills them in, sends them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser

import aiohttp

from evalkit.doors.page.server import PlayPages
from evalkit.doors.recorded import Outsider, Record, recorded
from evalkit.view.run_cache import RunCache
from evalkit.view.server import serving

BROWSER = {"Sec-Fetch-Site": "same-origin", "Origin": "null"}
"""What a browser says of a form that a page of ours sends."""


@dataclass(slots=True)
class Form:
    """A form as the page has it."""

    action: str
    values: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    """Fields by what they are called."""
    choices: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of a field's selection: values by what they are called."""


class Forms(HTMLParser):
    """All forms of a page that are sent by POST, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[Form] = []
        self._ids: dict[str, str] = {}
        self._inside = self._label = self._option = ""
        self._words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form" and given.get("method") == "post":
            self.found.append(Form(given["action"]))
        elif tag == "label":
            self._label, self._words = given["for"], ""
        elif tag == "span":
            self._named()
        elif tag in ("input", "select", "textarea") and self.found and "name" in given:
            form = self.found[-1]
            form.values[given["name"]] = given.get("value", "")
            if "id" in given:
                form.labels[self._ids[given["id"]]] = given["name"]
            self._inside = given["name"]
            self._words = ""
        elif tag == "option":
            self._option, self._words = given["value"], ""
            if "selected" in given:
                self.found[-1].values[self._inside] = given["value"]

    def _named(self) -> None:
        """A label's own words have been read."""
        if self._label:
            self._ids[self._label] = self._words.strip()
        self._label = ""

    def handle_data(self, data: str) -> None:
        self._words += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "label":
            self._named()
        elif tag == "textarea":
            self.found[-1].values[self._inside] = self._words.removeprefix("\n")
        elif tag == "option":
            self.found[-1].choices.setdefault(self._inside, {})[self._words.strip()] = self._option


@dataclass(frozen=True, slots=True)
class Page:
    """What the server has answered."""

    status: int
    text: str
    headers: Mapping[str, str] = field(repr=False)

    def form(self, tool: str, way: str = "fields") -> Form:
        """The form of a tool; `say`: of a text alone."""
        for form in Forms(self.text).found:
            if form.values.get("way") == way and form.values.get("tool", "") == tool:
                return form
        raise AssertionError(f"no form for {tool!r} by {way}")


@dataclass(slots=True)
class Person:
    """Who asks for pages and sends forms."""

    url: str
    session: aiohttp.ClientSession

    async def get(self, path: str, **headers: str) -> Page:
        """A page."""
        return await self._ask("GET", path, {}, headers)

    async def send(self, form: Form, given: Mapping[str, str] = {}, **headers: str) -> Page:
        """A form with these fields filled in, by what they are called; then the page that the browser is led to."""
        values = dict(form.values)
        for label, value in given.items():
            name = form.labels[label]
            values[name] = form.choices[name][value] if name in form.choices else value.replace("\n", "\r\n")
        return await self.post(form.action, values, **headers)

    async def post(self, path: str, values: Mapping[str, str], **headers: str) -> Page:
        """The same with names as the form has them."""
        said = await self._ask("POST", path, values, {**BROWSER, **headers})
        return await self.get(said.headers["Location"].partition("#")[0]) if said.status == 303 else said

    async def _ask(self, method: str, path: str, values: Mapping[str, str], headers: Mapping[str, str]) -> Page:
        data = dict(values) if method == "POST" else None
        asked = self.session.request(method, self.url + path, data=data, headers=headers, allow_redirects=False)
        async with asked as answer:
            return Page(answer.status, await answer.text(), dict(answer.headers))


@asynccontextmanager
async def played(suite: str, run: str = "human", agent: str = "anna") -> AsyncIterator[tuple[Person, Record]]:
    """A person before the pages of a suite, whose run is in this folder."""
    outsider = Outsider(run=run, agent=agent, policy="human", suite=suite)
    async with recorded(outsider) as record:
        await record.begun()
        pages = PlayPages(record=record)
        async with (
            serving(RunCache([record.directory]), beside=pages.routes()) as url,
            aiohttp.ClientSession() as session,
        ):
            yield Person(url, session), record
