import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalkit.envs.mersenne import RandomStateStream
from evalkit.envs.scheduling.market import expected_blocking, stable_matching
from evalkit.errors import UsageError
from tests.conform.__main__ import main
from tests.conform.compare.command import compare, run
from tests.conform.compare.files import cases, with_rows
from tests.conform.compare.kinds import kind_of
from tests.conform.compare.scheduling import level, sampled
from tests.conform.compare.walks import play_knuth, submit_all, target

PROJECT = Path(__file__).resolve().parent.parent.parent

Rows = dict[str, list[dict[str, Any]]]

SEED = 4
BASIC = level("Basic", SEED)
WORKERS, TASKS = BASIC.market.workers, BASIC.market.tasks


def preferences(ranks: Any, who: tuple[str, ...], whom: tuple[str, ...]) -> dict[str, list[str]]:
    return {name: sorted(whom, key=lambda other, i=i: ranks[i][whom.index(other)]) for i, name in enumerate(who)}  # type: ignore[misc]


def assignments() -> list[dict[str, str]]:
    identity = dict(zip(WORKERS, TASKS, strict=True))
    stable = {WORKERS[w]: TASKS[t] for w, t in enumerate(stable_matching(BASIC.market))}
    # The identity once more is a repeat; a stable one ends an episode, and a stream goes on behind it.
    return [identity, dict(zip(WORKERS, reversed(TASKS), strict=True)), identity, stable, identity]


def blocking_by_definition(assignment: dict[str, str]) -> list[list[str]]:
    likes = preferences(BASIC.market.worker_rank, WORKERS, TASKS)
    liked = preferences(BASIC.market.task_rank_t.T, TASKS, WORKERS)
    holder = {task: worker for worker, task in assignment.items()}
    return [
        [w, t]
        for w in WORKERS
        for t in TASKS
        if likes[w].index(t) < likes[w].index(assignment[w]) and liked[t].index(w) < liked[t].index(holder[t])
    ]


def instance_row() -> dict[str, Any]:
    return {
        "env": "scheduling",
        "difficulty": "Basic",
        "seed": SEED,
        "n": 10,
        "feedback_k": 1,
        "score_gap_worker": 3,
        "score_gap_task": 3,
        "worker_ids": WORKERS,
        "task_ids": TASKS,
        "worker_prefs": preferences(BASIC.market.worker_rank, WORKERS, TASKS),
        "task_prefs": preferences(BASIC.market.task_rank_t.T, TASKS, WORKERS),
        "rng_probe_next_double": RandomStateStream(BASIC.after).double(),
    }


def matching_row(assignment: dict[str, str]) -> dict[str, Any]:
    pairs = blocking_by_definition(assignment)
    row = {"difficulty": "Basic", "seed": SEED, "name": "some", "matching": assignment}
    return {**row, "num_blocking": len(pairs), "blocking_pairs": pairs}


def stream_row() -> dict[str, Any]:
    draws = RandomStateStream(BASIC.after)
    told: dict[str, list[list[str]]] = {}
    steps = []
    for assignment in assignments():
        pairs = blocking_by_definition(assignment)
        if str(assignment) not in told:
            told[str(assignment)] = [pairs[i] for i in draws.sample(len(pairs), 1)] if len(pairs) > 1 else pairs
        steps.append({"matching": assignment, "num_blocking": len(pairs), "feedback": told[str(assignment)]})
    return {
        "difficulty": "Basic",
        "seed": SEED,
        "k": 1,
        "steps": steps,
        "rng_probe_next_double": draws.double(),
    }


def walk_row() -> dict[str, Any]:
    played = play_knuth(target(BASIC))
    return {
        "seed": SEED,
        "periods": len(played.actions),
        "blocking_counts": [len(blocking_by_definition(dict(one))) for one in played.submitted],
        "shown": [pair for action in played.actions for pair in action["shown"]],
        "final": played.submitted[-1],
        "stable": True,
    }


