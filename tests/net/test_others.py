"""Commands that write, commands that are refused, flags; requests, ids and digests."""

import pytest

from tests.net.checking import Made, check, check_whole
from tests.net.goldens import ids
from tests.net.goldens import reasons as listed

MINE = ["writers", "alone", "flags", "requests", "ids", "steps"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("net"))


@pytest.mark.parametrize("one", [one for group in MINE for one in ids(group=group)])
def test_what_was_golden_is_so_today(one: str, made: Made) -> None:
    check(one, made)


@pytest.mark.parametrize("group", MINE)
def test_nothing_is_made_that_is_not_golden(group: str, made: Made) -> None:
    check_whole(group, made)
    for one in listed():
        if one.startswith(f"{group}/"):
            check(one, made)
