from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from evalkit.envs.costbench.score import Walk
from evalkit.envs.environment import outcomes
from evalkit.envs.table import ENVIRONMENTS
from evalkit.frozen.instances import ManifestInstance
from evalkit.frozen.manifest import Manifest, ManifestPack, ManifestSuite
from evalkit.replies import encode_reply
from evalkit.report.environments import costbench
from evalkit.report.quotes import BOUND, NO_FAULT, Quote, error_kinds, quotes, quotes_table
from evalkit.report.run_data import RunData
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.results.moves import Move
from tests.report.test_planning import an_episode
from tests.support.episode_loop import Episode, kit, play, policy
from tests.support.guessing_runs import a_manifest, an_agent

LINES: Mapping[str, Mapping[str, Any]] = {
    "costbench": {"length": 4, "task": "dining"},
    "procurement": {"periods": 12},
    "scheduling": {"n": 6, "periods": 12},
}
SEEDS = {"costbench": 24, "procurement": 3, "scheduling": 3}


class Run:
    """`noisy` on a few instances of one environment."""

    def __init__(self, name: str) -> None:
        env, pack = ENVIRONMENTS[name], kit(name).pack
        lines = {line["id"]: line for line in env.generate(LINES[name], SEEDS[name], 5)}
        self.played: dict[str, Episode] = {}
        results = []
        for i, line in lines.items():
            done = self.played[i] = play(env, line, policy("noisy", env.name, instance=env.load(line)))
            results.append(result_of(i, done, name))
        instances = tuple(ManifestInstance(id=i, digest=i, stratum="", line=line) for i, line in lines.items())
        suite = ManifestSuite(
            name="s", base="s", axes={}, environment=name, environment_version=1, digest="", instances=instances
        )
        agent = an_agent("a", packs={name: "d0"})
        manifest = a_manifest([agent], [suite])
        held = {"d0": ManifestPack(name=pack.name, digest=pack.digest, texts=pack.texts)}
        self.manifest = Manifest(
            **{**{key: getattr(manifest, key) for key in manifest.__struct_fields__}, "packs": held}
        )
        self.cell = Cell(
            agent="a",
            suite=suite,
            pack=pack.name,
            planned=len(results),
            episodes=tuple(results),
            prefix=tuple(results),
        )
        self.asked: list[str] = []

    def read(self, episodes: Sequence[EpisodeResult]) -> dict[str, list[dict[str, Any]]]:
        self.asked += [one.id for one in episodes]
        return {
            one.id: [
                {"step": i, "reply": encode_reply(reply), "step_digest": b"", "ending": ""}
                for i, reply in enumerate(self.played[one.id].replies)
            ]
            for one in episodes
        }

    def quotes(self) -> tuple[Quote, ...]:
        return quotes(self.manifest, [self.cell], self.read)


def result_of(name: str, done: Episode, environment: str) -> EpisodeResult:
    return an_episode(
        name,
        done.score.metrics,
        id=name,
        environment=environment,
        outcomes=tuple((*kind, count) for kind, count in Counter(outcomes(done.facts)).items()),
        ending=done.ending,
        steps=len(done.facts),
        without_call=sum(one.get("calls") == [] for one in done.facts),
        no_action=int(done.score.metrics.get("no_action_periods", 0)),
        periods=2,
    )


@pytest.fixture(scope="module", params=list(LINES))
def run(request: pytest.FixtureRequest) -> Run:
    return Run(request.param)


def test_each_kind_is_quoted_where_it_first_happens(run: Run) -> None:
    found = run.quotes()
    assert len({one.kind for one in found}) == len(found) > 5
    for one in found:
        facts = run.played[one.example.id].facts
        reply = run.played[one.example.id].replies[one.step]
        assert one.said == reply.text or one.said in [f"{call.name}({call.arguments})" for call in reply.calls]
        assert one.answer
        if one.kind.startswith("refused: "):
            outcome = one.kind.removeprefix("refused: ").replace(" ", "_")
            places = [i for i, fact in enumerate(facts) if outcome in [call["outcome"] for call in fact["calls"]]]
            assert places[0] == one.step
            assert one.count == sum(
                call["outcome"] == outcome
                for done in run.played.values()
                for fact in done.facts
                for call in fact["calls"]
            )
        assert one.share == pytest.approx(100 * one.episodes / len(run.cell.prefix))


def test_nothing_that_happened_goes_unquoted(run: Run) -> None:
    outcomes = {outcome for one in run.cell.prefix for _, outcome, _ in one.outcomes} - NO_FAULT
    refused = {f"refused: {outcome.replace('_', ' ')}" for outcome in outcomes}
    known = RunData(run.manifest, [run.cell])
    others = {kind.name for kind in error_kinds([run.cell]) if any(known.values(f"({kind.sql})::int").values())}
    assert {one.kind for one in run.quotes()} == refused | others


def test_the_same_run_gives_the_same_quotes_in_any_order(run: Run) -> None:
    turned = replace(run.cell, prefix=run.cell.prefix[::-1])
    assert list(quotes(run.manifest, [turned], run.read)) == list(run.quotes())


def test_only_the_chosen_episodes_are_read() -> None:
    run = Run("scheduling")
    found = run.quotes()
    assert set(run.asked) == {one.example.id for one in found}
    assert len(run.asked) == len(set(run.asked))


def test_repeated_calls_and_calls_behind_the_goal_are_found() -> None:
    run = Run("costbench")
    kinds = {one.kind: one for one in run.quotes()}
    assert {"repeated call", "wrong answer"} & kinds.keys()
    for kind, metric in (("repeated call", "repeated"), ("call behind the goal", "extra")):
        total = sum(one.metrics[metric] for one in run.cell.prefix)
        assert (kinds[kind].count if kind in kinds else 0) == total


def test_a_hostile_call_stays_one_bounded_line() -> None:
    example = an_episode("i", {}, id="0123", periods=3)
    said = "fly(\x1b[31m\u202e\n" + "x" * 10_000 + ")"
    quote = Quote(
        environment="costbench",
        kind="refused: unknown tool",
        count=1,
        unit="calls",
        episodes=1,
        share=1.0,
        example=example,
        step=4,
        period=2,
        turn=0,
        said=said,
        answer="<b>no</b>",
    )
    row = quotes_table([quote], [], "runs/my run").rows[0]
    assert row["said"].startswith("fly(\\x1b[31m\\u202e xxx")
    assert len(row["said"]) < 2 * BOUND
    assert row["said"].endswith(f"{len(' '.join(said.split())) - BOUND:,} more characters")
    assert row["command"] == "evalkit show 'runs/my run' 0123 --period 2"


def test_the_first_repeated_call_of_a_long_episode_is_found_by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, first = 1_000, 700
    walks: list[int] = []

    def walked(_: object, facts: Sequence[object]) -> Walk:
        walks.append(len(facts))
        return Walk(repeated=max(0, len(facts) - first))

    monkeypatch.setattr(costbench, "walked", walked)
    played = [Move(row={}, period=0, turn=0, opening=(), offered=(), reply=None, facts={}) for _ in range(steps)]
    kind = next(one for one in costbench.ERRORS if one.name == "repeated call")
    assert kind.find(None, played) == (first, 0)
    assert kind.find(None, played[:first]) is None
    assert len(walks) < 50
