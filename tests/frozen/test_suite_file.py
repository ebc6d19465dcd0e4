"""The instances of a suite in their file: read a group at a time, and never otherwise than they were written."""

import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from evalkit.envs import suite_rows
from evalkit.envs.suite_rows import GROUPS_KEPT, MOST_LINES, ROWS, SuiteRow
from evalkit.errors import CorruptLogError, StorageError
from evalkit.frozen import suite_file
from evalkit.frozen.instances import InstanceList, ManifestInstance, admission
from evalkit.frozen.suite_file import FOLDER, Description, StoredInstances, stored, write_suite
from evalkit.store import disk

STRATA = ("a", "b", "a", "c", "a")


def some(count: int, words: str = "") -> list[ManifestInstance]:
    return [
        ManifestInstance(
            id=f"i{i}", digest=f"{i:032x}", stratum=STRATA[i % 5], line={"id": f"i{i}", "value": i, "words": words}
        )
        for i in range(count)
    ]


def kept(run: Path, instances: Sequence[ManifestInstance]) -> StoredInstances:
    return write_suite(run, InstanceList(instances))


def again(run: Path, said: Description) -> StoredInstances:
    """As somebody who opens it finds it."""
    return stored(run, said)


@pytest.mark.parametrize("most", [0, MOST_LINES])
@pytest.mark.parametrize("count", [1, ROWS - 1, ROWS, ROWS + 1, 5 * ROWS])
def test_instances_come_back_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, most: int
) -> None:
    monkeypatch.setattr(suite_file, "MOST_LINES", most)
    found, wanted = kept(tmp_path, some(count)), some(count)
    assert list(found) == wanted
    assert [found[place] for place in (0, count - 1, -1)] == [wanted[place] for place in (0, -1, -1)]
    assert found[1:3] == wanted[1:3]
    assert found.codes().tolist() == InstanceList(wanted).codes().tolist()
    assert (list(found.ids), list(found.digests)) == (InstanceList(wanted).ids, InstanceList(wanted).digests)
    assert list(found.rows()) == list(InstanceList(wanted).rows())
    assert found.find(["i0", f"i{count - 1}", "no"]) == {"i0": 0, f"i{count - 1}": count - 1}
    with pytest.raises(IndexError):
        found[count]


def test_anybodys_parquet_shows_the_lines(tmp_path: Path) -> None:
    table = pq.read_table(kept(tmp_path, some(300)).path)
    assert table.column_names == list(SuiteRow._fields)
    assert [msgspec.json.decode(line) for line in table.column("line").to_pylist()] == [one.line for one in some(300)]


def test_the_name_is_that_of_the_content_however_it_is_laid_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kept(tmp_path / "one", some(300))
    monkeypatch.setattr(suite_rows, "ROWS", 9)
    other = kept(tmp_path / "other", some(300))
    assert one.path.read_bytes() != other.path.read_bytes()
    assert (one.digest, list(one)) == (other.digest, list(other))
    assert kept(tmp_path / "third", some(300)[::-1]).digest != one.digest


def test_one_instance_of_many_is_read_without_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite_file, "MOST_LINES", 0)
    found = kept(tmp_path, some(20 * ROWS))
    assert len(found.ids) == 20 * ROWS  # checked
    read: list[int] = []
    plain = suite_rows.SuiteRows._columns

    def counting(own: suite_rows.SuiteRows, number: int, names: Sequence[str]) -> list[list[str]]:
        read.append(number)
        return plain(own, number, names)

    monkeypatch.setattr(suite_rows.SuiteRows, "_columns", counting)
    assert found[5000] == some(5001)[5000]
    assert read == [5000 // ROWS]
    assert found[5001].id == "i5001"
    assert len(read) == 1
    for place in range(0, 2 * GROUPS_KEPT * ROWS, ROWS):
        assert found[place].id == f"i{place}"
    assert len(found._rows._kept) == GROUPS_KEPT


def test_length_strata_and_equality_read_nothing(tmp_path: Path) -> None:
    found = kept(tmp_path, some(300))
    found.path.unlink()
    fresh = again(tmp_path, found.description)
    assert (len(fresh), dict(fresh.strata), fresh == found) == (300, {"a": 180, "b": 60, "c": 60}, True)
    with pytest.raises(CorruptLogError, match=f"{found.digest}.* is missing.*Restore it"):
        fresh[0]


def test_groups_have_fewer_lines_where_these_are_long(tmp_path: Path) -> None:
    assert pq.ParquetFile(kept(tmp_path, some(40, words="x" * 50_000)).path).metadata.row_group(0).num_rows < 4


def flips(raw: bytes) -> Iterator[tuple[int, bytes]]:
    draws = random.Random(5)
    places = {*range(16), *range(len(raw) - 40, len(raw)), *(draws.randrange(len(raw)) for _ in range(300))}
    for at in sorted(places):
        changed = bytearray(raw)
        changed[at] ^= 1 << draws.randrange(8)
        yield at, bytes(changed)


@pytest.mark.parametrize("most", [0, MOST_LINES])
def test_no_changed_byte_goes_unnoticed_or_changes_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(suite_file, "MOST_LINES", most)
    found = kept(tmp_path, some(300))
    raw, wanted, noticed, harmless = found.path.read_bytes(), some(300), 0, list[int]()
    for at, changed in flips(raw):
        found.path.write_bytes(changed)
        try:
            assert list(again(tmp_path, found.description)) == wanted
            harmless.append(at)
        except CorruptLogError as flaw:
            noticed += found.path.name in str(flaw)
    assert noticed + len(harmless) == len(list(flips(raw)))
    assert noticed > 2 * len(harmless), harmless  # much of a footer is nothing that a reader looks at
    for end in (0, 7, 15, len(raw) // 2, len(raw) - 1):
        found.path.write_bytes(raw[:end])
        with pytest.raises(CorruptLogError, match="is damaged"):
            list(again(tmp_path, found.description))


def test_the_file_of_another_suite_is_not_taken_for_it(tmp_path: Path) -> None:
    found, other = kept(tmp_path, some(300)), kept(tmp_path, some(200))
    shutil.copy(other.path, found.path)
    with pytest.raises(CorruptLogError, match="does not match its name"):
        list(again(tmp_path, found.description))
    said = msgspec.structs.replace(other.description, count=300)
    with pytest.raises(CorruptLogError, match="other instances than the run's manifest"):
        list(again(tmp_path, said))


def test_a_disk_that_refuses_leaves_nothing_under_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "sync_file", refuse)
    with pytest.raises(StorageError, match="disk or quota is full"):
        write_suite(tmp_path, InstanceList(some(10)))
    assert list((tmp_path / FOLDER).iterdir()) == []


@pytest.mark.parametrize("key", [None, 7])
def test_the_order_of_admission_is_that_of_the_plain_rule(tmp_path: Path, key: int | None) -> None:
    """Against strata kept in lists, as it is defined."""
    from evalkit.seeds import Permutation

    instances = some(503)
    members: dict[str, list[int]] = {}
    for place, one in enumerate(instances):
        members.setdefault(one.stratum, []).append(place)
    orders = {name: Permutation(len(own), key or 0, name) for name, own in members.items()}
    taken, wanted = dict.fromkeys(members, 0), []
    for one in instances:
        place = taken[one.stratum]
        taken[one.stratum] += 1
        wanted.append(members[one.stratum][place if key is None else orders[one.stratum].at(place)])
    assert list(admission(instances, key)) == list(admission(kept(tmp_path, instances), key)) == wanted
