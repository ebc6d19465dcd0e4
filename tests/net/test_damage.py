"""Damaged runs: what every command says of them, what a repair leaves; never a traceback where the golden has none."""

from pathlib import Path

from tests.net.checking import Made, check_group


def test_every_damaged_run_is_answered_as_it_was_and_no_other_is_made(tmp_path: Path) -> None:
    check_group("damage", Made(tmp_path))
