"""What all tests share: where the reference data lies, how Hypothesis searches, which modules assert beside tests."""

import gc
import signal
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from evalkit.redact import KEYS
from tests.support.examples import LESS, MOST

pytest.register_assert_rewrite("tests.support.hostile_answers")

# In tests that are called in the background or by `nohup` both are ignored, also in the processes that they start.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)

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
    "docs/",
    "engine/test_planted_key",
    "snapshots/",
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


@pytest.fixture(autouse=True)
def no_keys_of_another_test() -> Iterator[None]:
    """A process never forgets a key that it has read; tests do, since theirs may be words of another one."""
    yield
    KEYS.learn(forget=tuple(KEYS._known))


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A process that dies in the simulation gives nothing back, nor the signals that it has asked to hear."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, else the order in which they were found; a soak has more time."""
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.timeout(SOAK_S))
    for _, cases in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        _keep_some(list(cases))
    items.sort(key=_turn)


def _keep_some(cases: Sequence[pytest.Item]) -> None:
    """Take the marker `exhaustive(but=...)` from those cases of a test that `make test` keeps: so many, evenly spread
    from the first to the last, or those with the ids that it lists. Raises pytest.UsageError for an id of no case."""
    marker = cases[0].get_closest_marker("exhaustive")
    if marker is None or not marker.kwargs:
        return
    but = marker.kwargs["but"]
    by_id = {case.nodeid.partition("[")[2].removesuffix("]"): case for case in cases}
    if isinstance(but, int):
        last = len(cases) - 1
        kept = [cases[round(turn * last / max(but - 1, 1))] for turn in range(min(but, len(cases)))]
    elif set(but) <= by_id.keys():
        kept = [by_id[name] for name in but]
    else:
        raise pytest.UsageError(f"{cases[0].nodeid}: no case has the id {set(but) - by_id.keys()}")
    for case in kept:
        case.own_markers[:] = [one for one in case.own_markers if one is not marker]


def pytest_configure(config: pytest.Config) -> None:
    """Hypothesis tries fewer examples where the exhaustive tests are left out. It would call data slow, and fail, on a
    machine that is."""
    tries = MOST // LESS if "not exhaustive" in config.option.markexpr else MOST
    settings.register_profile(
        "evalkit", deadline=None, derandomize=True, max_examples=tries, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("evalkit")


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
