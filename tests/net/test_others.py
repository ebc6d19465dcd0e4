"""Commands that write, commands that are refused, flags; requests, ids and digests."""

import pytest

from tests.net.checking import Made, check_group

MINE = ["writers", "alone", "flags", "requests", "ids", "steps"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("net"))


@pytest.mark.parametrize("group", MINE)
def test_what_was_golden_is_so_today_and_nothing_else_is_made(group: str, made: Made) -> None:
    check_group(group, made)
