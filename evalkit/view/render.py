"""Templates to HTML. Whatever a template prints is escaped, and what would hide or reorder text is made visible."""

import base64
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import orjson

from evalkit.report.visible import visible

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

STYLE, SCRIPT, VEGA = "style.css", "page.js", "vega.js"
"""What a page loads: our style, our script, and Vega where it has figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
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
    """The run's name on the shelf; empty: a page of no single run."""
    links: Sequence[Link] = ()
    """The pages of the run, or of the shelf."""
    sections: Sequence[Link] = ()
    """The parts of this page."""
    offline: bool = False
    """Whether the page is one file, with style and script inside."""
    figures: bool = False
    """Whether Vega is loaded."""
    refresh_s: int = 0
    """Seconds after which the page is asked for again; 0: never."""


def render(template: str, frame: Frame, **values: Any) -> str:
    """A page. `values` are what its template names."""
    return environment().get_template(template).render(frame=frame, **values)


@functools.cache
def environment() -> "jinja2.Environment":
    """The templates of this package, with autoescape everywhere."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("evalkit.view"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["json"] = json_inside
    made.globals.update(inline_style=_inline_style, inline_script=_inline_script, policy=offline_policy)
    return made


def _shown(value: Any) -> Any:
    """What a template prints: texts with control and direction characters written as escapes."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value)
    return value


def json_inside(value: Any) -> "Markup":
    """A value as JSON that can stand inside a `<script type="application/json">`: no text in it can close the element."""
    from markupsafe import Markup

    text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)  # noqa: S704: every character that HTML knows is an escape now


@functools.cache
def asset(name: str) -> bytes:
    """A file of `static/`, or Vega's bundle. Raises KeyError for any other name."""
    if name == VEGA:
        return _vega()
    if name not in (STYLE, SCRIPT):
        raise KeyError(name)
    return (files("evalkit.view") / "static" / name).read_bytes()


def _vega() -> bytes:
    """Vega, Vega-Lite and Vega-Embed as one script, which vl-convert carries: making it takes seconds."""
    import vl_convert

    return vl_convert.javascript_bundle().encode()


def _inline_style() -> "Markup":
    from markupsafe import Markup

    return Markup(asset(STYLE).decode())  # noqa: S704: our own file


def _inline_script(name: str) -> "Markup":
    from markupsafe import Markup

    return Markup(_script_text(name))  # noqa: S704: our own file, and Vega's with its closing tags written otherwise


def _script_text(name: str) -> str:
    return asset(name).decode().replace("</script", "<\\/script").replace("<!--", "<\\!--")


def offline_policy(*, figures: bool) -> str:
    """The content security policy of a page in one file: nothing from anywhere, only the scripts it was written with."""
    scripts = [_script_text(name) for name in ([VEGA, SCRIPT] if figures else [SCRIPT])]
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'sha256-{_digest(asset(STYLE).decode())}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
