"""How figures look: one Vega configuration, light and dark, laid over a spec when it is drawn.

Colours follow Okabe and Ito ("Color Universal Design", 2008), which readers with any colour vision tell apart; yellow
and black, which vanish on white or on black, give way to brown and grey, and all are lighter on black.
An agent has the colour and shape of its place in the manifest, so they are the same in every figure of a run.
"""

from typing import Any

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
        "header": {
            "labelColor": ink,
            "labelFontSize": 12,
            "labelFontWeight": 600,
            "labelLimit": 320,
            "title": None,
        },
        "view": {"stroke": None},
        "range": {"category": list(DARK if dark else LIGHT)},
        "mark": {"color": ink},
        "rule": {"color": ink},
        "text": {"color": ink, "font": FONT, "fontSize": 11.5},
        "style": {"quiet": {"color": quiet, "fill": quiet, "stroke": quiet}, "quiet-text": {"fill": quiet}},
    }
