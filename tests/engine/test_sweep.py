import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from evalkit.engine.status import read_status
from evalkit.engine.universe import Choice
from evalkit.errors import CorruptLogError, EpisodeUnavailable, RunError
from evalkit.store.files.schema import STEPS
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import scan
from tests.support.small_sweeps import TWO_POLICIES, resolved
from tests.support.sweep_runs import go, go_served, served, with_budget

TIMING = ("latency_s", "queue_s", "started_at", "worker")


def rows(run: Path) -> list[dict[str, Any]]:
    """The step table without its timing columns, in order."""
    found = scan(run, [name for name in STEPS.names if name not in TIMING]).to_pylist()
    return sorted(found, key=lambda row: (row["episode"], row["step"]))


def test_a_sweep_is_played_and_then_complete(tmp_path: Path) -> None:
    sweep = resolved(tmp_path)
    outcome = go(sweep, tmp_path / "run")
    assert (outcome.exit_code, outcome.reason, outcome.episodes, outcome.remaining) == (0, "complete", 16, 0)
    again = go(sweep, tmp_path / "run")
    assert (again.exit_code, again.steps, again.ended) == (0, 0, 16)


def test_a_run_in_pieces_is_the_run_in_one(tmp_path: Path) -> None:
    sweep = resolved(tmp_path)
    go(sweep, tmp_path / "whole")
    first = go(sweep, tmp_path / "pieces", limit=3)
    assert (first.exit_code, first.reason, first.ended) == (3, "limit", 3)
    only = Choice(agents=frozenset({"random"}))
    assert go(sweep, tmp_path / "pieces", choice=only).remaining == 0
    assert go(sweep, tmp_path / "pieces").exit_code == 0
    assert rows(tmp_path / "pieces") == rows(tmp_path / "whole")


def test_a_run_is_extended_by_agents_suites_and_replicates(tmp_path: Path) -> None:
    go(resolved(tmp_path), tmp_path / "run")
    grown = TWO_POLICIES.replace("replicates = 2", "replicates = 3").replace("periods = [5]", "periods = [5, 3]")
    grown += '[[agents]]\npolicy = "oracle"\n'
    outcome = go(resolved(tmp_path, grown), tmp_path / "run")
    assert outcome.exit_code == 0
    assert outcome.episodes == 3 * 3 * 8
    status = read_status(tmp_path / "run")
    assert sum(cell.planned for cell in status.cells) == 72
    assert all(cell.remaining == 0 for cell in status.cells)


def test_over_http_a_sweep_repeats_exactly_and_costs_what_the_bill_says(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served())
    outcome, simulator = go_served(sweep, tmp_path / "a")
    assert outcome.exit_code == 0
    assert outcome.spent == simulator.totals.bill > 0
    go_served(sweep, tmp_path / "b", {"latency": "uniform:1ms:9ms"})
    assert rows(tmp_path / "a") == rows(tmp_path / "b")


def test_in_process_and_over_http_the_same_policy_does_the_same(tmp_path: Path) -> None:
    go_served(resolved(tmp_path, served()), tmp_path / "served")
    inside = TWO_POLICIES.replace("replicates = 2", "").replace("periods = [5]", "periods = [4]")
    go(resolved(tmp_path, inside), tmp_path / "inside")
    facts = [
        sorted((row["agent"], row["instance"], row["step"]) for row in rows(tmp_path / name))
        for name in ("served", "inside")
    ]
    assert len(facts[0]) > 50
    assert {row[:2] for row in facts[0]} == {row[:2] for row in facts[1]}


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("fault", ["429", "500", "reset", "truncated", "early_reset"])
def test_faults_are_absorbed_and_the_bill_stays_below_what_is_counted(tmp_path: Path, fault: str) -> None:
    sweep = resolved(tmp_path, served(periods=2))
    simulate = {f"fault_{fault}": 0.1, "retry_after": "10ms"}
    outcome, simulator = go_served(sweep, tmp_path / "run", simulate)
    assert outcome.exit_code == 0
    assert simulator.totals.by_outcome[fault] > 0
    assert simulator.totals.bill <= outcome.spent
    quiet, _ = go_served(sweep, tmp_path / "quiet")
    facts = [
        [(row["episode"], row["step"], row["reply"]) for row in rows(tmp_path / name)] for name in ("run", "quiet")
    ]
    assert facts[0] == facts[1]
    assert quiet.exit_code == 0


