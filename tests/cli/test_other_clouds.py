"""Runs in containers of Azure and in buckets of Google: played, killed and resumed, copied, verified."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalkit.frozen.copying import download
from evalkit.store.bucket import BucketPath, place_of
from evalkit.store.files.journal import has_ended
from evalkit.store.files.layout import journals
from evalkit.store.objects import store_of
from tests.soak.test_kill import steps
from tests.support.command_line import POLICIES, Call, start
from tests.support.other_clouds import azure, google
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.exhaustive

CLOUDS = {"az": azure, "gs": google}


@pytest.fixture(params=CLOUDS)
def bucket(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "store").mkdir()
    with CLOUDS[request.param](tmp_path / "store") as (url, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        store_of.cache_clear()
        yield url
        store_of.cache_clear()


def test_an_object_is_created_by_one_alone(bucket: str) -> None:
    top = place_of(f"{bucket}/here")
    assert isinstance(top, BucketPath)
    (top / "one").create_once(b"first")
    with pytest.raises(FileExistsError):
        (top / "one").create_once(b"second")
    assert (top / "one").now() == b"first"
    assert (top / "none").now() is None
    (top / "below" / "two").put(b"2")
    assert sorted(one.name for one in top.entries()) == ["below", "one"]
    (top / "one").unlink()
    assert (top / "one").now() is None


def test_a_run_is_played_killed_resumed_and_verified(bucket: str, call: Call, here: Path) -> None:
    (here / "mine.toml").write_text(POLICIES)
    place = f"{bucket}/mine"
    killed = start(here, "run", "mine.toml", "--dir", place)
    while not journals(place_of(place)):
        assert killed.poll() is None, killed.communicate()
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=PATIENCE_S)
    again = call("run", "mine.toml", "--dir", place, "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out.splitlines()[-1])["ended"] == 4
    assert all(has_ended(place_of(place), writer) for writer in journals(place_of(place)))
    assert call("verify", place).code == 0
    download(place_of(place), here / "runs" / "back")
    whole = call("run", "mine.toml", "--dir", "runs/whole")
    assert whole.code == 0, whole.err
    assert steps(here / "runs" / "back") == steps(here / "runs" / "whole")
    for words in (("status", "--json"), ("report", "--json")):
        one, other = (call(words[0], name, words[1]) for name in (place, "runs/back"))
        assert one.code == other.code == 0
        assert one.out.replace(place, "runs/back") == other.out
