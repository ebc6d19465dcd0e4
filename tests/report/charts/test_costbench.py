"""The charts of CostBench: losses are the score's gap, and whoever follows the truth loses nothing whatever happens."""

import pytest

from evalkit.report.charts.path import DrawnCall, aligned, short_name
from evalkit.report.environments.costbench import costbench_figures, path_of
from tests.support.chart_episodes import Played, line_of, played

BLOCKS = ("ban_tool", "preference_change", "remove_tools", "cost_change", "mixed")


def costbench(agent: str, place: int = 0, *, seed: int = 0, **more: object) -> Played:
    line = line_of("costbench/length-6", place, **more)
    if more:
        line = {key: value for key, value in line.items() if key not in ("optimum", "alternatives")}
    return played("costbench", line, agent, seed=seed)


def test_the_oracle_loses_nothing() -> None:
    episode = costbench("oracle")
    found = path_of(episode.target, episode.moves)
    assert [pair.relation for pair in found.pairs] == ["agrees"] * len(found.optimal_costs)
    assert [call.lost for call in found.calls] == [0] * len(found.calls)
    assert found.calls[-1].spent == sum(found.optimal_costs) == found.start
    assert found.goal


@pytest.mark.parametrize("kind", [kind for kind in BLOCKS if kind not in ("preference_change", "mixed")])
def test_what_happens_is_not_the_agents_loss(kind: str) -> None:
    episode = costbench("oracle", block=kind, blocks=2)
    found = path_of(episode.target, episode.moves)
    assert sum(len(call.events) for call in found.calls) == 2
    assert [call.lost for call in found.calls] == [0] * len(found.calls)
    assert {pair.relation for pair in found.pairs} == {"agrees"}
    assert found.start is not None
    assert found.calls[-1].spent == found.start + sum(call.world or 0 for call in found.calls)
    assert kind != "ban_tool" or sum(call.world or 0 for call in found.calls) > 0


@pytest.mark.parametrize("agent", ["random", "greedy", "noisy", "replanner"])
def test_losses_add_up_to_the_gap(agent: str) -> None:
    reached = 0
    for place in range(4):
        episode = costbench(agent, place, seed=place)
        found = path_of(episode.target, episode.moves)
        metrics, charged = episode.score.metrics, [call for call in found.calls if call.charged]
        lost = [call.lost for call in found.calls]
        assert found.goal == bool(metrics["goal"])
        assert len(found.calls) == metrics["calls"]
        assert (charged[-1].spent if charged else 0) / 100 == pytest.approx(metrics["cost"])
        assert sum(found.optimal_costs) / 100 == pytest.approx(metrics["optimal_cost"])
        assert episode.score.solved == (found.goal and not any(lost))
        if found.goal:
            reached += 1
            assert sum(one or 0 for one in lost) / 100 == pytest.approx(metrics["gap"])
    assert reached


def called(step: int, tool: str, outcome: str = "ok") -> DrawnCall:
    charged = outcome in ("ok", "banned", "failed")
    return DrawnCall(
        step=step,
        tool=tool,
        outcome=outcome,
        charged=charged,
        cost=5,
        spent=5,
        left=0,
        lost=0,
        world=0,
        events=(),
    )


@pytest.mark.parametrize(
    ("calls", "optimal", "expected"),
    [
        ("", "", ""),
        ("a b", "a b", "agrees agrees"),
        ("a x b", "a b", "agrees extra agrees"),
        ("b", "a b", "missed agrees"),
        ("a x", "a b", "agrees instead"),
        ("a b!banned b!banned c", "a b c", "agrees agrees failed agrees"),
        ("a!missing a b", "a b", "refused agrees agrees"),
        ("a b!bad_id", "a", "agrees refused"),
        ("x!unknown_tool", "a", "missed refused"),
    ],
)
def test_paths_are_aligned(calls: str, optimal: str, expected: str) -> None:
    made = [called(i, *word.split("!")) for i, word in enumerate(calls.split())]
    tools = optimal.split()
    found = aligned(made, tools, [7] * len(tools))
    assert " ".join(pair.relation for pair in found) == expected
    assert [pair.call for pair in found if pair.call] == made
    assert [pair.tool for pair in found if pair.tool] == tools


def test_names_are_short_and_visible() -> None:
    assert short_name("Shopping_Refine_Step1_to_Step5", "Shopping") == "Refine Step1 to Step5"
    assert short_name("Shopping", "Shopping") == "Shopping"
    assert short_name("a\u202eb", "") == "a\\u202eb"
    assert len(short_name("x" * 5_000, "")) < 120


def test_what_happened_stands_between_the_calls() -> None:
    episode = costbench("oracle", block="cost_change", blocks=1)
    path, costs = costbench_figures(episode.target, "e", episode.moves)
    drawn = path.spec["data"]["values"]
    (event,) = [i for i, row in enumerate(drawn) if row["event"]]
    assert drawn[event]["event"] == "cost change"
    assert drawn[event - 1]["row"] == drawn[event]["row"]
    assert [row["event"] for row in costs.table.rows].count("cost change") == 1
    assert costs.table.rows[-1]["total"] == costs.table.rows[-1]["spent"]
