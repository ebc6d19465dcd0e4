"""One instance across agents, and trajectories beside each other."""

import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from evalkit.report.views import open_views
from evalkit.view.comparing import instance_page
from evalkit.view.reading import Reading
from evalkit.view.render import episode_address, instance_address, place_of
from evalkit.view.run_cache import RunCache
from tests.view.browser import chromium, tab
from tests.view.conftest import ask
from tests.view.test_episode_browser import served

ENVIRONMENTS = ("scheduling", "procurement", "pricing", "costbench")


def on_instance(reading: Reading, environment: str) -> tuple[str, str, list[str]]:
    """(suite, instance, places of its episodes)."""
    episodes = [one for cell in reading.report.cells for one in cell.episodes if one.environment == environment]
    suite, instance = episodes[0].suite, episodes[0].instance
    return suite, instance, [place_of(one) for one in episodes if (one.suite, one.instance) == (suite, instance)]


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_an_instance_shows_every_agent_on_one_scale_with_the_optimum(
    run: Path, reading: Reading, environment: str
) -> None:
    suite, instance, places = on_instance(reading, environment)
    page = instance_page(reading, "shown", f"{suite}/{instance}")
    assert sorted(card.place for card in page.cards) == sorted(places)
    assert len({card.href for card in page.cards}) == len(page.cards)
    specs = [card.spec for card in page.cards if card.spec]
    assert len(specs) == len(places)
    scales = {
        json.dumps([layer["encoding"][side]["scale"] for side in "xy"]) for one in specs for layer in one["layer"]
    }
    assert len(scales) == 1
    for spec in specs:
        # The layer behind is drawn over the one before.
        assert [layer["data"]["values"][0]["who"] for layer in spec["layer"] if layer["data"]["values"]] in (
            ["optimum", "agent"],
            ["optimum"],
        )
    best = next(card.spec for card in page.cards if card.title == "oracle" and card.spec)
    ends = [layer["data"]["values"][-1]["y"] for layer in best["layer"]]
    assert ends[0] == pytest.approx(ends[1], rel=1e-3)  # shown profits are rounded
    scores = open_views(run).sql(page.grid.query).to_pylist()
    assert sorted(f"{row['score']:.1f}" for row in scores) == sorted(card.score for card in page.cards)


def test_pages_of_instances_lead_to_trajectories_and_back(run: Path, reading: Reading) -> None:
    suite, instance, places = on_instance(reading, "pricing")
    where = instance_address("/run/shown", suite, instance)
    episode = next(one for cell in reading.report.cells for one in cell.episodes if place_of(one) == places[0])
    (page, alone, none) = ask(
        RunCache([run]), where, episode_address("/run/shown", episode), "/run/shown/instance/pricing/basic/seed-77"
    )
    assert page.status == 200
    assert all(f'value="{place}"' in unescape(page.text) for place in places)
    assert f'href="{where}"' in unescape(alone.text)
    for place in places:
        assert f"/run/shown/episode/{place}" in unquote(unescape(page.text))
    assert none.status == 404
    assert "no episode on the instance" in none.text


def test_trajectories_lie_beside_each_other_and_their_number_is_bounded(run: Path, reading: Reading) -> None:
    _, _, places = on_instance(reading, "pricing")
    two, one, four = ask(
        RunCache([run]),
        *(
            "/run/shown/beside?" + "&".join(f"episode={quote(place)}" for place in chosen)
            for chosen in (places[:2], places[:1], [*places, "x"])
        ),
    )
    assert two.status == 200
    anchors = re.findall(r' id="(s\d-p\d+)"', two.text)
    assert len(anchors) == len(set(anchors))
    assert {"s1-p0", "s2-p0", "s1-p1", "s2-p1"} <= set(anchors)
    assert (one.status, four.status) == (400, 400)
    assert "Choose two or three trajectories" in one.text


@pytest.mark.exhaustive
@pytest.mark.parametrize(("width", "columns"), [(1400, 2), (400, 1)])
def test_the_instance_is_drawn_and_opens_trajectories_beside_each_other(
    run: Path, reading: Reading, width: int, columns: int
) -> None:
    suite, instance, places = on_instance(reading, "costbench")
    where = instance_address("/run/shown", suite, instance)
    with chromium() as browser, served(run) as url, tab(browser, url + where, width=width) as opened:
        page = opened.page
        page.locator(".card .plot[data-drawn=yes] svg").nth(len(places) - 1).wait_for()
        assert opened.overflow() <= 0
        page.get_by_role("button", name=re.compile("beside each other")).click()
        page.wait_for_url("**/beside?*")
        lefts = {round(box["x"]) for box in (one.bounding_box() for one in page.locator(".side").all()) if box}
        assert len(lefts) == columns
        assert opened.overflow() <= 0
        opened.clean()
