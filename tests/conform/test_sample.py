"""The sample of golden numbers: evalkit reproduces it, notices a changed number in any kind, and it holds no text."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conform import __main__ as command
from tests.conform.compare.command import check, compare
from tests.conform.compare.files import cases, golden_files, with_rows
from tests.conform.compare.goldens import digest_of, parting
from tests.conform.compare.kinds import KINDS, kind_of
from tests.conform.compare.sample import SAMPLE, lines, unpack
from tests.conform.make_sample import MOST_BYTES, chosen_rows, pack, textless

Goldens = tuple[Path, Path]

COMPARED = {kind.name for kind in KINDS} - {"provider_conversions"}
"""All kinds that are compared with anything."""


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Goldens:
    return unpack(tmp_path_factory.mktemp("sample"))


DEAR = frozenset({"greedy_table", "gt_change_aned", "scheduling_heuristic", "scheduling_baselines"})
DEAR |= {"procurement_opt_budget_sensitivity"}
"""Kinds whose few rows are each computed from many episodes or optima."""


@pytest.mark.exhaustive(but=["quick"])
@pytest.mark.parametrize("dear", [False, True], ids=["quick", "dear"])
def test_every_number_of_the_sample_is_reproduced(sample: Goldens, tmp_path: Path, dear: bool) -> None:
    goldens, data = Path(shutil.copytree(sample[0], tmp_path / "goldens")), sample[1]
    for path in golden_files(goldens):
        if ((kind := kind_of(path.name)) is not None and kind.name in DEAR) != dear:
            path.unlink()
    tallies, strange = compare(goldens, data)
    found = {tally.kind.name: tally for tally in tallies}
    assert strange == []
    assert [tally.first for tally in tallies if tally.count["differing"]] == []
    assert found.keys() == (DEAR if dear else COMPARED - DEAR)
    assert not any(tally.count["out of scope"] for tally in tallies)
    assert sum(tally.count.total() for tally in tallies) > (40 if dear else 900)


CHANGES: Mapping[str, tuple[str | int, ...]] = {
    "scheduling_instances": ("rng_probe_next_double",),
    "scheduling_matchings": ("num_blocking",),
    "scheduling_feedback_streams": ("steps", 3, "num_blocking"),
    "scheduling_forced_walk": ("blocking_counts", 2),
    "scheduling_baselines": ("exact_numerator",),
    "scheduling_heuristic": ("mean_score",),
    "score_replays": ("notebook", "exploration_rate"),
    "parse_dict": ("result", "ok", "Offer_1"),
    "procurement_instances": ("start_utility",),
    "procurement_plans": ("workers",),
    "procurement_opt_exact": ("cost_cents",),
    "procurement_opt_gurobi": ("opt_workers",),
    "procurement_opt_budget_sensitivity": ("opt_by_budget", 4, 1),
    "paper_appendix_anchor": ("category_totals", 1),
    "pricing_instances": ("alpha_list", 99, 0),
    "pricing_vectors": ("quantities", 0),
    "pricing_opt": ("exact_profit_per_period",),
    "pricing_upper_bounds": ("multiplier",),
    "costs": ("costs", "Select_Final_Location"),
    "paths": ("gt_cost",),
    "blocking": ("segmented_gt_cost",),
    "metrics_aggregate": ("static_level2", "cost_metrics", "total_agent_cost"),
    "metrics": ("eval", "agent_cost"),
    "greedy_table": ("all_rows", 0, "avg_greedy_cost"),
    "tie_stats": ("5", "greedy_em"),
    "gt_change_aned": ("rows", "N5:cost_change", "mean_ned"),
    "litmus_efficiency_equality": ("task_sizes", "T9"),
    "litmus_collusion": ("upper_bound_price",),
    "litmus_patience": ("reliability_by_rate", 19, 1),
}


@pytest.mark.exhaustive(but=8)
@pytest.mark.parametrize("kind", sorted(COMPARED))
def test_a_changed_number_is_noticed_in_every_kind(sample: Goldens, kind: str) -> None:
    goldens, data = sample
    path = next(path for path in golden_files(goldens) if (known := kind_of(path.name)) and known.name == kind)
    of_kind = kind_of(path.name)
    assert of_kind is not None
    case = with_rows(next(cases(path, goldens)), path, of_kind.beside)
    *way, last = CHANGES[kind]
    inner = case.row
    for key in way:
        inner = inner[key]
    inner[last] += 1e-3 if isinstance(inner[last], float) else 1
    if kind == "gt_change_aned":  # each of its rows goes through all queries
        case.row["rows"] = {way[1]: inner}
    assert check(of_kind, case, data).status == "differing"


def test_it_is_small_and_says_where_it_comes_from() -> None:
    assert SAMPLE.stat().st_size <= MOST_BYTES
    words = SAMPLE.with_name("README.md").read_text()
    assert all(word in words for word in ("2511.02734", "econ-evals-paper", "MIT", "licence"))


SCRIPTED = ("costbench/metrics_synthetic.jsonl", "econagentbench/parse_dict.jsonl")
"""Files of scripted replies and actions: what a test said to the references, and no text of theirs."""


def test_it_holds_no_text_of_the_references() -> None:
    words = re.compile(r"\s")
    strings = [text for line in lines() if line.get("file") not in SCRIPTED for text in strings_in(line)]
    assert len(strings) > 10_000
    assert [text for text in strings if words.search(text)] == []
    said = [text for line in lines() if line.get("file") in SCRIPTED for text in strings_in(line)]
    assert max(map(len, said)) < 400  # arguments of a call


def strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield key
            yield from strings_in(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from strings_in(entry)


def test_a_digest_stands_for_a_text() -> None:
    assert parting({"reason": digest_of("too dear")}, {"reason": "too dear"}) == ""
    assert parting({"reason": digest_of("too dear")}, {"reason": "too late"}).startswith("reason: golden")
    assert textless({"reason": "too dear", "cost": 1.5, "note": "by hand"}) == {
        "reason": digest_of("too dear"),
        "cost": 1.5,
    }


def test_rows_are_chosen_from_every_stratum() -> None:
    rows = [{"difficulty": name, "seed": seed} for name in ("a", "b") for seed in range(30)]
    chosen = list(chosen_rows([*rows, {"error": "refused"}], "pricing_instances.jsonl"))
    assert [row["seed"] for row in chosen if row["difficulty"] == "b"][:2] == [0, 2]
    assert len(chosen) == 16
    assert pack(iter(chosen)) == pack(iter(chosen))


def test_the_sample_is_what_the_shared_golden_files_hold(shared: Path, sample: Goldens) -> None:
    golden = {
        json.dumps(textless(case.row))
        for path in golden_files(shared / "goldens")
        for case in cases(path, shared / "goldens")
    }
    rows = [json.dumps(case.row) for path in golden_files(sample[0]) for case in cases(path, sample[0])]
    assert [row for row in rows if row not in golden] == []


def test_without_golden_files_the_command_takes_the_sample_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, bool]] = []

    def run(goldens: Path, data: Path | None, *, out: object) -> int:
        asked.append((goldens.name, data is not None))
        return 0

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(command, "BESIDE", tmp_path)
    assert command.main(["", "--data", ""]) == 0  # as `make conform` says it
    assert "golden files: the sample tests/conform/sample/numbers.jsonl.gz" in capsys.readouterr().out
    (tmp_path / "goldens").mkdir()
    assert command.main(["", "--data", ""]) == 0
    assert f"golden files: {tmp_path / 'goldens'}" in capsys.readouterr().out
    assert asked == [("goldens", True), ("goldens", False)]
