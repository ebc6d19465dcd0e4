"""Figures: what their specs hold, which numbers they stand on, and the files made of them."""

import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalkit.cli.main import main
from evalkit.envs.table import ENVIRONMENTS
from evalkit.frozen.manifest import Manifest
from evalkit.report.environments import pricing, procurement, scheduling
from evalkit.report.extras import Curve
from evalkit.report.figures import curves
from evalkit.report.figures.build import figures, run_figures, score_figures
from evalkit.report.figures.draw import DARK, LIGHT, bundle, config, page, png, script_json, svg
from evalkit.report.report import Report, report
from evalkit.report.vega import MOST_MARKS, Figure, spec_of
from evalkit.report.views import open_views
from evalkit.store.files.schema import steps_table
from tests.report.vega_bundle import built
from tests.support.guessing_runs import a_manifest, a_suite, an_agent, report_of, rows, search
from tests.vegalite import schema_flaw

SPEC = """\
width = 8
agents = [{ policy = "random" }, { policy = "knuth" }, { policy = "climber" }, { policy = "learner" },
    { policy = "greedy" }, { policy = "replanner" }, { policy = "planner" }, { policy = "oracle" }]
suites = [{ name = "scheduling/basic", vary = { periods = [5] } },
    { name = "procurement/basic", vary = { periods = [4] } },
    { name = "pricing/basic", vary = { periods = [4] } }, { name = "costbench/basic", vary = { seed = [1, 2] } },
    { name = "costbench/basic", vary = { block = ["ban_tool", "cost_change"], blocks = [1] } },
    { name = "costbench/basic" }]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    (folder / "all.toml").write_text(SPEC)
    assert main(["run", str(folder / "all.toml"), "--dir", str(folder / "all")]) == 0
    return folder / "all"


@pytest.fixture(scope="module")
def made(run: Path) -> dict[str, Figure]:
    return {one.name: one for one in run_figures(run, report(run))}


def parts(spec: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a spec with the key it stands under, data and what lists names left out."""
    if isinstance(spec, Mapping):
        for name, value in spec.items():
            if name not in {"data", "domain", "values", "sort"}:
                yield from parts(value, name)
    elif isinstance(spec, list):
        for value in spec:
            yield from parts(value, key)
    else:
        yield key, spec


def marks(figure: Figure) -> list[dict[str, Any]]:
    """The rows of data in a spec."""
    return [row for row in rows_in(figure.spec) if row]


def rows_in(spec: Any) -> Iterator[dict[str, Any]]:
    if isinstance(spec, Mapping):
        yield from spec.get("data", {}).get("values", ())
    for part in spec.values() if isinstance(spec, Mapping) else spec if isinstance(spec, list) else ():
        yield from rows_in(part)


@pytest.mark.exhaustive
def test_a_figure_appears_where_the_run_has_its_data(made: dict[str, Figure], the_report: Report) -> None:
    assert set(made) == {
        "figure_scores",
        "figure_own_blocking",
        "figure_own_seeds",
        "figure_coverage",
        "figure_adaptation",
        "figure_runs_procurement",
        "figure_runs_scheduling",
        "figure_runs_pricing",
        "figure_periods_procurement",
        "figure_periods_scheduling",
        "figure_periods_pricing",
        "figure_prices",
    }
    assert [one.name for one in figures(the_report)] == [
        "figure_scores",
        "figure_cost",
    ]


@pytest.mark.exhaustive
def test_specs_are_plain_bounded_and_the_same_each_time(run: Path, made: dict[str, Figure]) -> None:
    again = run_figures(run, report(run))
    assert [json.dumps(one.spec) for one in again] == [json.dumps(one.spec) for one in made.values()]
    for figure in made.values():
        assert re.fullmatch("[a-z0-9_-]+", figure.name)
        assert "config" not in figure.spec
        assert schema_flaw(figure.spec) == ""
        assert figure.spec["$schema"].startswith("https://vega.github.io/schema/vega-lite/v6")
        assert 0 < len(marks(figure)) <= MOST_MARKS
        assert figure.query == figure.table.query
        assert not [key for key, _ in parts(figure.spec) if key in {"url", "href"}]


