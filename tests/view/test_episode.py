"""The page of an episode: its charts, its conversation, and that nothing a model wrote is more than text."""

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest

from evalkit.report.charts.drawing import episode_figures
from evalkit.report.views import open_views
from evalkit.results.show import open_episode
from evalkit.view import episode as module
from evalkit.view.chat import PartView, TurnView, bounded_to
from evalkit.view.episode import episode_figure, episode_frame, episode_page, period_page
from evalkit.view.reading import Reading
from evalkit.view.render import episode_address, place_of, render
from evalkit.view.run_cache import RunCache
from tests.view.conftest import ask

ENVIRONMENTS = ("scheduling", "procurement", "pricing", "costbench")


def id_of(reading: Reading, agent: str, environment: str) -> str:
    return next(
        episode.id
        for cell in reading.report.cells
        for episode in cell.episodes
        if (episode.agent, episode.environment) == (agent, environment)
    )


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_page_shows_the_charts_and_every_turn(run: Path, reading: Reading, environment: str) -> None:
    episode = id_of(reading, "noisy", environment)
    (said,) = ask(RunCache([run]), f"/run/shown/episode/{episode}")
    found = open_episode(run, episode)
    figures = episode_figures(environment, found.target, episode, found.moves)
    assert said.status == 200
    assert re.findall(r'id="figure-([a-z_]+)"', said.text) == [one.name for one in figures]
    anchors = re.findall(r'<section class="turn" id="(p\d+t\d+)"', said.text)
    assert anchors == [f"p{move.period}t{move.turn}" for move in found.moves]
    assert found.result.score is not None
    assert f"{100 * found.result.score:.1f}" in said.text
    assert len(said.text.encode()) < 300_000


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_query_of_a_page_is_answered(run: Path, reading: Reading, environment: str) -> None:
    page = episode_page(run, "shown", id_of(reading, "noisy", environment))
    views = open_views(run)
    (facts,) = views.sql(page.query).to_pylist()
    assert next(one.value for one in page.facts) == f"{facts['score']:.1f}"
    metrics = {row["metric"]: row["value"] for row in views.sql(page.metrics_query).to_pylist()}
    assert metrics.keys() == page.metrics.keys()
    for figure in page.figures:
        drawn = episode_figure(run, page.id, figure.name)
        assert views.sql(drawn.query).num_rows > 0
        assert drawn.command.startswith("evalkit sql ")


@pytest.mark.exhaustive
def test_charts_come_when_they_are_scrolled_near(run: Path, reading: Reading) -> None:
    episode = id_of(reading, "noisy", "scheduling")
    (page,) = ask(RunCache([run]), f"/run/shown/episode/{episode}")
    sources = re.findall(r'<figure class="block coming" id="figure-\w+" data-from="([^"]+)"', page.text)
    assert len(sources) == len(episode_page(run, "shown", episode).figures) > 0
    assert "application/json" not in page.text.partition("<main")[2].partition("</main>")[0]
    drawn = ask(RunCache([run]), *sources, f"{sources[0]}s")
    for source, said in zip(sources, drawn[:-1], strict=True):
        assert said.status == 200
        assert f'data-spec="spec-{source.rpartition("/")[2]}"' in said.text
    assert drawn[-1].status == 404


def test_a_page_of_hundreds_of_steps_is_small(run: Path, reading: Reading) -> None:
    page = episode_page(run, "shown", id_of(reading, "noisy", "pricing"))
    (period, *_) = page.periods
    text = PartView(kind="read", title="result", text="x" * 1200, folded=False)
    turn = TurnView(anchor="p0t0", title="turn 0", numbers="step 0", parts=(text, text))
    periods = [replace(period, number=i, anchor=f"p{i}", opening=(), turns=(turn,) * 3) for i in range(100)]
    shown = replace(page, periods=bounded_to(periods, module.INLINE))
    html = render("episode.html", episode_frame(shown, "shown"), page=shown)
    assert html.count('<section class="turn"') > 20
    assert html.count("data-part=") > 50
    assert len(html.encode()) < 300_000


