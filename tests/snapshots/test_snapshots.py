"""What commands print and leave is what it was; where another wording is meant, `--snapshot-update` rewrites all.

All in one file, so that one process asks each command once."""

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.snapshots.asking import Asking, keys_of, transcript
from tests.snapshots.commands import ALONE, READERS, WRITERS
from tests.snapshots.damage import AFTER_A_KILL, RECIPES
from tests.snapshots.keep import KEPT, MAKERS
from tests.support.kept_values import check_kept

DAMAGED = [*(f"policies/{name}" for name in RECIPES), *(f"killed/{name}" for name in AFTER_A_KILL)]


def test_a_value_that_is_lost_is_named_and_so_is_a_new_one(tmp_path: Path) -> None:
    file = tmp_path / "keys.txt"
    file.write_text("status $.money\nstatus $.run\n")
    check_kept(file, ["status $.money", "status $.run"], "some.module")
    with pytest.raises(
        AssertionError, match=r"(?m)1 kept values are gone[\s\S]*^-status \$\.run$[\s\S]*some\.module keys"
    ):
        check_kept(file, ["status $.money"], "some.module")
    with pytest.raises(AssertionError, match=r"0 kept values are gone or changed, 1 are new"):
        check_kept(file, ["status $.money", "status $.new", "status $.run"], "some.module")


def test_every_key_of_a_json_value_has_its_place() -> None:
    value = {"tables": {"scores": {"rows": [{"agent": "a"}, {"score": 1}]}}, "notes": []}
    places = [
        "tables",
        "tables.scores",
        "tables.scores.rows",
        "tables.scores.rows[].agent",
        "tables.scores.rows[].score",
    ]
    assert list(keys_of(value)) == [f"$.{place}" for place in (*places, "notes")]


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
