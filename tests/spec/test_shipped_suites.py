"""The suites that evalkit brings: frozen, and what the generator would make again."""

from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from evalkit.envs.table import ENVIRONMENTS
from evalkit.spec.model import SuiteUse
from evalkit.spec.suites import expand, find_suite

REFERENCE = {"generator": "reference"}
SPARSE = {"p_items": 0.1, "p_quantity": 0.1, "p_budget": 0.1, "effectiveness_most": 20}
DENSE = {"p_items": 0.8, "p_quantity": 0.5, "p_budget": 0.5, "effectiveness_most": 3}
BETWEEN = {"p_items": 0.5, "p_quantity": 0.2, "p_budget": 0.2, "effectiveness_most": 5}

MADE: dict[str, tuple[dict[str, Any], int, int]] = {
    **{f"costbench/length-{n}": ({"length": n}, 60, n) for n in (5, 6, 7, 8)},
    "costbench/basic": ({"length": 5}, 36, 105),
    "costbench/medium": ({"length": 7}, 36, 107),
    "costbench/hard": ({"length": 8, "block": "cost_change", "blocks": 1}, 36, 108),
    "costbench/expert": ({"length": 12, "block": "cost_change", "blocks": 2}, 36, 112),
    "costbench/extreme": ({"length": 15, "block": "mixed", "blocks": 3}, 36, 115),
    "costbench/delivery": ({"catalogue": "delivery"}, 40, 9),
    "scheduling/basic": ({**REFERENCE, "n": 10, "k": 1}, 12, 0),
    "scheduling/medium": ({**REFERENCE, "n": 20, "k": 2}, 12, 0),
    "scheduling/hard": ({**REFERENCE, "n": 50, "k": 5}, 12, 0),
    "scheduling/expert": ({"n": 100, "k": 10}, 12, 100),
    "scheduling/extreme": ({"n": 200, "k": 20}, 12, 200),
    "pricing/basic": ({**REFERENCE, "products": 1}, 12, 0),
    "pricing/medium": ({**REFERENCE, "products": 4}, 12, 0),
    "pricing/hard": ({**REFERENCE, "products": 10}, 12, 0),
    "pricing/expert": ({"products": 20}, 12, 20),
    "pricing/extreme": ({"products": 50, "strength": 1.8}, 12, 50),
    "procurement/basic": ({**REFERENCE, "categories": 3, "products": 12, **DENSE}, 12, 0),
    "procurement/medium": ({**REFERENCE, "categories": 5, "products": 30, **BETWEEN}, 12, 0),
    "procurement/hard": ({**REFERENCE, "categories": 10, "products": 100, **SPARSE}, 12, 0),
    "procurement/n40k5": ({**REFERENCE, "categories": 5, "products": 40, **SPARSE}, 12, 0),
    "procurement/expert": ({"categories": 10, "products": 200, **SPARSE}, 12, 200),
    "procurement/extreme": ({"categories": 20, "products": 400, **SPARSE}, 12, 400),
}
"""By suite: parameters, instances and seed of the `evalkit suites generate` that made it."""

FEW = 2
"""Lines of a suite that are made again where solving takes long; each is made from its own place alone."""


@pytest.mark.exhaustive(but=8)
@pytest.mark.parametrize("name", MADE)
def test_a_suite_is_what_the_generator_makes_of_its_seed(name: str) -> None:
    parameters, count, seed = MADE[name]
    frozen = find_suite(name).read_bytes().splitlines(keepends=True)
    assert len(frozen) == count
    slow = name in ("procurement/expert", "procurement/extreme")
    made = ENVIRONMENTS[name.split("/", maxsplit=1)[0]].generate(parameters, FEW if slow else count, seed)
    lines = [orjson.dumps(dict(line)) + b"\n" for line in made]
    assert lines == frozen[: len(lines)]


def test_every_optimum_of_a_shipped_market_is_proven() -> None:
    for name in (one for one in MADE if one.startswith("procurement/")):
        for line in map(orjson.loads, find_suite(name).read_bytes().splitlines()):
            assert line["optimum"]["proven"], (name, line["id"])


def test_every_shipped_suite_has_its_sum_and_loads() -> None:
    folder = find_suite("costbench/basic").parents[1]
    named = {row.partition("  ")[2] for row in (folder / "SHA256SUMS").read_text().splitlines()}
    # Imported suites lie beside the frozen ones where somebody works in a clone; git ignores them.
    there = {path.relative_to(folder).as_posix() for path in folder.glob("*/*.jsonl") if not _imported(path)}
    assert named == there
    for name in sorted(named):
        ((_, _, instances),) = expand(SuiteUse(name=name.removesuffix(".jsonl")))
        assert isinstance(instances, list)
        strata = Counter(one.stratum for one in instances)
        assert max(strata.values()) - min(strata.values()) <= 1, name


def _imported(path: Path) -> bool:
    return path.name.startswith("reference") or path.parent.name == "judge"