def baseline_row() -> dict[str, Any]:
    exact = expected_blocking(BASIC.market)
    mean = float(sampled(BASIC).mean())
    return {
        "difficulty": "Basic",
        "seed": SEED,
        "exact_expectation": float(exact),
        "exact_numerator": int(exact * 90),
        "exact_denominator": 90,
        "shipped_10000": {
            "baseline_num_blocking_pairs": mean,
            "confidence_interval_low": mean - 1,
            "confidence_interval_high": mean + 1,
        },
        "exact_inside_shipped_ci": True,
        "fast_10000_mean": mean,
    }


def replay_row() -> dict[str, Any]:
    identity, reverse, _, stable, _ = assignments()
    played = submit_all(target(BASIC), [identity, reverse, stable, reverse])
    mean = float(sampled(BASIC).mean())
    return {
        "env": "scheduling",
        "difficulty": "Basic",
        "seed": SEED,
        "actions": [identity, reverse, stable, reverse],
        "per_period": [[action["blocking"], action["shown"]] for action in played.actions],
        "notebook": {
            "final_num_blocking_pairs": 0,
            "baseline_num_blocking_pairs": mean,
            "final_score": 1.0,
            "final_score_floor": 1.0,
            "exploration_rate": 3 / 4,
            "solved": True,
            "status": "Successfully found stable matching",
        },
    }


def rows() -> Rows:
    return {
        "scheduling_instances.jsonl": [instance_row()],
        "scheduling_matchings.jsonl": [matching_row(one) for one in assignments()],
        "scheduling_feedback_streams.jsonl": [stream_row()],
        "scheduling_forced_walk_basic.jsonl": [walk_row()],
        "scheduling_baselines.jsonl": [baseline_row()],
        "score_replays.jsonl": [replay_row()],
        "parse_dict.jsonl": [
            {"input": "{'W1': 'T1', 'x': (1e999,)}", "result": {"ok": {"W1": "T1", "x": [{"float": "inf"}]}}},
            {"input": "{'a': {1, 2}}", "result": {"ok_repr": "{'a': {1, 2}}"}},
            {"input": "nonsense", "result": {"raises": "ValueError", "msg": ""}},
            {"input": "[1]", "result": {"raises": "AssertionError", "msg": ""}},
            {"input": "{'a': " + "[" * 200 + "]" * 200 + "}", "result": {"ok": {"a": "deep"}}},
        ],
        "provider_conversions.jsonl": [{"query_id": "one"}, {"query_id": "two"}],
    }


def write(folder: Path, files: Rows) -> Path:
    for name, lines in files.items():
        path = folder / "econagentbench" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def said(folder: Path) -> tuple[int, str]:
    out = io.StringIO()
    return run(folder, None, out=out), out.getvalue()


def test_golden_files_made_by_definition_are_equal(tmp_path: Path) -> None:
    code, text = said(write(tmp_path, rows()))
    assert code == 0, text
    tallies, _ = compare(tmp_path, None)
    found = {tally.kind.name: dict(tally.count) for tally in tallies}
    assert found == {
        "scheduling_instances": {"equal": 1},
        "scheduling_matchings": {"equal": 5},
        "scheduling_feedback_streams": {"equal": 1},
        "scheduling_forced_walk": {"equal": 1},
        "scheduling_baselines": {"equal": 1},
        "score_replays": {"documented": 1},
        "parse_dict": {"equal": 3, "documented": 2},
        "provider_conversions": {"out of scope": 2},
    }
    assert "own-denominator-and-exploration (1)" in text
    assert "action-bounded (1)" in text
    assert "2: the reference's conversions to provider formats" in text


def swap(row: list[Any]) -> None:
    row[0], row[1] = row[1], row[0]


