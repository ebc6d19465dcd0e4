"""What an episode is expected to take: priors from stand-ins, corrected by what really ended."""

import asyncio
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from evalkit.engine.forecast import (
    FILE,
    Forecast,
    Prior,
    beyond,
    learn_all,
    ranged,
    read_priors,
)
from evalkit.engine.resume import read_holdings
from evalkit.engine.stand_in import (
    LEAST_STEPS,
    PLAIN,
    SampledCell,
    admitted,
    forecast_run,
    make_priors,
    play_sample,
    play_samples,
    stand_in_of,
)
from evalkit.engine.status import read_status
from evalkit.engine.universe import Choice, cells
from tests.support.each_case import check_each
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served, served

A, B = "a", "b"


def prior(agent: str = "model", suite: str = A, *, cost: float = 1000.0, requests: float = 10.0) -> Prior:
    return Prior(
        agent=agent,
        suite=suite,
        stand_in="knuth",
        played=3,
        cost=cost,
        requests=requests,
        tokens_in=500.0,
        tokens_out=50.0,
    )


def test_before_anything_has_ended_the_prior_is_all_there_is() -> None:
    forecast = Forecast([prior()])
    assert forecast.whole("model", A) == (1000, 10, 500, 50)
    assert forecast.rest("model", A, cost=0, requests=0) == pytest.approx(1000)
    assert forecast.seen("model", A) is None
    low, expected, high = forecast.remaining("model", A, 4)
    assert low < expected / 1.5
    assert expected == 4000
    assert high > expected * 1.5


def test_what_ends_outweighs_the_prior() -> None:
    forecast = Forecast([prior()])
    ranges = []
    for _ in range(60):
        forecast.learn("model", A, cost=3000, requests=20)
        ranges.append(forecast.remaining("model", A, 10))
    whole = forecast.whole("model", A)
    assert whole.cost == pytest.approx(3000, rel=0.04)
    assert whole.requests == pytest.approx(20, rel=0.04)
    assert whole.tokens_in == pytest.approx(1500, rel=0.04)
    assert forecast.ended("model", A) == 60
    width = [one.high / one.low for one in ranges]
    assert width[-1] < width[9] < width[0]
    assert all(one.low <= 30_000 <= one.high for one in ranges[3:])


def test_replies_tell_that_a_model_is_dearer_before_its_first_episode_has_ended() -> None:
    forecast = Forecast([prior()])
    forecast.hear("model", A, cost=4000, requests=4)
    assert forecast.whole("model", A).cost == pytest.approx(10 * (4 * 100 + 4000) / 8)
    cheap = Forecast([prior()])
    cheap.hear("model", A, cost=4, requests=4)
    assert cheap.whole("model", A).cost == 1000  # later requests are dearer than first ones
    assert not cheap.proven("model", A)
    cheap.learn("model", A, cost=100, requests=10)
    assert cheap.whole("model", A).cost == 550
    assert cheap.proven("model", A)


def test_the_longest_episode_is_known_from_its_replies_on() -> None:
    forecast = Forecast([structs.replace(prior(), longest=14)])
    assert forecast.longest("model", A) == 14
    forecast.hear("model", A, cost=100, requests=1, reached=17)
    forecast.hear("model", A, cost=100, requests=1, reached=3)
    assert forecast.longest("model", A) == 17
    forecast.learn("model", A, cost=9000, requests=90)
    assert forecast.longest("model", A) == forecast.whole("model", A).requests


def test_the_order_in_which_episodes_end_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    ended = [(name, int(cost), int(count)) for name in (A, B) for cost, count in rng.integers(1, 999, (20, 2))]
    one, other = Forecast([prior(), prior(suite=B)]), Forecast([prior(), prior(suite=B)])
    for forecast, order in ((one, ended), (other, ended[::-1])):
        for suite, cost, requests in order:
            forecast.learn("model", suite, cost=cost, requests=requests)
    assert one.whole("model", A) == pytest.approx(other.whole("model", A))
    assert one.rest("model", B, cost=70, requests=3) == pytest.approx(other.rest("model", B, cost=70, requests=3))


@pytest.mark.parametrize("learned", [0, 5, 500])
@pytest.mark.parametrize("dearness", [0.2, 1.0, 5.0])
def test_the_rest_is_positive_however_far_an_episode_has_come(learned: int, dearness: float) -> None:
    forecast = Forecast([prior()])
    for _ in range(learned):
        forecast.learn("model", A, cost=1000, requests=10)
    for part in (0.1, 0.5, 0.9, 1.0, 1.1, 2.0, 10.0, 1e3, 1e6):
        cost, requests = int(1000 * dearness * part), int(10 * part)
        rest = forecast.rest("model", A, cost=cost, requests=requests)
        assert rest >= 0.99 * 1000 / 10, part  # a request at least
        assert rest < max(3000 * max(1, dearness), 20 * cost), part
    half = forecast.rest("model", A, cost=500, requests=5)
    assert 400 < half < 1000
    assert forecast.rest("model", A, cost=500 * 3, requests=5) > half