@pytest.mark.exhaustive
def test_every_query_of_a_figure_can_be_asked(run: Path, made: dict[str, Figure]) -> None:
    views = open_views(run)
    for figure in made.values():
        for query in figure.query.split("\n\n"):
            if query.strip() and "select" in query:
                assert views.sql(query).num_rows, figure.name


def test_every_episode_is_drawn_as_sql_counts_it(run: Path, made: dict[str, Figure]) -> None:
    figure = made["figure_runs_scheduling"]
    asked = open_views(run).sql(figure.query).to_pylist()
    key = ("suite", "agent", "instance", "replicate")
    expected = {tuple(row[name] for name in key): row for row in asked}
    assert len(expected) == len(figure.table.rows) == 36
    for row in figure.table.rows:
        found = expected[tuple(row[name] for name in key)]
        assert (row["score"], row["exploration"]) == pytest.approx((found["score"], found["exploration"]))


@pytest.mark.exhaustive
def test_curves_end_where_scores_are(run: Path, made: dict[str, Figure]) -> None:
    scores = {(row["axis:periods"], row["agent"]): row["score"] for row in report(run).table("scores").rows[:3]}
    last = {row["agent"]: row["mean"] for row in made["figure_periods_scheduling"].table.rows if row["period"] == 4}
    assert last == pytest.approx({agent: score for (_, agent), score in scores.items()})
    prices = [row["value"] for row in made["figure_prices"].table.rows if row["agent"] == "oracle"]
    assert prices == pytest.approx([1.0] * 4, abs=0.02)  # prices are set in cents


SUITES = {"procurement": "procurement/hard", "scheduling": "scheduling/medium", "pricing": "pricing/hard"}


def actions(environment: str, draw: np.random.Generator) -> list[dict[str, Any]]:
    if environment == "procurement":
        made: list[dict[str, Any]] = [
            {"feasible": bool(draw.random() < 0.7), "totals": [int(x) for x in draw.integers(0, 90_000, 10)], "cost": 1}
            for _ in range(30)
        ]
        return [
            {**one, "product": str(math.prod(one["totals"])), "repeat": False, "repeat_text": False} for one in made
        ]
    if environment == "scheduling":
        return [{"blocking": int(x), "repeat": False} for x in draw.integers(0, 90, 30)]
    return [{"profits": [float(x) for x in draw.random(5)], "repeat": False} for _ in range(30)]


CURVES = [one.EXTRAS.curves[0] for one in (procurement, scheduling, pricing)]


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.environment)
def test_a_series_is_what_the_score_is_made_of(curve: Curve) -> None:
    environment = ENVIRONMENTS[curve.environment]
    file = Path(__file__).parents[2] / "instances" / f"{SUITES[curve.environment]}.jsonl"
    instance = environment.load(json.loads(file.read_text().splitlines()[0]))
    played = list(enumerate(actions(curve.environment, np.random.default_rng(3))))
    facts = [{"period": period, "action": action, "calls": []} for period, action in played]
    series = curve.series(instance, played, 100)
    score = environment.score(instance, facts)
    if curve.environment == "pricing":
        assert series[50:].mean() / 100 == pytest.approx(score.value)
        assert series[:10].mean() / 100 == pytest.approx(score.metrics["early_score"])
    else:
        first = next(period for period, action in played if action.get("feasible", True))
        assert series[-1] / 100 == pytest.approx(score.metrics.get("reference_score", score.value))
        assert series[first] / 100 == pytest.approx(score.metrics["first_score"])


def hostile_report(name: str) -> Report:
    manifest: Manifest = a_manifest([an_agent(name), an_agent("b")], [a_suite("s", [3, 5, 7])])
    log = [
        row
        for agent in (name, "b")
        for i in range(3)
        for row in rows(manifest, agent, "s", f"i{i}", 0, search(3 + 2 * i))
    ]
    return report_of(manifest, steps_table(log))


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize(
    "name",
    ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\u202egnp.exe", "datum['x']", "n" * 400],
)
def test_names_are_data_and_never_code(name: str) -> None:
    found = figures(hostile_report(name))
    assert len(found) == 2
    for figure in found:
        shown = {row["agent"] for row in marks(figure)}
        assert len(shown) == 2
        assert not any("\u202e" in one for one in shown)
        assert not [key for key, value in parts(figure.spec) if value in shown]
        assert svg(figure).startswith("<svg")
    text = page(name, found).replace(bundle(), "")
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "\u202e" not in text


