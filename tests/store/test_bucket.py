"""Places in a bucket: names like paths, creation by one alone, and what a store away or unsure does to a write."""

import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evalkit.errors import StorageError, StoreAway, UsageError
from evalkit.store import bucket, disk
from evalkit.store.bucket import BucketPath, is_bucket, place_of
from evalkit.store.events import read_events
from evalkit.store.objects import store_of
from tests.support.object_stores import StoreProxy, make_bucket, proxy, reached_at


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreProxy]:
    monkeypatch.setattr(bucket, "FIRST_PAUSE_S", 0.01)
    with proxy() as state, reached_at(state.url):
        yield state


@pytest.fixture
def top(store: StoreProxy) -> BucketPath:
    return a_place(make_bucket())


def a_place(name: str) -> BucketPath:
    place = place_of(name)
    assert isinstance(place, BucketPath)
    return place


def test_names_are_those_of_paths() -> None:
    place = a_place("s3://bucket/runs/mine/")
    assert str(place) == "s3://bucket/runs/mine"
    assert str(place / "log" / "a.parquet") == "s3://bucket/runs/mine/log/a.parquet"
    assert (place / "a.json").stem == "a"
    assert place.parent == a_place("s3://bucket/runs")
    assert (place / "log/a").relative_to(place).as_posix() == "log/a"
    assert place.key == "runs/mine"
    assert a_place("gs://bucket").key == ""
    assert place.absolute() == place.resolve() == place.expanduser() == place
    assert place_of(str(place)) == place
    assert pickle.loads(pickle.dumps(place)) == place
    assert hash(place) == hash(a_place("s3://bucket/runs/mine"))


def test_other_names_are_of_the_disk() -> None:
    assert not is_bucket("s3:/bucket/a")
    assert not isinstance(place_of("runs/mine"), BucketPath)
    assert place_of(Path("runs")) == Path("runs")


@pytest.mark.parametrize("name", ["s3://", "s3:///a", "s3://b//a", "s3://b/../a", "s3://b/a?b", "az://b/a%20b"])
def test_names_that_no_bucket_can_have_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        place_of(name)


def test_what_would_look_at_the_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = a_place("s3://bucket/a")
    with pytest.raises(UsageError, match="aws s3 sync"):
        os.fspath(place)
    with pytest.raises(UsageError, match="aws s3 sync"):
        place.write_text("x")
    with pytest.raises(UsageError, match="aws s3 sync"):
        place.rename("b")
    with pytest.raises(UsageError, match="cannot be opened"):
        place.open("wb")
    assert not list(tmp_path.iterdir())


def test_files_are_found_as_on_the_disk(top: BucketPath, tmp_path: Path) -> None:
    names = ("log/w/000000000.parquet", "log/w/000000001.parquet", "steps/a.parquet", "rest.json", "logs/b.parquet")
    for name in names:
        (top / "run" / name).put(name.encode())
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    here = top / "run"
    for pattern in ("*.json", "log/*/*.parquet", "steps/*.parquet", "*/*.parquet", "none/*.json"):
        found = {path.relative_to(here).as_posix() for path in here.glob(pattern)}
        assert found == {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob(pattern)}, pattern
    assert {path.name for path in here.iterdir()} == {path.name for path in tmp_path.iterdir()}
    assert {entry.name: entry.is_dir() for entry in disk.entries_of(here)} == {
        path.name: path.is_dir() for path in tmp_path.iterdir()
    }
    assert here.below() == {name: len(name) for name in names}
    assert sorted(path.relative_to(here).as_posix() for path in here.rglob("*")) == sorted(names)
    file = here / "rest.json"
    assert (file.exists(), file.is_file(), file.is_dir()) == (True, True, False)
    assert ((here / "log").exists(), (here / "log").is_file(), (here / "log").is_dir()) == (True, False, True)
    assert not (here / "lo").exists()
    assert file.stat().st_size == len("rest.json")
    with file.open("rb") as opened:
        opened.seek(5)
        assert opened.read(2) == b"js"
        assert opened.read() == b"on"
    file.unlink()
    file.unlink(missing_ok=True)
    assert disk.read_whole(file) is None
    with pytest.raises(FileNotFoundError):
        file.read_bytes()


def test_a_folder_can_be_seen_before_anything_is_in_it(top: BucketPath) -> None:
    disk.make_directories(top / "log" / "w")
    assert [entry.name for entry in disk.entries_of(top / "log")] == ["w"]
    assert disk.entries_of(top / "log" / "w") == []
    (top / "log" / "w").rmdir()
    assert not (top / "log").exists()
    disk.make_directories(top / "log" / "w")
    (top / "log" / "w" / "a").put(b"1")
    (top / "log" / "w").rmdir()
    assert [entry.name for entry in disk.entries_of(top / "log" / "w")] == ["a"]


