"""The instances of a suite in their file: read alone, by anybody's zstd, and never otherwise than they were written."""

import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from evalkit.errors import CorruptLogError, StorageError
from evalkit.store import disk, suite_file
from evalkit.store.instances import BLOCKS_KEPT, Listed, ManifestInstance, admission
from evalkit.store.suite_file import ENDING, FEW, FOLDER, ROWS, Description, Stored, write_suite

STRATA = ("a", "b", "a", "c", "a")


def some(count: int, words: str = "") -> list[ManifestInstance]:
    return [
        ManifestInstance(
            id=f"i{i}", digest=f"{i:032x}", stratum=STRATA[i % 5], line={"id": f"i{i}", "value": i, "words": words}
        )
        for i in range(count)
    ]


def stored(run: Path, instances: Sequence[ManifestInstance]) -> Stored:
    own = Listed(instances)
    said = Description(file=write_suite(run, own), count=len(own), strata=dict(own.strata))
    return again(run, said)


def again(run: Path, said: Description) -> Stored:
    """As somebody who opens it finds it."""
    return Stored(run, said, "s", "guessing", {})


@pytest.mark.parametrize("count", [1, ROWS - 1, ROWS, ROWS + 1, 5 * ROWS])
def test_instances_come_back_as_they_were(tmp_path: Path, count: int) -> None:
    found = stored(tmp_path, some(count))
    assert list(found) == some(count)
    assert [found[place] for place in (0, count - 1, -1)] == [some(count)[place] for place in (0, -1, -1)]
    assert found[1:3] == some(count)[1:3]
    assert found.codes().tolist() == Listed(some(count)).codes().tolist()
    assert found.find(["i0", f"i{count - 1}", "no"]) == {"i0": 0, f"i{count - 1}": count - 1}
    with pytest.raises(IndexError):
        found[count]


@pytest.mark.skipif(shutil.which("zstdcat") is None, reason="there is no zstdcat here")
def test_anybodys_zstd_shows_the_lines(tmp_path: Path) -> None:
    found = stored(tmp_path, some(300))
    lines = subprocess.run(["zstdcat", str(found.path)], capture_output=True, check=True).stdout.splitlines()
    assert [msgspec.json.decode(line, type=ManifestInstance) for line in lines] == some(300)


def test_the_name_is_that_of_the_content_whatever_compressed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = stored(tmp_path / "one", some(300))
    monkeypatch.setattr(suite_file, "LEVEL", 9)
    other = stored(tmp_path / "other", some(300))
    assert one.path.read_bytes() != other.path.read_bytes()
    assert (one.digest, list(one)) == (other.digest, list(other))
    assert stored(tmp_path / "third", some(300)[::-1]).digest != one.digest


def test_one_instance_is_read_without_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = stored(tmp_path, some(FEW + 1))
    read: list[int] = []
    plain = suite_file.SuiteFile.block
    monkeypatch.setattr(suite_file.SuiteFile, "block", lambda file, number: read.append(number) or plain(file, number))
    assert found[5000] == some(5001)[5000]
    assert read == [5000 // ROWS]
    assert found[5001].id == "i5001"
    assert len(read) == 1
    for place in range(0, 3 * BLOCKS_KEPT * ROWS, ROWS):
        assert found[place].id == f"i{place}"
    assert len(found._kept) == BLOCKS_KEPT


def test_length_strata_and_equality_read_nothing(tmp_path: Path) -> None:
    found = stored(tmp_path, some(300))
    found.path.unlink()
    fresh = again(tmp_path, found.description)
    assert (len(fresh), dict(fresh.strata), fresh == found) == (300, {"a": 180, "b": 60, "c": 60}, True)
    with pytest.raises(CorruptLogError, match=f"{found.digest}.* is missing.*Restore it"):
        fresh[0]


def test_blocks_have_fewer_lines_where_these_are_long(tmp_path: Path) -> None:
    assert stored(tmp_path, some(40, words="x" * 50_000)).rows < 4


def flips(raw: bytes) -> Iterator[tuple[int, bytes]]:
    draws = random.Random(5)
    places = {*range(16), *range(len(raw) - 40, len(raw)), *(draws.randrange(len(raw)) for _ in range(300))}
    for at in sorted(places):
        changed = bytearray(raw)
        changed[at] ^= 1 << draws.randrange(8)
        yield at, bytes(changed)


def test_no_changed_byte_goes_unnoticed_or_changes_what_is_read(tmp_path: Path) -> None:
    found = stored(tmp_path, some(300))
    raw, wanted, noticed, harmless = found.path.read_bytes(), some(300), 0, list[int]()
    for at, changed in flips(raw):
        found.path.write_bytes(changed)
        try:
            assert list(again(tmp_path, found.description)) == wanted
            harmless.append(at)
        except CorruptLogError as flaw:
            noticed += found.path.name in str(flaw)
    # What zstd itself does not look at, such as the head of the frame that it skips.
    assert noticed > 20 * len(harmless), harmless
    assert noticed + len(harmless) == len(list(flips(raw)))
    for end in (0, 7, 15, len(raw) // 2, len(raw) - 1):
        found.path.write_bytes(raw[:end])
        with pytest.raises(CorruptLogError, match="is damaged"):
            list(again(tmp_path, found.description))


def test_the_file_of_another_suite_is_not_taken_for_it(tmp_path: Path) -> None:
    found, other = stored(tmp_path, some(300)), stored(tmp_path, some(200))
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
        write_suite(tmp_path, Listed(some(10)))
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_each_block_is_a_frame_of_its_own(tmp_path: Path) -> None:
    found = stored(tmp_path, some(3 * ROWS))
    index, raw = found.table, found.path.read_bytes()
    first, second = int(index.ends[0]), int(index.ends[1])
    block = pa.Codec("zstd").decompress(raw[first:second], decompressed_size=int(index.sizes[1]), asbytes=True)
    assert [msgspec.json.decode(line)["id"] for line in block.splitlines()] == [f"i{ROWS + i}" for i in range(ROWS)]
    assert found.path.name == f"{found.digest}{ENDING}"


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
    assert list(admission(instances, key)) == list(admission(stored(tmp_path, instances), key)) == wanted
