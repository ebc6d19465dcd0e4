"""Every command that reads, on every fixture: the same tables, the same JSON, the same exit codes as when the net was
made, or as a listed difference says."""

import pytest

from tests.net.checking import Made, check_group
from tests.net.goldens import GROUPS

MINE = [group for group in GROUPS if group.startswith("commands/")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("net"))


@pytest.mark.parametrize("group", MINE)
def test_every_command_says_what_it_said_and_nothing_else(group: str, made: Made) -> None:
    check_group(group, made)
