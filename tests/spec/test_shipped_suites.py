"""The suites that evalkit brings: frozen, and what the generator would make again."""

from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from evalkit.env.table import ENVIRONMENTS
from evalkit.spec.model import SuiteUse
from evalkit.spec.suites import expand, find_suite

MADE: dict[str, tuple[dict[str, Any], int, int]] = {
    **{f"costbench/length-{n}": ({"length": n}, 60, n) for n in (5, 6, 7, 8)},
    "costbench/basic": ({"length": 5}, 36, 105),
    "costbench/medium": ({"length": 7}, 36, 107),
    "costbench/hard": ({"length": 8, "block": "cost_change", "blocks": 1}, 36, 108),
    "costbench/delivery": ({"catalogue": "delivery"}, 40, 9),
}
"""By suite: parameters, instances and seed of the `evalkit generate` that made it."""


@pytest.mark.parametrize("name", MADE)
def test_a_suite_is_what_the_generator_makes_of_its_seed(name: str) -> None:
    parameters, count, seed = MADE[name]
    made = ENVIRONMENTS["costbench"].generate(parameters, count, seed)
    lines = b"".join(orjson.dumps(dict(line)) + b"\n" for line in made)
    assert find_suite(name).read_bytes() == lines


def test_every_shipped_suite_has_its_sum_and_loads() -> None:
    folder = find_suite("costbench/basic").parents[1]
    named = {row.partition("  ")[2] for row in (folder / "SHA256SUMS").read_text().splitlines()}
    # Imported suites lie beside the frozen ones where somebody works in a clone; git ignores them.
    there = {path.relative_to(folder).as_posix() for path in folder.glob("*/*.jsonl") if not _imported(path)}
    assert named == there
    for name in sorted(named):
        ((_, _, instances),) = expand(SuiteUse(name=name.removesuffix(".jsonl")))
        strata = Counter(one.stratum for one in instances)
        assert max(strata.values()) - min(strata.values()) == 0, name


def _imported(path: Path) -> bool:
    return path.name.startswith("reference") or path.parent.name == "judge"
