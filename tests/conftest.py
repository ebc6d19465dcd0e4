"""What all tests share: where the reference data lies, how Hypothesis searches, which modules assert beside tests."""

import gc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.support.hostile_answers")

# Hypothesis would call data slow, and fail, on a machine that is.
settings.register_profile(
    "evalkit", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("evalkit")

PROJECT = Path(__file__).resolve().parent.parent


LONGEST = (
    "soak/",
    "sim/",
    "engine/test_lanes",
    "damage/",
    "store/test_repair",
    "engine/test_fairness",
    "engine/test_plan.py",
    "docs/test_blocks",
    "conform/test_command",
    "conform/test_sample",
    "engine/test_foreign_bill",
    "store/test_footer",
    "docs/",
    "engine/test_planted_key",
    "net/test_resume",
    "report/test_pairs",
    "engine/test_admission",
    "plugins/test_installed",
    "plugins/test_litmus",
    "nightly/",
)
"""Files below `tests/` that take longest, by what was measured: they begin first, in this order, so that none is waited
for alone at the end."""


SOAK_S = 4 * 3600.0
"""What a soak may take before it counts as hung."""


YOUNG = 20_000
"""Objects that are made until the collector looks at them; 700 as Python begins, which takes 3 % of the tests' time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, else the order in which they were found; a soak has more time."""
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.timeout(SOAK_S))
    items.sort(key=_turn)


def pytest_sessionstart() -> None:
    """What is made until the tests are collected stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Half a million objects are there now and stay to the end: the collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 20)
    gc.enable()


def _turn(item: pytest.Item) -> int:
    name = item.nodeid.removeprefix("tests/")
    return next((turn for turn, start in enumerate(LONGEST) if name.startswith(start)), len(LONGEST))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with golden data and specifications beside the project; a public clone has none."""
    folder = PROJECT.parent / "shared"
    if not (folder / "goldens").is_dir():
        pytest.skip("no ../shared folder beside the project: golden data is not there to compare with")
    return folder
