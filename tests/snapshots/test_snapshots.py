"""What commands print and leave is what it was; where another wording is meant, `--snapshot-update` rewrites all.

All in one file, so that one process asks each command once."""

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.snapshots.asking import Asking, transcript
from tests.snapshots.commands import ALONE, READERS, WRITERS
from tests.snapshots.damage import AFTER_A_KILL, RECIPES
from tests.snapshots.keep import KEPT, MAKERS
from tests.support.kept_values import check_kept

DAMAGED = [*(f"policies/{name}" for name in RECIPES), *(f"killed/{name}" for name in AFTER_A_KILL)]


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Asking:
    return Asking(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize(("run", "name"), [(run, name) for run, lines in READERS.items() for name in lines])
def test_of_runs(run: str, name: str, asking: Asking, snapshot: SnapshotAssertion) -> None:
    line = READERS[run][name]
    assert transcript([(line, asking.read(run, line))]) == snapshot


@pytest.mark.parametrize("name", ALONE)
def test_without_runs(name: str, asking: Asking, snapshot: SnapshotAssertion) -> None:
    assert transcript([(ALONE[name], asking.alone(ALONE[name]))]) == snapshot


@pytest.mark.parametrize("name", WRITERS)
def test_of_what_is_written(name: str, asking: Asking, snapshot: SnapshotAssertion) -> None:
    said, left = asking.written[name]
    assert transcript(said) + left == snapshot


@pytest.mark.parametrize("name", DAMAGED)
def test_of_damaged_runs(name: str, asking: Asking, snapshot: SnapshotAssertion) -> None:
    assert transcript(asking.damaged[name]) == snapshot


@pytest.mark.parametrize("name", MAKERS)
def test_exit_codes_json_keys_and_columns_stay(name: str, asking: Asking) -> None:
    check_kept(KEPT / f"{name}.txt", getattr(asking, name)(), "tests.snapshots.keep")
