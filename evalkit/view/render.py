"""Templates to HTML. Whatever a template prints is escaped, and what would hide or reorder text is made visible."""

import base64
import functools
import gzip
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from evalkit.report.figures.draw import BUNDLE, bundle, config, script_json
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.text import visible

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup


STYLE, SCRIPT, LIVE, VEGA = "style.css", "page.js", "live.js", "vega.js"
"""What a page loads: our style, our script, the live page's, and Vega where it has figures."""

PARTS = {STYLE: (STYLE, "episode.css"), SCRIPT: (SCRIPT, "episode.js")}
"""By what a page loads: the files that it is made of, if they are several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLink:
    """A place to go to."""

    title: str
    href: str
    active: bool = False
    """Whether it is the place where the reader is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What surrounds a page's content."""

    title: str
    run: str = ""
    """The run's name on the pages; empty: a page of no single run."""
    simulated: str = ""
    """Whether the run's money is real, as of its manifest."""
    links: Sequence[PageLink] = ()
    """The pages of the run, or of all runs."""
    sections: Sequence[PageLink] = ()
    """The parts of this page."""
    offline: bool = False
    """Whether the page is one file, with style and script inside."""
    figures: bool = False
    """Whether Vega is loaded."""
    live: bool = False
    """Whether the live page's script is loaded."""
    refresh_s: int = 0
    """Seconds after which the page is asked for again; 0: never."""


def render(template: str, frame: Frame, **values: Any) -> str:
    """A page. `values` are what its template names."""
    return environment().get_template(template).render(frame=frame, **values)


@functools.cache
def environment() -> "jinja2.Environment":
    """The templates of this package, with autoescape everywhere."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("evalkit.view"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["json"] = json_inside
    environment.globals.update(
        inline=_inline,
        packed_vega=_packed_vega,
        policy=offline_policy,
        static=static_address,
        theme=[config(), config(dark=True)],
    )
    return environment


def _shown(value: Any) -> Any:
    """What a template prints: texts with control and direction characters written as escapes."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value)
    return value


def json_inside(value: Any) -> "Markup":
    """A value as JSON that can stand inside a `<script type="application/json">`: no text in it closes the element."""
    from markupsafe import Markup

    return Markup(script_json(value))  # noqa: S704 - whatever HTML knows is written as an escape


@functools.cache
def asset(name: str) -> str:
    """A file of `static/`, or Vega's bundle. Raises KeyError for any other name."""
    if name == VEGA:
        return bundle()
    if name not in (STYLE, SCRIPT, LIVE):
        raise KeyError(name)
    folder = files("evalkit.view") / "static"
    return "\n".join((folder / part).read_text(encoding="utf-8") for part in PARTS.get(name, (name,)))


@functools.cache
def static_address(name: str) -> str:
    """Where an asset is served; another address for other content, so that browsers may keep it for ever."""
    return f"/static/{name}?v={hashlib.sha256(asset(name).encode()).hexdigest()[:12]}"


def packed(text: str) -> str:
    """A text as base64 of gzip, which the script of a page in one file unpacks when it is needed."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _packed_vega() -> str:
    return base64.b64encode(BUNDLE.read_bytes()).decode()


def _inline(name: str) -> "Markup":
    from markupsafe import Markup

    return Markup(asset(name))  # noqa: S704 - our own files, and Vega's


def offline_policy(*, figures: bool) -> str:
    """The content security policy of a page in one file: nothing from anywhere, only its own scripts."""
    scripts = " ".join(_hashed(name) for name in ((VEGA, SCRIPT) if figures else (SCRIPT,)))
    return (
        f"default-src 'none'; script-src {scripts}; style-src {_hashed(STYLE)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hashed(name: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(asset(name).encode()).digest()).decode()}'"


# Where the pages of a run's episodes are: addresses that name what they show.

PLAIN = "/:=&,@"
"""What of a place stands in an address as it is."""


def place_of(result: EpisodeResult) -> str:
    """`agent:suite:instance:replicate`, as `evalkit show` takes it."""
    return f"{result.agent}:{result.suite}:{result.instance}:{result.replicate}"


def titled(result: EpisodeResult) -> str:
    """`agent on instance`, with the replicate behind the first."""
    more = f", replicate {result.replicate}" if result.replicate else ""
    return f"{result.agent} on {result.instance}{more}"


def episode_address(prefix: str, result: EpisodeResult) -> str:
    """Where the page of an episode is; `prefix`: the run's."""
    return f"{prefix}/episode/{quote(place_of(result), safe=PLAIN)}"


def figure_address(prefix: str, name: str) -> str:
    """Where one figure is sent alone; `prefix`: the address of what it is a figure of."""
    return f"{prefix}/figure/{quote(name, safe='')}"


def instance_address(prefix: str, suite: str, instance: str) -> str:
    """Where all agents on an instance are beside each other."""
    return f"{prefix}/instance/{quote(f'{suite}/{instance}', safe=PLAIN)}"


def with_query(address: str, parameters: Mapping[str, object]) -> str:
    """The address with what of these is not empty."""
    kept = {name: value for name, value in parameters.items() if value not in ("", None)}
    return f"{address}?{urlencode(kept)}" if kept else address


def episode_at(cells: Iterable[Cell], named: str) -> EpisodeResult | None:
    """The episode that an id or a place names; None: none is named so in full."""
    episodes = (episode for cell in cells for episode in cell.episodes)
    return next((episode for episode in episodes if named in (episode.id, place_of(episode))), None)