def test_a_cell_that_costs_nothing_has_nothing_left_to_pay() -> None:
    forecast = Forecast([prior(cost=0.0)])
    assert forecast.rest("model", A, cost=0, requests=4) == 0
    assert forecast.remaining("model", A, 9) == (0, 0, 0)
    forecast.learn("model", A, cost=0, requests=30)
    assert forecast.whole("model", A).requests == 20


def test_without_a_prior_what_has_ended_is_taken_alone() -> None:
    forecast = Forecast()
    assert forecast.whole("model", A).cost == 0
    assert forecast.rest("model", A, cost=700, requests=4) == 700
    forecast.learn("model", A, cost=100, requests=4)
    forecast.learn("model", A, cost=300, requests=8)
    assert forecast.whole("model", A)[:2] == (200, 6)
    assert forecast.rest("model", A, cost=0, requests=0) == 200


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("past", [0.3, 1.0, 1.6])
def test_what_is_beyond_is_the_mean_of_what_is_left_of_the_larger_ones(spread: float, past: float) -> None:
    s = math.sqrt(math.log1p(spread**2))
    rng = np.random.default_rng(7)
    drawn = np.exp(rng.normal(-(s**2) / 2, s, 4_000_000))
    larger = drawn[drawn > past] - past
    if len(larger) > 1000:
        assert beyond(1.0, spread, past) == pytest.approx(larger.mean(), rel=0.05)


def test_what_is_beyond_goes_on_where_the_tails_underflow() -> None:
    values = [beyond(1.0, 0.05, 1.02**power) for power in range(400)]
    assert all(value > 0 for value in values)
    steps = [later / earlier for earlier, later in itertools.pairwise(values[100:])]
    assert all(1.0 < step < 1.05 for step in steps)


def test_a_range_is_as_wide_below_as_above_and_narrows_as_more_is_known() -> None:
    low, expected, high = ranged(100.0, 4, 1)
    assert 0 < low < expected < high
    assert low * high == pytest.approx(expected**2)
    assert low < ranged(100.0, 4, 50).low < ranged(100.0, 40, 50).low < 100


PAID = """
[[agents]]
name = "mini"
provider = "openai"
model = "gpt-4.1-mini"
[[agents]]
name = "dear"
provider = "openai"
model = "gpt-4.1"
[[agents]]
policy = "oracle"
[[suites]]
name = "procurement/basic"
[[suites]]
name = "costbench/basic"
"""


