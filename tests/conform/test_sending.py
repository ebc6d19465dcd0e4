"""No change alters a bit of what is sent, of an episode's id or of a step's digest, unless it rewrites what is kept."""

from pathlib import Path

import pytest

from tests.conform.sending import IN_TEXT, MAKERS, SENT, SUITES, kept
from tests.support.dialect_sweep import DIALECTS
from tests.support.kept_values import check_kept


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_sent_stays_as_it_was(name: str, tmp_path: Path) -> None:
    check_kept(SENT / f"{name}.txt", MAKERS[name](tmp_path), "tests.conform.sending")


def test_every_dialect_is_kept_in_every_environment() -> None:
    assert {*IN_TEXT} == {*SUITES}
    assert {*IN_TEXT.values()} == {*DIALECTS.values()}
    for environment in SUITES:
        assert {line.split()[0] for line in kept("requests", environment)} == {*DIALECTS.values()}
    for agent in DIALECTS:
        assert {line.split()[0] for line in kept("sent", agent)} == {*SUITES}
