"""Every command that reads, on every fixture: the same tables, the same JSON, the same exit codes as when the net was
made, or as a listed difference says."""

import pytest

from tests.net.checking import Made, check, check_whole
from tests.net.goldens import GROUPS, ids
from tests.net.goldens import reasons as listed

MINE = [group for group in GROUPS if group.startswith("commands/")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("net"))


@pytest.mark.parametrize("one", [one for group in MINE for one in ids(group=group)])
def test_a_command_says_what_it_said(one: str, made: Made) -> None:
    check(one, made)


@pytest.mark.parametrize("group", MINE)
def test_commands_say_nothing_that_is_not_golden(group: str, made: Made) -> None:
    check_whole(group, made)
    for one in listed():
        if one.startswith(f"{group}/"):
            check(one, made)
