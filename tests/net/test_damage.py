"""Damaged runs: what every command says of them, what a repair leaves; never a traceback where the golden has none."""

import pytest

from tests.net.checking import Made, check, check_whole
from tests.net.goldens import ids
from tests.net.goldens import reasons as listed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("net"))


@pytest.mark.parametrize("one", ids(group="damage"))
def test_a_damaged_run_is_answered_as_it_was(one: str, made: Made) -> None:
    check(one, made)


def test_no_damage_is_without_a_golden(made: Made) -> None:
    check_whole("damage", made)
    for one in listed():
        if one.startswith("damage/"):
            check(one, made)