def test_the_numbers_of_a_chart_are_those_its_query_gives(run: Path, reading: Reading) -> None:
    views = open_views(run)

    def asked(environment: str, name: str) -> tuple[list[dict[str, object]], tuple[dict[str, object], ...]]:
        found = open_episode(run, id_of(reading, "noisy", environment))
        figures = {one.name: one for one in episode_figures(environment, found.target, found.result.id, found.moves)}
        return views.sql(figures[name].query).to_pylist(), tuple(map(dict, figures[name].table.rows))

    given, drawn = asked("scheduling", "quality")
    assert [(row["period"], row["blocking"]) for row in given] == [(row["period"], row["blocking"]) for row in drawn]
    given, drawn = asked("procurement", "spending")
    assert [row["cents"] for row in given] == [round(100 * float(str(row["spent"]))) for row in drawn]
    given, drawn = asked("pricing", "profits")
    earned = {row["period"]: row["profit"] for row in drawn}
    assert [row["profit"] for row in given] == pytest.approx([earned[row["period"]] for row in given])
    given, drawn = asked("costbench", "costs")
    assert [(row["tool"], row["outcome"]) for row in given][: len(drawn)] == [
        (row["tool"], row["outcome"]) for row in drawn
    ]


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_what_a_model_wrote_is_text(run: Path, reading: Reading, environment: str) -> None:
    episode = id_of(reading, "hostile", environment)
    where = f"/run/shown/episode/{episode}"
    for said in ask(
        RunCache([run]), where, f"{where}/period/0", f"{where}/period/0?full=1", f"{where}/period/0?part=1"
    ):
        assert said.status == 200
        assert "&lt;script&gt;window.hacked" in said.text
        assert not re.search(r"<script>window|<img|<[bi]>|\u202e", said.text)
        assert "{{ 7 * 7 }}" in said.text


def test_what_is_too_much_for_a_page_comes_by_period(
    run: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    episode = id_of(reading, "noisy", "pricing")
    whole = episode_page(run, "shown", episode)
    assert all(period.turns for period in whole.periods)
    for name in ("INLINE", "OFFLINE"):
        monkeypatch.setattr(module, name, 10)
    cut = episode_page(run, "shown", episode)
    first, *others = cut.periods
    assert first.turns
    assert others
    assert not any(period.turns for period in others)
    assert [period.line for period in cut.periods] == [period.line for period in whole.periods]
    alone = period_page(run, "shown", episode, 1)
    assert alone.period.turns == whole.periods[1].turns
    (page, part) = ask(RunCache([run]), f"/run/shown/episode/{episode}", f"{others[0].href}?part=1")
    assert f'data-part="{others[0].href}?part=1"' in page.text
    assert 'id="p1t0"' not in page.text
    assert 'id="p1t0"' in part.text
    assert "<html" not in part.text
    left_out = episode_page(run, "shown", episode, offline=True)
    assert not any(period.href for period in left_out.periods)


def test_a_text_is_cut_and_shown_whole_on_request(run: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BOUND", 20)
    episode = id_of(reading, "hostile", "pricing")
    cut, whole = (period_page(run, "shown", episode, 0, full=full) for full in (False, True))
    assert "more characters" in cut.period.turns[0].parts[0].text
    assert "more characters" not in whole.period.turns[0].parts[0].text
    place = next(place_of(one) for cell in reading.report.cells for one in cell.episodes if one.id == episode)
    assert unquote(cut.full) == f"/run/shown/episode/{place}/period/0?full=1"
    assert whole.full == ""


def test_periods_lead_to_their_neighbours(run: Path, reading: Reading) -> None:
    episode = id_of(reading, "oracle", "pricing")
    result = next(one for cell in reading.report.cells for one in cell.episodes if one.id == episode)
    where = episode_address("/run/shown", result)
    found = [period_page(run, "shown", episode, number) for number in (0, 1, 3)]
    assert [(one.before, one.after) for one in found] == [
        ("", f"{where}/period/1"),
        (f"{where}/period/0", f"{where}/period/2"),
        (f"{where}/period/2", ""),
    ]
    assert found[1].episode == f"{where}#p1"


def test_what_is_not_there_is_said(run: Path, reading: Reading) -> None:
    episode = id_of(reading, "oracle", "pricing")
    paths = ["/run/shown/episode/nothing", f"/run/shown/episode/{episode}/period/4", "/run/other/episode/x"]
    paths += [f"/run/shown/episode/{episode}/period/x", f"/run/shown/episode/{episode}/period/-1"]
    said = ask(RunCache([run]), *paths)
    assert [one.status for one in said] == [404] * 5
    assert "so there is no period 4" in said[1].text


def test_what_replay_does_not_reproduce_is_warned_of(
    run: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = open_episode(run, id_of(reading, "oracle", "pricing"))
    other = replace(found, moves=(found.moves[0], *(replace(move, reproduced=False) for move in found.moves[1:2])))
    monkeypatch.setattr(module, "_opened", lambda *_: other)
    page = episode_page(run, "shown", found.result.id)
    assert any("does not reproduce the log at 1 step (1)" in line for line in page.warnings)
    assert any("has not ended" in line for line in page.warnings)
    assert [period.warned for period in page.periods] == [False, True] or page.periods[0].warned
