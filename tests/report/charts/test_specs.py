"""Every chart can be drawn, is bounded, and says what it shows and which query gives its numbers."""

import json
import re

import pytest

from evalkit.report.charts.drawing import episode_figures, period_lines
from evalkit.report.extras import extras_of
from evalkit.report.vega import MOST_MARKS
from tests.support.chart_episodes import Played, line_of, played
from tests.vegalite import schema_flaw

SUITES = {
    "scheduling": ("scheduling/basic", {"periods": 6}, "noisy"),
    "procurement": ("procurement/basic", {"periods": 6}, "noisy"),
    "pricing": ("pricing/medium", {"periods": 6}, "noisy"),
    "costbench": ("costbench/medium", {}, "random"),
}


def episode_of(environment: str) -> Played:
    suite, more, agent = SUITES[environment]
    return played(environment, line_of(suite, **more), agent)


@pytest.mark.parametrize("environment", sorted(SUITES))
def test_a_chart_compiles_and_says_what_it_is(environment: str) -> None:
    vl_convert = pytest.importorskip("vl_convert")
    episode = episode_of(environment)
    figures = episode_figures(environment, episode.target, "it's", episode.moves)
    assert len(figures) >= 2
    assert len({figure.name for figure in figures}) == len(figures)
    for figure in figures:
        assert re.fullmatch(r"[a-z_]+", figure.name)
        assert vl_convert.vegalite_to_vega(json.dumps(figure.spec))["marks"]
        assert "config" not in figure.spec
        assert schema_flaw(figure.spec) == ""
        assert "'it''s'" in figure.query
        assert figure.query == figure.table.query
        assert figure.notes[0].endswith(".")
        assert " ".join(figure.spec["title"]["subtitle"]) == figure.notes[0]
        assert json.dumps(figure.spec).count('"who"') < MOST_MARKS
        assert {column.key for column in figure.table.columns} <= {*figure.table.rows[0]}


@pytest.mark.parametrize("environment", sorted(SUITES))
def test_an_episode_without_an_action_has_no_periods_to_speak_of(environment: str) -> None:
    target = episode_of(environment).target
    assert period_lines(environment, target, ()) == {}
    assert {figure.name for figure in episode_figures(environment, target, "e", ())} <= {"path", "costs"}


def test_an_environment_without_charts_has_none() -> None:
    assert extras_of("errand").charts is None
    assert episode_figures("errand", None, "e", ()) == ()
    assert period_lines("errand", None, ()) == {}