CORRUPTIONS: list[tuple[str, int, Callable[[dict[str, Any]], object], str]] = [
    ("scheduling_instances", 1, lambda row: swap(row["task_prefs"]["T3"]), "task_prefs.T3[0]"),
    ("scheduling_instances", 1, lambda row: row.update(rng_probe_next_double=0.5), "rng_probe_next_double"),
    ("scheduling_instances", 1, lambda row: row.update(score_gap_task=None), "score_gap_task"),
    ("scheduling_instances", 1, lambda row: row.update(difficulty="Epic"), "no difficulty 'Epic'"),
    ("scheduling_matchings", 2, lambda row: row["blocking_pairs"].pop(), "blocking_pairs"),
    ("scheduling_matchings", 4, lambda row: row.update(num_blocking=1), "num_blocking: golden 1, ours 0"),
    ("scheduling_matchings", 1, lambda row: row["matching"].pop("W2"), "W2"),
    ("scheduling_feedback_streams", 1, lambda row: swap(row["steps"][1]["feedback"][0]), "steps[1].feedback[0][0]"),
    ("scheduling_feedback_streams", 1, lambda row: row.update(rng_probe_next_double=0.5), "rng_probe_next_double"),
    ("scheduling_feedback_streams", 1, lambda row: row["steps"][4].update(num_blocking=0), "steps[4].num_blocking"),
    ("scheduling_forced_walk_basic", 1, lambda row: row["blocking_counts"].append(0), "blocking_counts"),
    ("scheduling_forced_walk_basic", 1, lambda row: row.update(stable=False), "stable: golden False, ours True"),
    ("scheduling_baselines", 1, lambda row: row.update(exact_numerator=2011), "exact_numerator: golden 2011"),
    ("scheduling_baselines", 1, lambda row: row.update(fast_10000_mean=22.0), "fast_10000: mean: golden 22.0"),
    ("scheduling_baselines", 1, lambda row: row.update(fast_10000_se=0.1), "fast_10000: standard error"),
    ("scheduling_baselines", 1, lambda row: row.update(exact_inside_shipped_ci=False), "exact_inside_shipped_ci"),
    ("scheduling_baselines", 1, lambda row: row.pop("exact_denominator"), "exact_denominator"),
    ("score_replays", 1, lambda row: row["per_period"][2].__setitem__(0, 99), "per_period[2][0]: golden 99"),
    ("score_replays", 1, lambda row: row["notebook"].update(exploration_rate=0.5), "notebook.exploration_rate"),
    ("score_replays", 1, lambda row: row["notebook"].update(final_score=0.9), "notebook.final_score"),
    ("parse_dict", 1, lambda row: row["result"]["ok"].update(W1="T2"), "result.W1: golden 'T2', ours 'T1'"),
    ("parse_dict", 2, lambda row: row.update(result={"raises": "ValueError"}), "golden raises ValueError, ours reads"),
    ("parse_dict", 3, lambda row: row.update(result={"ok": {}}), "ours refuses it: unparseable"),
]


@pytest.mark.parametrize(("name", "line", "corrupt", "words"), CORRUPTIONS)
def test_a_corrupted_row_is_found_and_named(
    tmp_path: Path, name: str, line: int, corrupt: Callable[[dict[str, Any]], object], words: str
) -> None:
    lines = json.loads(json.dumps(rows()[f"{name}.jsonl"]))
    corrupt(lines[line - 1])
    code, text = said(write(tmp_path, {f"{name}.jsonl": lines}))
    assert code == 1
    assert f"econagentbench/{name}.jsonl:{line}" in text
    assert words in text
    assert "1 unexplained difference\n" in text


def test_a_heuristic_beyond_its_bound_is_a_difference_and_one_within_states_the_bound(tmp_path: Path) -> None:
    row = {"difficulty": "Basic", "start": "identity", "reps": 40, "sd_between_reps": 0.0, "mean_score": 100.0}
    row |= {"frac_solved": 1.0, "mean_best_score": 100.0, "mean_periods": 256 / 12}
    code, text = said(write(tmp_path, {"own_scheduling_heuristic.jsonl": [row]}))
    assert (code, "bound" in text) == (0, True)
    code, text = said(write(tmp_path, {"own_scheduling_heuristic.jsonl": [row, {**row, "mean_periods": 21.0}]}))
    assert code == 1
    assert "own_scheduling_heuristic.jsonl:2 (difficulty Basic, start identity): mean_periods 21" in text


def test_unrecognised_files_are_listed_and_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, {"scheduling_matchings_more.jsonl": [matching_row(assignments()[0])], "surprise.jsonl": [{}]})
    (tmp_path / "README.md").write_text("notes")
    code, text = said(tmp_path)
    assert code == 0
    assert "not recognised" in text
    assert "surprise.jsonl" in text
    assert "README" not in text


