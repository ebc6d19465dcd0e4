"""Figures as files: SVG, PNG, the numbers as CSV, and a page that opens offline. Nothing is fetched.

How they look is one Vega configuration, light and dark, laid over a spec when it is drawn. Colours follow Okabe and Ito
("Color Universal Design", 2008), which readers with any colour vision tell apart; yellow and black, which vanish on
white or on black, give way to brown and grey, and all are lighter on black. An agent has the colour and shape of its
place in the manifest, so they are the same in every figure of a run.
"""

import gzip
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from evalkit.files import write_whole
from evalkit.report.tables import as_csv
from evalkit.report.vega import Figure
from evalkit.text import visible

LIGHT = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F", "#6E6E6E")
DARK = ("#4DA3DB", "#F08A4B", "#2FC49B", "#E3A3C8", "#F2B84B", "#8CCBF2", "#C9AD62", "#BDBDBD")
"""Category colours, in order; after the last they begin again, with the next shape."""

SHAPES = ("circle", "diamond", "square", "triangle-up", "cross")

DASHES = ((1, 0), (5, 3), (2, 2), (8, 3, 2, 3), (12, 4))
"""Of lines, as `SHAPES` of dots."""

FONT = 'system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif'

LONGEST_NAME = 150
"""Pixels for a name beside an axis or in a legend; longer ones are cut with an ellipsis, and whole in the tooltip."""


def config(*, dark: bool = False) -> dict[str, Any]:
    """The Vega-Lite configuration."""
    ink, quiet, grid, ground = (
        ("#E6E6E6", "#A8A8A8", "#34373C", "#16181C") if dark else ("#222222", "#5F5F5F", "#E6E6E6", "#FFFFFF")
    )
    return {
        "background": ground,
        "font": FONT,
        "padding": 8,
        "title": {
            "anchor": "start",
            "frame": "group",
            "color": ink,
            "fontSize": 14,
            "fontWeight": 600,
            "subtitleColor": quiet,
            "subtitleFontSize": 11.5,
            "offset": 10,
        },
        "axis": {
            "labelColor": ink,
            "labelFontSize": 11.5,
            "labelLimit": LONGEST_NAME,
            "titleColor": quiet,
            "titleFontSize": 11.5,
            "titleFontWeight": "normal",
            "titlePadding": 6,
            "domainColor": quiet,
            "tickColor": quiet,
            "gridColor": grid,
            "tickSize": 4,
            "labelFlush": False,
        },
        "axisBand": {"grid": False},
        "legend": {
            "orient": "top",
            "direction": "horizontal",
            "labelColor": ink,
            "labelFontSize": 11.5,
            "labelLimit": LONGEST_NAME,
            "titleColor": quiet,
            "titleFontSize": 11.5,
            "titleFontWeight": "normal",
            "symbolSize": 70,
            "columnPadding": 14,
            "rowPadding": 3,
        },
        "header": {"labelColor": ink, "labelFontSize": 12, "labelFontWeight": 600, "labelLimit": 320, "title": None},
        "view": {"stroke": None},
        "range": {"category": list(DARK if dark else LIGHT)},
        "mark": {"color": ink},
        "rule": {"color": ink},
        "text": {"color": ink, "font": FONT, "fontSize": 11.5},
        "style": {"quiet": {"color": quiet, "fill": quiet, "stroke": quiet}, "quiet-text": {"fill": quiet}},
    }


VEGALITE = "6.4"
"""The version of Vega-Lite that draws; the specs are of its major version."""

CSS_DPI, PRINT_DPI = 96, 300
"""Pixels an inch, of a style sheet and of a printed picture: what is 400 pixels wide in a page is 4.2 inches wide in
print, its text 8.6 points high."""

EMBED: Mapping[str, Any] = {
    "mode": "vega-lite",
    "renderer": "svg",
    "ast": True,
    "actions": {"export": True, "source": False, "compiled": False, "editor": False},
}
"""Options of `vegaEmbed`. With `ast` expressions are interpreted, so that a page may forbid `eval`; nothing leads away
from the page."""


def _drawn(form: str, spec: Mapping[str, Any], *, dark: bool = False, **more: float) -> Any:
    """A spec as vl-convert draws it: `svg`, `png` or `pdf`."""
    import vl_convert

    convert = getattr(vl_convert, f"vegalite_to_{form}")
    return convert(dict(spec), vl_version=VEGALITE, config=config(dark=dark), allowed_base_urls=[], **more)


def svg(figure: Figure, *, dark: bool = False) -> str:
    """The figure as an SVG document."""
    return str(_drawn("svg", figure.spec, dark=dark))


def png(figure: Figure) -> bytes:
    """The figure as a PNG for print, tagged with its density."""
    # vl-convert draws `ppi` / 72 pixels for each of the figure's, times `scale`.
    return bytes(_drawn("png", figure.spec, scale=72 / CSS_DPI, ppi=PRINT_DPI))