@pytest.mark.exhaustive
def test_priors_take_few_requests_repeat_exactly_and_differ_in_price_alone(tmp_path: Path) -> None:
    manifest = resolved(tmp_path, PAID).manifest
    made = asyncio.run(make_priors(manifest))
    assert made == asyncio.run(make_priors(manifest))
    place = {(one.agent, one.suite): one for one in made}
    assert {agent for agent, _ in place} == {"mini", "dear"}
    for suite in manifest.suites:
        mini, dear = place["mini", suite], place["dear", suite]
        assert (mini.tokens_in, mini.requests) == (dear.tokens_in, dear.requests)
        assert dear.cost == pytest.approx(5 * mini.cost)
    only = asyncio.run(make_priors(manifest, known={one: prior for one, prior in place.items() if one[0] == "mini"}))
    assert {one.agent for one in only} == {"dear"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("suite", ["procurement/basic", "pricing/basic", "scheduling/hard"])
def test_the_beginning_of_an_episode_tells_what_the_whole_takes(tmp_path: Path, suite: str) -> None:
    text = PAID.replace("procurement/basic", suite)
    manifest = resolved(tmp_path, text).manifest
    kind = manifest.suites[suite].environment
    cell = cells(manifest)["mini", kind]
    episode = next(admitted(manifest, cell, manifest.suites[suite]))
    stand_in = stand_in_of(manifest.agents["mini"], kind)
    whole = asyncio.run(play_sample(episode, stand_in, PLAIN))
    begun = asyncio.run(play_sample(episode, stand_in, PLAIN, 4 * LEAST_STEPS + 1))
    assert begun.cut
    assert not whole.cut
    assert begun.requests == pytest.approx(whole.requests, rel=0.05)
    assert begun.tokens_in == pytest.approx(whole.tokens_in, rel=0.15)


def test_an_episode_that_outlasts_its_share_is_not_left_out(tmp_path: Path) -> None:
    manifest = resolved(tmp_path, PAID.replace("procurement/basic", "scheduling/basic")).manifest
    suite = manifest.suites["scheduling/basic"]
    cell = cells(manifest)["mini", "scheduling"]
    stand_in = stand_in_of(manifest.agents["mini"], "scheduling")
    lengths = [
        asyncio.run(play_sample(episode, stand_in, PLAIN)).requests
        for episode in itertools.islice(admitted(manifest, cell, suite), 2)
    ]
    assert LEAST_STEPS <= lengths[0] < lengths[1]
    # Enough for the first episode, not for the second.
    one = SampledCell(manifest.agents["mini"], suite, cell)
    samples = asyncio.run(play_samples(manifest, [one], steps=lengths[0] + 1))[one.place]
    assert [sample.requests for sample in samples] == lengths


def test_a_run_writes_its_priors_once_and_its_ended_episodes_correct_them(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(periods=3, replicates=3))
    run = tmp_path / "run"
    go_served(sweep, run)
    (run / FILE).unlink(missing_ok=True)
    held = read_holdings(run).cells
    forecast = asyncio.run(forecast_run(sweep.manifest, held, run, Choice()))
    written = (run / FILE).read_bytes()
    assert [(one.agent, one.suite) for one in read_priors(run)] == list(forecast.priors)
    for (agent, suite), before in forecast.priors.items():
        seen = forecast.seen(agent, suite)
        assert seen is not None
        assert forecast.ended(agent, suite) == 12
        # Stand-ins of simulated models are the models themselves.
        assert before.cost == pytest.approx(seen.cost, rel=0.3)
        assert abs(forecast.whole(agent, suite).cost - seen.cost) <= abs(before.cost - seen.cost)
    assert sum(one.cost for one in held.values()) == pytest.approx(
        sum(12 * seen.cost for place in forecast.priors if (seen := forecast.seen(*place)))
    )
    more = replace(sweep, manifest=resolved(tmp_path, served(periods=4), "other").manifest)
    asyncio.run(forecast_run(more.manifest, {}, run, Choice()))
    assert len(read_priors(run)) == 4
    assert (run / FILE).read_bytes() != written


def damaged(whole: bytes) -> dict[str, bytes]:
    """The file of priors in states that it may be found in."""
    plain = json.loads(whole)
    cell = plain["cells"][0]
    wrong = {"agent": 3, "cost": "much", "played": 1.5, "itself": None, "requests": -1, "tokens_in": 1e300}.items()
    cells = {f"{name} {value}": [{**cell, name: value}] for name, value in wrong}
    return {
        "half": whole[: len(whole) // 2],
        "nothing": b"",
        "null": b"null",
        "random": bytes(range(256)) * 9,
        "nested": b"[" * 100_000,
        "other": b'{"version": 1, "cells": 3}',
        "a number beyond": whole.replace(b'"cost": ', b'"cost": 9' + b"9" * 400, 1),
        **{name: json.dumps({**plain, "cells": other}).encode() for name, other in cells.items()},
    }


def test_priors_that_cannot_be_read_are_made_again(tmp_path: Path) -> None:
    assert read_priors(tmp_path) == []
    sweep = resolved(tmp_path, served(periods=3))
    run = tmp_path / "run"
    go_served(sweep, run)
    asyncio.run(forecast_run(sweep.manifest, {}, run, Choice()))
    whole = (run / FILE).read_bytes()
    (run / FILE).unlink()
    told = read_status(run).to_json()

    def check(data: bytes) -> None:
        (run / FILE).write_bytes(data)
        assert read_priors(run) == []
        assert read_status(run).to_json()["cells"] == told["cells"]
        asyncio.run(forecast_run(sweep.manifest, {}, run, Choice()))
        assert (run / FILE).read_bytes() == whole

    check_each(damaged(whole).items(), check)
    with (run / FILE).open("wb") as file:
        file.truncate(1 << 40)  # which takes no disk, and would take all memory
    assert read_priors(run) == []
    (run / FILE).unlink()
    (run / FILE).mkdir()
    assert len(asyncio.run(forecast_run(sweep.manifest, {}, run, Choice())).priors) == len(json.loads(whole)["cells"])


def test_a_run_that_holds_nothing_teaches_nothing(tmp_path: Path) -> None:
    forecast = Forecast([prior()])
    learn_all(forecast, resolved(tmp_path).manifest, {})
    assert forecast.ended("model", A) == 0