def test_a_line_that_is_no_json_is_a_difference(tmp_path: Path) -> None:
    (tmp_path / "scheduling_matchings.jsonl").write_text('{"difficulty": \n')
    code, text = said(tmp_path)
    assert code == 1
    assert "scheduling_matchings.jsonl:1: not valid JSON" in text


def test_a_row_that_is_no_object_is_a_difference(tmp_path: Path) -> None:
    (tmp_path / "parse_dict.json").write_text("[5, null]")
    code, text = said(tmp_path)
    assert code == 1
    assert "parse_dict.json[0]: the row could not be compared" in text
    assert "2 unexplained differences" in text


def test_nothing_to_compare_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no directory"):
        said(tmp_path / "missing")
    with pytest.raises(UsageError, match="holds no file"):
        said(tmp_path)
    (tmp_path / "strange.jsonl").write_text("{}")
    with pytest.raises(UsageError, match=r"no golden file of a kind .* strange\.jsonl"):
        said(tmp_path)


def test_the_command_ends_with_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(write(tmp_path, rows()))]) == 0
    assert "0 unexplained differences" in capsys.readouterr().out
    assert main([str(tmp_path), "--data", ""]) == 0  # as `make conform GOLDENS=dir` says it
    write(tmp_path, {"parse_dict.jsonl": [{"input": "nonsense", "result": {"ok": {}}}]})
    assert main([str(tmp_path)]) == 1
    assert "1 unexplained difference\n" in capsys.readouterr().out
    assert main([str(tmp_path / "missing")]) == 2
    said = capsys.readouterr()
    assert "missing is no directory" in said.err
    assert said.out == ""


def test_make_calls_the_command_with_its_arguments() -> None:
    recipes = (PROJECT / "Makefile").read_text().splitlines()
    line = recipes[next(n for n, text in enumerate(recipes) if text.startswith("conform:")) + 1]
    assert line == '\t$(PY) -m tests.conform "$(GOLDENS)" --data "$(DATA)"'


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("scheduling_instances.jsonl", "scheduling_instances"),
        ("scheduling_instances_seeds8-11.jsonl", "scheduling_instances"),
        ("own_scheduling_heuristic.jsonl", "scheduling_heuristic"),
        ("scheduling_forced_walk_basic.jsonl", "scheduling_forced_walk"),
        ("procurement_opt_own_hard.jsonl", "procurement_opt_exact"),
        ("paper_appendix_anchor.json", "paper_appendix_anchor"),
        ("costs_seed1000.jsonl", "costs"),
        ("blocking_ban_tool.jsonl", "blocking"),
        ("litmus_collusion_reference.json", "litmus_collusion"),
        ("notes.jsonl", None),
    ],
)
def test_kinds_are_recognised_by_name(file: str, kind: str | None) -> None:
    found = kind_of(file)
    assert (found.name if found else None) == kind


@pytest.mark.exhaustive
def test_the_shared_golden_files_hold(shared: Path) -> None:
    tallies, strange = compare(shared / "goldens", shared / "data")
    assert [tally.first for tally in tallies if tally.count["differing"]] == []
    assert strange == []
    assert {"scheduling_instances", "scheduling_forced_walk", "score_replays"} <= {tally.kind.name for tally in tallies}
    for tally in tallies:
        if tally.kind.name.startswith("scheduling_") and tally.kind.name != "scheduling_heuristic":
            assert tally.count == {"equal": tally.count.total()}


def test_a_document_sees_the_rows_of_the_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "rows_b.jsonl").write_text('{"n": 2}\nnonsense\n')
    (tmp_path / "rows_a.jsonl").write_text('{"n": 1}\n')
    path = tmp_path / "sums.json"
    path.write_text('{"total": 3}')
    (case,) = cases(path, tmp_path)
    assert with_rows(case, path, "rows_*.jsonl").row == {"total": 3, "beside": [{"n": 1}, {"n": 2}]}
    assert with_rows(case, path, "") == case
    listed = replace(case, row=[1])
    assert with_rows(listed, path, "rows_*.jsonl") == listed