def pdf(figure: Figure, spec: Mapping[str, Any] | None = None) -> bytes:
    """The figure as a page of its size, for papers; `spec`: another form of it."""
    return bytes(_drawn("pdf", figure.spec if spec is None else spec))


SLIDE = 16 / 9
"""Width by height."""
MOST_COLUMNS = 6
_SIZE = re.compile(r'<svg [^>]*?viewBox="0 0 ([\d.]+) ([\d.]+)"')


def slide(figure: Figure) -> bytes:
    """The figure as a page for a slide, 16 by 9: panels stand in as many columns as make them largest there."""
    forms = [dict(figure.spec)]
    if "facet" in figure.spec and isinstance(figure.spec["facet"], dict):
        forms += [{**figure.spec, "columns": columns} for columns in range(2, MOST_COLUMNS + 1)]
    if "vconcat" in figure.spec:
        across = {key: value for key, value in figure.spec.items() if key != "vconcat"}
        forms.append({**across, "hconcat": figure.spec["vconcat"]})
    best, room, lacks = forms[0], math.inf, (0.0, 0.0)
    for form in forms:
        found = _SIZE.search(svg(replace(figure, spec=form)))
        if found is None:
            continue
        width, height = float(found[1]), float(found[2])
        page = max(width, SLIDE * height)
        if page < room:
            best, room, lacks = form, page, (page - width, page / SLIDE - height)
    (wide, high), pad = lacks, config()["padding"]
    sides = {"left": wide / 2, "right": wide / 2, "top": high / 2, "bottom": high / 2}
    return pdf(figure, {**best, "padding": {side: pad + more for side, more in sides.items()}})


BUNDLE = Path(__file__).with_name("vega.js.gz")
"""Bundling takes two CPU seconds, so the file is shipped: `python -m tests.report.vega_bundle` makes it anew."""


@cache
def bundle() -> str:
    """JavaScript that defines `vegaEmbed`; it stands in a page once and loads nothing else."""
    return gzip.decompress(BUNDLE.read_bytes()).decode()


def script_json(value: Any) -> str:
    """A value as JSON that may stand inside a `<script>` element."""
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


_STYLE = """
:root { color-scheme: light dark; --ink: #222; --quiet: #5f5f5f; --ground: #fff; --line: #e6e6e6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --quiet: #a8a8a8; --ground: #16181c; --line: #34373c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 0 auto;
  max-width: 60rem; padding: 1rem; }
h1 { font-size: 1.35rem; }
figure { margin: 0 0 2.5rem; }
figure svg { max-width: 100%; height: auto; }
figcaption, details { color: var(--quiet); font-size: .87rem; max-width: 46rem; }
figcaption p { margin: .2rem 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; border-left: 2px solid var(--line); padding-left: .8rem; }
"""

_SHOW = """
const dark = matchMedia('(prefers-color-scheme: dark)');
function show() {
  for (const [name, spec] of Object.entries(SPECS)) {
    vegaEmbed('#' + name + ' .drawn', spec, {...EMBED, config: dark.matches ? CONFIGS[1] : CONFIGS[0]});
  }
}
dark.addEventListener('change', show);
show();
"""


def page(title: str, figures: Sequence[Figure]) -> str:
    """One HTML page with these figures, interactive, and the library inline: it opens offline."""
    parts = [
        f'<figure id="{figure.name}"><div class="drawn"></div>'
        f"<figcaption>{''.join(f'<p>{html.escape(visible(note))}</p>' for note in figure.notes)}</figcaption>"
        f"<details><summary>query</summary><pre>{html.escape(figure.query)}</pre></details></figure>"
        for figure in figures
    ]
    values = {
        "SPECS": {figure.name: figure.spec for figure in figures},
        "EMBED": EMBED,
        "CONFIGS": [config(), config(dark=True)],
    }
    constants = "".join(f"const {name} = {script_json(value)};\n" for name, value in values.items())
    shown, body = html.escape(visible(title)), "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{shown}</title><style>{_STYLE}</style></head>\n<body><h1>{shown}</h1>\n{body}\n"
        f"<script type=module>{bundle()}</script>\n<script type=module>{constants}{_SHOW}</script></body></html>\n"
    )


def write_figures(folder: Path, run: str, figures: Iterable[Figure]) -> None:
    """Write each figure as NAME.svg, NAME.png, NAME.pdf, NAME-slide.pdf and NAME.csv (its numbers), and all in one
    page, index.html.

    `run`: what the page is titled. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for figure in figures:
        drawn.append(figure)
        write_whole(folder / f"{figure.name}.svg", svg(figure).encode())
        write_whole(folder / f"{figure.name}.png", png(figure))
        write_whole(folder / f"{figure.name}.pdf", pdf(figure))
        write_whole(folder / f"{figure.name}-slide.pdf", slide(figure))
        write_whole(folder / f"{figure.name}.csv", as_csv(figure.table).encode())
    write_whole(folder / "index.html", page(f"Figures of {run}", drawn).encode())