def test_the_budget_is_never_passed_and_the_run_goes_on_when_it_is_raised(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served())
    whole, _ = go_served(sweep, tmp_path / "whole")
    bills, outcome = 0, None
    bound = 40_000_000_000  # what one request may cost at most: 8,192 tokens out, and its body
    for budget in (bound, whole.spent * 9 // 10, whole.spent * 3 // 2 + bound):
        outcome, simulator = go_served(with_budget(sweep, budget), tmp_path / "run")
        bills += simulator.totals.bill
        assert bills == outcome.spent
        assert outcome.spent <= budget
        if budget < whole.spent:
            assert (outcome.exit_code, outcome.reason) == (3, "budget")
            assert "The budget of" in outcome.messages[0]
    assert outcome is not None
    assert outcome.exit_code == 0
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def test_the_deadline_stops_the_run_and_the_next_call_goes_on(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(more='deadline = "2s"', width=2, periods=8))
    outcome, _ = go_served(sweep, tmp_path / "run", {"latency": "150ms"})
    assert (outcome.exit_code, outcome.reason) == (3, "deadline")
    assert outcome.steps > 0
    done, _ = go_served(resolved(tmp_path, served(width=2, periods=8)), tmp_path / "run")
    assert done.exit_code == 0


def test_the_deadline_reaches_those_who_wait_for_a_limit(tmp_path: Path) -> None:
    limit = '[limits."simulated/knuth"]\nrequests_per_minute = 2\n'
    sweep = resolved(tmp_path, served(more='deadline = "300ms"', width=2) + limit)
    outcome, _ = go_served(sweep, tmp_path / "run")
    assert (outcome.exit_code, outcome.reason) == (3, "deadline")
    assert "knuth" not in read_index(tmp_path / "run").cost_by_agent  # its first request would be sent after 30 s


def test_a_wrong_model_ends_its_lane_alone(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served())
    outcome, _ = go_served(sweep, tmp_path / "run", {"models": ["random"]})
    assert (outcome.exit_code, outcome.reason) == (3, "lane")
    assert (outcome.ended, outcome.remaining) == (4, 4)
    assert any("simulated/knuth" in message and "knuth" in message for message in outcome.messages)


def test_a_context_that_is_too_long_is_the_models_own_ending(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served())
    outcome, _ = go_served(sweep, tmp_path / "run", {"context_tokens": 9000})
    assert outcome.exit_code == 0
    endings = {row["ending"] for row in rows(tmp_path / "run") if row["ending"]}
    assert "context_length" in endings
    last = [row for row in rows(tmp_path / "run") if row["ending"] == "context_length"]
    assert all(row["reply"] is None for row in last)
    retried, _ = go_served(sweep, tmp_path / "run", retry=frozenset({"context_length"}))
    assert retried.exit_code == 0
    whole, _ = go_served(sweep, tmp_path / "whole")
    replies = [[(row["episode"], row["step"], row["reply"]) for row in rows(tmp_path / n)] for n in ("run", "whole")]
    assert replies[0] == replies[1]
    assert whole.spent == retried.spent


@pytest.mark.parametrize("bug", [ZeroDivisionError, SystemExit])
def test_a_bug_ends_its_episode_alone_and_is_kept(
    bug: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evalkit.client.outside import PolicyAsker

    plain = PolicyAsker.ask

    async def buggy(self: PolicyAsker, question: Any) -> Any:
        if question.step == 2 and question.episode.startswith(tuple("01234567")):
            raise bug("a planted bug")
        return await plain(self, question)

    sweep = resolved(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(PolicyAsker, "ask", buggy)
        outcome = go(sweep, tmp_path / "run")
    assert outcome.exit_code == 1
    assert 0 < outcome.broken == outcome.remaining < 16
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    deferred = [event for event in events if event["kind"] == "deferred"]
    assert len(deferred) == outcome.broken
    assert all("a planted bug" in event["detail"] for event in deferred)
    same_version = go(sweep, tmp_path / "run")
    assert (same_version.exit_code, same_version.steps) == (1, 0)
    retried = go(sweep, tmp_path / "run", retry=frozenset({"internal_error"}))
    assert retried.exit_code == 0
    go(sweep, tmp_path / "whole")
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def test_ten_bugs_in_a_row_stop_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evalkit.client.outside import PolicyAsker

    async def buggy(self: PolicyAsker, question: Any) -> Any:
        raise ZeroDivisionError("a planted bug")

    monkeypatch.setattr(PolicyAsker, "ask", buggy)
    outcome = go(resolved(tmp_path), tmp_path / "run")
    assert outcome.reason == "errors"
    assert "10 episodes in a row" in outcome.messages[0]


def test_an_unavailable_provider_parks_episodes_that_are_owed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evalkit.client.outside import PolicyAsker

    plain = PolicyAsker.ask

    async def away(self: PolicyAsker, question: Any) -> Any:
        if question.step == 1:
            raise EpisodeUnavailable("gone fishing")
        await asyncio.sleep(0)
        return await plain(self, question)

    sweep = resolved(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(PolicyAsker, "ask", away)
        outcome = go(sweep, tmp_path / "run")
    assert (outcome.exit_code, outcome.reason, outcome.remaining) == (3, "deferred", 16)
    assert go(sweep, tmp_path / "run").exit_code == 0


def test_a_foreign_directory_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="is no run directory, and it is not empty"):
        go(resolved(tmp_path), tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.tex"]


def test_a_conflict_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    go(resolved(tmp_path), tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    other = TWO_POLICIES.replace('policy = "random"', 'name = "random"\npolicy = "noisy"')
    with pytest.raises(RunError, match="agent 'random' is now another"):
        go(resolved(tmp_path, other), tmp_path / "run")
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_a_damaged_page_is_refused_even_where_its_episode_has_ended(tmp_path: Path) -> None:
    sweep = resolved(tmp_path)
    go(sweep, tmp_path / "run")
    (path,) = (tmp_path / "run" / "steps").glob("*.parquet")
    group = pq.read_metadata(path).row_group(0)
    column = next(group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == "reply")
    raw = bytearray(path.read_bytes())
    raw[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CorruptLogError, match=rf"steps/{path.name}.*--repair"):
        go(sweep, tmp_path / "run")


def of_agent(run: Path, agent: str) -> list[dict[str, Any]]:
    """Its rows."""
    return [row for row in rows(run) if row["agent"] == agent]


def test_an_agent_whose_own_budget_is_used_up_stops_alone(tmp_path: Path) -> None:
    text = served(replicates=3, more='budget_usd = "9"')
    whole, _ = go_served(resolved(tmp_path, text), tmp_path / "whole")
    knuth, others = of_agent(tmp_path / "whole", "knuth"), of_agent(tmp_path / "whole", "random")
    bound, cost = 42_000_000_000, sum(row["cost"] for row in knuth)
    few = text.replace('name = "knuth"', f'name = "knuth"\nbudget_usd = "{(cost // 2 + bound) / 1e12:.6f}"')
    outcome, _ = go_served(resolved(tmp_path, few), tmp_path / "run")
    assert (outcome.exit_code, outcome.reason, outcome.unfinished) == (3, "budget", 0)
    assert any("The budget of agent knuth" in words for words in outcome.messages)
    assert not any("The budget of $" in words for words in outcome.messages)
    assert of_agent(tmp_path / "run", "random") == others
    mine = of_agent(tmp_path / "run", "knuth")
    assert 0 < len(mine) < len(knuth)
    assert sum(row["cost"] for row in mine) <= cost // 2 + bound
    ended = {row["episode"] for row in mine if row["ending"]}
    assert {row["episode"] for row in mine} == ended  # whole episodes
    done, _ = go_served(resolved(tmp_path, text), tmp_path / "run")
    assert done.exit_code == 0
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    assert done.spent == whole.spent


@pytest.mark.exhaustive
def test_two_agents_share_a_lane_and_one_has_a_budget_of_its_own(tmp_path: Path) -> None:
    """The other one goes on past it, in order; the lane's own budget then stops both."""
    two = served(replicates=4, width=2).replace(
        'name = "random"\nprovider = "simulated"\nmodel = "random"',
        ('name = "twin"\nprovider = "simulated"\nmodel = "knuth"\ntemperature = 0.5'),
    )
    go_served(resolved(tmp_path, two), tmp_path / "whole")
    cost = sum(row["cost"] for row in of_agent(tmp_path / "whole", "knuth"))
    bound = 42_000_000_000
    few = two.replace('name = "knuth"', f'name = "knuth"\nbudget_usd = "{(cost // 3 + bound) / 1e12:.6f}"')
    outcome, _ = go_served(resolved(tmp_path, few), tmp_path / "run")
    assert (outcome.reason, outcome.unfinished) == ("budget", 0)
    assert of_agent(tmp_path / "run", "twin") == of_agent(tmp_path / "whole", "twin")
    mine = of_agent(tmp_path / "run", "knuth")
    assert 0 < sum(row["cost"] for row in mine) <= cost // 3 + bound


@pytest.mark.exhaustive
def test_a_cut_run_holds_whole_episodes_and_says_what_the_rest_would_cost(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(replicates=6, width=4))
    whole, _ = go_served(sweep, tmp_path / "whole")
    budget = whole.spent // 2 + 42_000_000_000
    outcome, _ = go_served(with_budget(sweep, budget), tmp_path / "run")
    assert (outcome.exit_code, outcome.reason, outcome.unfinished) == (3, "budget", 0)
    found = rows(tmp_path / "run")
    assert len({row["episode"] for row in found}) == sum(bool(row["ending"]) for row in found) == outcome.ended
    counts = [len({row["episode"] for row in of_agent(tmp_path / "run", name)}) for name in ("knuth", "random")]
    assert min(counts) >= 0.35 * 24
    assert abs(counts[0] - counts[1]) <= 3
    assert outcome.remaining == 48 - outcome.ended
    assert outcome.remaining_cost == pytest.approx(whole.spent - outcome.spent, rel=0.4)
    assert f"{outcome.remaining} episodes remain, with a predicted cost of about $" in outcome.messages[1]
    assert outcome.remaining_cost is not None
    assert outcome.to_json()["owed_usd"] == pytest.approx(outcome.remaining_cost / 1e12)


@pytest.mark.exhaustive
def test_episodes_for_which_the_money_does_not_last_are_an_exception_that_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evalkit.engine.forecast import EpisodeEstimate, Forecast

    sweep = resolved(tmp_path, served(replicates=3))
    whole, _ = go_served(sweep, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Forecast, "whole", lambda *_: EpisodeEstimate(1.0, 1.0, 0.0, 0.0))
        patch.setattr(Forecast, "rest", lambda *_, **__: 1.0)
        outcome, _ = go_served(with_budget(sweep, whole.spent // 2 + 42_000_000_000), tmp_path / "run")
    assert (outcome.exit_code, outcome.reason) == (3, "budget")
    assert 0 < outcome.unfinished <= 16  # the widths of two lanes
    words = f"{outcome.unfinished} of them had started and did not end, since more money was needed than predicted."
    assert any(words in message for message in outcome.messages)
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    (event,) = (event for event in events if event["kind"] == "unfinished")
    assert (event["episodes"], event["why"]) == (outcome.unfinished, "budget")
    done, _ = go_served(sweep, tmp_path / "run")
    assert (done.exit_code, done.unfinished, done.spent) == (0, 0, whole.spent)


def test_one_replicate_may_be_played_alone_and_the_others_later(tmp_path: Path) -> None:
    sweep, directory = resolved(tmp_path), tmp_path / "run"
    later = go(sweep, directory, choice=Choice(replicate=1))
    assert (later.reason, later.episodes, later.ended, later.remaining) == ("complete", 8, 8, 0)
    assert set(scan(directory, ["replicate"]).column("replicate").to_pylist()) == {1}
    nothing = go(sweep, directory, choice=Choice(replicate=2))
    assert (nothing.reason, nothing.episodes, nothing.steps) == ("complete", 0, 0)
    rest = go(sweep, directory)
    assert (rest.reason, rest.episodes, rest.ended) == ("complete", 16, 16)
    assert rest.steps + later.steps == scan(directory, ["step"]).num_rows
    again = go(sweep, directory, choice=Choice(replicate=0))
    assert (again.episodes, again.ended, again.steps) == (8, 8, 0)
