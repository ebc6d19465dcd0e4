import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conform.compare import pricing
from tests.conform.compare.documented import DOCUMENTED
from tests.conform.compare.goldens import GoldenVerdict, Row

Checker = Callable[[Row, Path | None], GoldenVerdict]

FILES: list[tuple[str, Checker, set[str]]] = [
    ("pricing_instances.jsonl", pricing.instances, {"equal"}),
    ("pricing_vectors_hard.jsonl", pricing.vectors, {"equal"}),
    ("pricing_opt_basic.jsonl", pricing.optima, {"documented"}),
    ("pricing_opt_hard.jsonl", pricing.optima, {"documented"}),
    ("pricing_upper_bounds.jsonl", pricing.hints, {"equal"}),
    ("score_replays.jsonl", pricing.replay, {"equal", "documented"}),
]


def cases(shared: Path, name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (shared / "goldens/econagentbench" / name).read_text().splitlines()]
    return [row for row in found if row.get("env", "pricing") == "pricing"]


@pytest.mark.parametrize(("name", "check", "statuses"), FILES, ids=[name for name, _, _ in FILES])
def test_golden_files_are_equal_or_differ_as_documented(
    shared: Path, name: str, check: Checker, statuses: set[str]
) -> None:
    verdicts = [check(row, None) for row in cases(shared, name)]
    assert verdicts
    assert {verdict.status for verdict in verdicts} <= statuses, [one for one in verdicts if one.status == "differing"]
    assert {verdict.detail for verdict in verdicts} <= {"", *DOCUMENTED}


def bumped(value: Any) -> Any:
    """The first number somewhere in a value, made larger by a part in ten thousand."""
    if isinstance(value, dict):
        key = next(iter(value))
        return {**value, key: bumped(value[key])}
    if isinstance(value, list):
        return [bumped(value[0]), *value[1:]]
    return value * 1.0001


@pytest.mark.parametrize(
    ("name", "check", "path"),
    [
        ("pricing_instances.jsonl", pricing.instances, ["alpha_list"]),
        ("pricing_instances.jsonl", pricing.instances, ["costs"]),
        ("pricing_vectors_basic.jsonl", pricing.vectors, ["quantities"]),
        ("pricing_vectors_basic.jsonl", pricing.vectors, ["prices"]),
        ("pricing_opt_basic.jsonl", pricing.optima, ["exact_markup"]),
        ("pricing_opt_basic.jsonl", pricing.optima, ["exact_x"]),
        ("pricing_opt_basic.jsonl", pricing.optima, ["opt_prices"]),
        ("pricing_opt_basic.jsonl", pricing.optima, ["opt_total_profit_per_period"]),
        ("pricing_opt_basic.jsonl", pricing.optima, ["opt_last50"]),
        ("pricing_upper_bounds.jsonl", pricing.hints, ["upper_bound_per_block_closed_form"]),
        ("pricing_upper_bounds.jsonl", pricing.hints, ["multiplier"]),
        ("score_replays.jsonl", pricing.replay, ["per_period"]),
        ("score_replays.jsonl", pricing.replay, ["notebook", "ratio"]),
        ("score_replays.jsonl", pricing.replay, ["notebook", "opt_profits_last50"]),
        ("score_replays.jsonl", pricing.replay, ["notebook", "exploration_rate"]),
    ],
)
def test_a_figure_that_is_a_little_off_is_found(shared: Path, name: str, check: Checker, path: list[str]) -> None:
    row = copy.deepcopy(cases(shared, name)[0])
    if name == "pricing_vectors_basic.jsonl":
        row = copy.deepcopy(cases(shared, name)[3])
    inner = row
    for key in path[:-1]:
        inner = inner[key]
    assert check(row, None).status != "differing"
    inner[path[-1]] = bumped(inner[path[-1]])
    verdict = check(row, None)
    assert verdict.status == "differing"
    assert "golden" in verdict.detail


def test_an_unknown_difficulty_is_none() -> None:
    with pytest.raises(ValueError, match="there is no difficulty 'odd'"):
        pricing.target_of({"difficulty": "Odd", "seed": 0})
