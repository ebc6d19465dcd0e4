"""A run of the guessing game with everything a report has to tell apart."""

import pytest

from evalkit.frozen.manifest import Manifest
from evalkit.money import PicoUsd
from evalkit.report.report import Report
from evalkit.store.files.record import LedgerRecord, StepRecord
from evalkit.store.files.schema import steps_table
from tests.support.guessing_game import calls, guess, say
from tests.support.guessing_runs import a_manifest, a_suite, an_agent, report_of, rows, search


@pytest.fixture(scope="session")
def manifest() -> Manifest:
    suites = [a_suite("game/basic", [1, 3, 5, 7]), a_suite("game/hard?k=2", [2, 4], {"k": 2})]
    agents = [
        an_agent("good"),
        an_agent("poor", pack="d1", marks=("temperature not sent: the model refuses it",)),
        an_agent("late", price=None),
    ]
    return a_manifest(agents, suites, replicates=2)


@pytest.fixture(scope="session")
def log(manifest: Manifest) -> list[StepRecord]:
    """`good` and `poor` are complete; of `late` the second of the admission order has only begun."""
    made = []
    for suite in manifest.suites.values():
        for replicate in range(2):
            for i, one in enumerate(suite.instances):
                secret = one.line["value"]
                fumble = [say("hm"), calls(("fly", "{}")), guess(secret - 1), calls(("guess", "[[")), guess(secret - 1)]
                made += rows(manifest, "good", suite.name, one.id, replicate, search(secret))
                made += rows(manifest, "poor", suite.name, one.id, replicate, fumble, attempts="rate_limit,ok")
                begun = (replicate, i) == (0, 1)
                made += rows(manifest, "late", suite.name, one.id, replicate, search(secret)[: 1 if begun else 3])
    return made


@pytest.fixture(scope="session")
def ledger() -> list[LedgerRecord]:
    return [
        LedgerRecord(kind="lease", session="s", amount=PicoUsd(10**12)),
        LedgerRecord(kind="charge", session="s", amount=PicoUsd(5 * 10**9), agent="poor"),
        LedgerRecord(kind="release", session="s", amount=PicoUsd(10**9), agent="poor"),
        LedgerRecord(kind="crash", session="s", amount=PicoUsd(3 * 10**9), agent="good"),
        LedgerRecord(kind="crash", session="s", amount=PicoUsd(7 * 10**9)),
        LedgerRecord(kind="close", session="s", amount=PicoUsd(10**11)),
    ]


@pytest.fixture(scope="session")
def the_report(manifest: Manifest, log: list[StepRecord], ledger: list[LedgerRecord]) -> Report:
    return report_of(manifest, steps_table(log), ledger)