def test_json_in_a_script_cannot_end_it() -> None:
    text = script_json({"a": "</script><!--&\u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!--&\u2028"}


def test_the_bundle_loads_nothing_and_ends_no_script() -> None:
    assert "</script" not in bundle()
    assert "window.vegaEmbed" in bundle()


@pytest.mark.exhaustive
def test_the_bundle_is_what_vl_convert_makes() -> None:
    assert bundle() == built(), "call `python -m tests.report.vega_bundle`"


@pytest.mark.exhaustive
def test_pictures_are_made_for_print_and_change_with_the_theme(made: dict[str, Figure]) -> None:
    figure = made["figure_scores"]
    light, dark = svg(figure), svg(figure, dark=True)
    assert config()["background"] in light
    assert config(dark=True)["background"] in dark
    assert LIGHT[0] in light
    assert DARK[0] in dark
    width = float(re.search(r'width="([\d.]+)"', light)[1])  # type: ignore[index]
    image = png(figure)
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    # 96 pixels of a page are an inch, and so are 300 of a printed picture.
    assert int.from_bytes(image[16:20]) == pytest.approx(width * 300 / 96, abs=2)
    density = image[image.index(b"pHYs") + 4 :][:9]
    assert struct.unpack(">IIB", density) == (11811, 11811, 1)  # pixels a metre


@pytest.mark.exhaustive
def test_report_writes_files_of_each_figure(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "figures"
    assert main(["report", str(run), "--figures", str(folder)]) == 0
    assert "12 figures" in capsys.readouterr().out
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 5 * 12 + 1
    assert {name.partition("figure_scores")[2] for name in names if name.startswith("figure_scores")} == {
        *(".svg", ".png", ".pdf", "-slide.pdf", ".csv")
    }
    text = (folder / "index.html").read_text()
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=.?https?:", text)
    assert (folder / "figure_scores.csv").read_text().startswith("suite,axis:")
    assert text.count("<figure ") == 12
    (tmp_path / "file").write_text("")
    assert main(["report", str(run), "--figures", str(tmp_path / "file" / "in")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_an_agent_has_one_colour_in_all_figures(made: dict[str, Figure]) -> None:
    domains = {json.dumps(scale["domain"]) for figure in made.values() for scale in colours(figure.spec)}
    assert domains == {
        json.dumps(["random", "knuth", "climber", "learner", "greedy", "replanner", "planner", "oracle"])
    }


def colours(spec: Any) -> Iterator[dict[str, Any]]:
    """The scales of colours of agents."""
    if isinstance(spec, Mapping):
        if (spec.get("color") or {}).get("field") == "agent":
            yield spec["color"]["scale"]
        for value in spec.values():
            yield from colours(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from colours(value)


def test_many_cells_are_thinned_and_say_so() -> None:
    suites = [f"s{i}" for i in range(8)]
    found = [
        {"suite": suite, "agent": "a", "period": period, "value": 1.0, "low": 0.0, "high": 2.0, "episodes": 3}
        for suite in suites
        for period in range(2000)
    ]
    kept, notes = curves._thinned(found)
    assert len(kept) <= MOST_MARKS
    assert {row["suite"] for row in kept} == set(suites[:6])
    assert len(notes) == 2


def test_absurd_prices_leave_the_others_readable(made: dict[str, Figure]) -> None:
    found = [
        {"suite": "s", "agent": "a", "period": period, "value": value, "low": 0.0, "high": 2 * value, "mean": value}
        for period, value in enumerate([1.0, 1e13, 1.2, 1e300])
    ]
    spec = spec_of(curves._chart(["a"], pricing.EXTRAS.curves[1], found), "Prices")
    ((low, high),) = domains_of(spec)
    assert (low, high) == (pytest.approx(-0.2), pytest.approx(4.2))
    assert png(replace(made["figure_prices"], spec=spec))
    filters = [one["filter"] for layer in layers_of(spec) for one in layer.get("transform", []) if "filter" in one]
    assert filters == [f"datum.low < {low}", f"datum.high > {high}"]  # a triangle where a band goes on
    whole = curves._figure(["a"], pricing.EXTRAS.curves[1], [], [{**row, "episodes": 1} for row in found], 10)
    assert subtitle(whole)[-1] == "Triangle: it goes on below 0 or above 4"


def test_a_figure_says_in_itself_what_its_marks_are(made: dict[str, Figure], the_report: Report) -> None:
    """Who sees the picture alone reads no notes."""
    cost = next(one for one in figures(the_report) if one.name == "figure_cost")
    assert subtitle(cost)[1] == "Mean score with its 95 % interval"
    drawn = {one.name: made[one.name] for one in (*CURVES, pricing.EXTRAS.curves[1]) if one.name in made}
    assert drawn
    for name, figure in drawn.items():
        low, high = next(one.most for one in (*CURVES, pricing.EXTRAS.curves[1]) if one.name == name)
        outside = any(not low <= row[key] <= high for row in figure.table.rows for key in ("value", "low", "high"))
        assert any(line.startswith("Triangle: ") for line in subtitle(figure)) == outside


def subtitle(figure: Figure) -> list[str]:
    found: list[str] = figure.spec["title"]["subtitle"]
    return found


def layers_of(spec: Any) -> Iterator[dict[str, Any]]:
    """Every layer of a spec, wherever it stands."""
    if isinstance(spec, Mapping):
        if "mark" in spec:
            yield dict(spec)
        for key in ("layer", "spec", "vconcat", "hconcat"):
            yield from layers_of(spec.get(key))
    elif isinstance(spec, list):
        for one in spec:
            yield from layers_of(one)


def domains_of(spec: Any) -> set[tuple[float, float]]:
    """The ends of its axes of values."""
    axes = [layer["encoding"].get("y", {}).get("scale", {}).get("domain") for layer in layers_of(spec)]
    return {tuple(one) for one in axes if one is not None}


CURVE_NAMES = ("figure_periods_procurement", "figure_periods_scheduling", "figure_periods_pricing", "figure_prices")


@pytest.mark.parametrize("name", CURVE_NAMES)
def test_every_agent_has_a_panel_and_its_band_holds_its_line(made: dict[str, Figure], name: str) -> None:
    figure = made[name]
    blocks = figure.spec["vconcat"]
    assert [block["facet"]["field"] for block in blocks] == ["agent"] * len(blocks)
    assert all(row["low"] <= row["value"] <= row["high"] for row in figure.table.rows)
    ((low, high),) = domains_of(figure.spec)
    curve = next(one for one in (*CURVES, pricing.EXTRAS.curves[1]) if one.name == name)
    for row in marks(figure):
        # Within the plot with room to spare, so that no line is cut lengthwise; but for what is absurd.
        assert low < max(row["low"], curve.most[0])
        assert min(row["high"], curve.most[1]) < high


@pytest.mark.exhaustive
def test_a_band_holds_the_line_of_skewed_episodes(run: Path) -> None:
    cell = next(one for one in report(run).cells if one.suite.environment == "pricing" and one.agent == "random")
    one_absurd = {episode.id: [(0, {"profits": [10.0**9 * (i == 0)]})] for i, episode in enumerate(cell.prefix)}
    first = next(curves._rows(CURVES[2], cell, one_absurd, 100))
    assert first["low"] <= first["value"] <= first["high"] < first["mean"]


def test_intervals_stand_where_means_do(made: dict[str, Figure]) -> None:
    drawn = {name: marks(made[name]) for name in ("figure_coverage", "figure_adaptation", "figure_scores")}
    for found in drawn.values():
        known = [row for row in found if row["low"] is not None]
        assert known
        assert all(row["low"] <= row["value"] <= row["high"] for row in known)
    assert any(row["low"] < row["value"] < row["high"] for row in drawn["figure_scores"] if row["low"] is not None)


def test_a_figure_is_of_a_table_with_its_query(the_report: Report) -> None:
    (figure,) = score_figures(["good", "poor", "late"], replace(the_report.table("scores"), query="select 1"))
    assert figure.query == "select 1"
    assert {row["agent"] for row in marks(figure)} == {"good", "poor", "late"}