def test_one_of_many_creates(top: BucketPath) -> None:
    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda number: _created(top / "a", bytes([number])), range(8)))
    assert sum(created) == 1
    assert (top / "a").now() == bytes([created.index(True)])


def _created(place: BucketPath, data: bytes) -> bool:
    try:
        place.create(data)
    except FileExistsError:
        return False
    return True


@pytest.mark.parametrize("status", ["401", "403"])
@pytest.mark.parametrize(
    "use",
    [
        lambda place: place.create(b"1"),
        lambda place: place.put(b"1"),
        lambda place: place.now(),
        lambda place: place.stat(),
        lambda place: place.is_dir(),
        lambda place: place.entries(),
        lambda place: place.below(),
        lambda place: place.unlink(),
    ],
    ids=["create", "put", "get", "head", "look", "list", "list all", "delete"],
)
def test_whoever_is_refused_hears_of_credentials_and_does_not_wait(
    store: StoreProxy, top: BucketPath, use: Callable[[BucketPath], object], status: str
) -> None:
    store.fault = lambda _, __: status
    with pytest.raises(StorageError, match=r"refuses this access .* Check the credentials") as caught:
        use(top / "a")
    assert not isinstance(caught.value, StoreAway)


@pytest.mark.parametrize("fate", ["503", "409", "drop"])
def test_a_write_is_repeated_until_it_is_known_to_be_there(store: StoreProxy, top: BucketPath, fate: str) -> None:
    fates = iter([fate] * 6)
    store.fault = lambda method, _: next(fates, "") if method == "PUT" else ""
    disk.create_durably(top / "a", b"mine")
    assert (top / "a").now() == b"mine"
    assert next(fates, "") == "", "the store was not asked as often as it refused"
    with pytest.raises(FileExistsError):
        disk.create_durably(top / "a", b"other")
    assert (top / "a").now() == b"mine"


def test_a_store_that_says_nothing_is_asked_again(
    store: StoreProxy, top: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalkit.store.objects.ANSWER_S", 1)
    store_of.cache_clear()
    fates = iter(["silence"])
    store.fault = lambda method, _: next(fates, "") if method == "PUT" else ""
    disk.create_durably(top / "a", b"mine")
    assert (top / "a").now() == b"mine"


def test_a_store_that_stays_away_ends_it(store: StoreProxy, top: BucketPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "PATIENCE_S", 0.2)
    store.fault = lambda *_: "503"
    with pytest.raises(StorageError, match="does not answer as it should"):
        disk.create_durably(top / "a", b"mine")


def test_a_bucket_that_is_not_there_is_named(store: StoreProxy) -> None:
    with pytest.raises(StorageError, match="s3://no-such-bucket/a: there is no such bucket"):
        disk.create_durably(a_place("s3://no-such-bucket/a"), b"1")


def test_an_object_that_another_has_made_is_not_replaced(top: BucketPath) -> None:
    disk.write_durably(top / "steps" / "a.parquet", b"1")
    disk.write_durably(top / "steps" / "a.parquet", b"1")
    with pytest.raises(StorageError, match="another process"):
        disk.write_durably(top / "steps" / "a.parquet", b"2")
    disk.write_parts_durably(top / "voids.jsonl", [b"1", b"2"])
    disk.write_parts_durably(top / "voids.jsonl", [b"3"])
    assert (top / "voids.jsonl").now() == b"3"


def test_lines_are_added_and_read_in_order(top: BucketPath) -> None:
    for number in range(3):
        disk.append_lines(top / "events.jsonl", b'{"kind":"a","n":%d}\n' % number)
    assert [event["n"] for event in read_events(top, "a")] == [0, 1, 2]


def test_objects_that_never_change_are_fetched_once(store: StoreProxy, top: BucketPath) -> None:
    lasting = top / "log" / "0123abcd-host-12-1700000000.000" / "000000000.parquet"
    changing = top / "derived" / "episodes.parquet"
    for place, requests in ((lasting, 1), (changing, 2)):
        place.put(b"1")
        before = store.asked["GET"]
        assert [place.read_bytes(), place.read_bytes()] == [b"1", b"1"]
        assert store.asked["GET"] - before == requests


def test_without_its_library_a_bucket_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore.exceptions", None)
    store_of.cache_clear()
    with pytest.raises(UsageError, match=r"pip install 'evalkit-econ\[cloud\]'"):
        store_of("s3", "bucket")
