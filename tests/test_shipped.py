from pathlib import Path

import pytest

from evalkit.errors import UsageError
from evalkit.shipped import _existing, find, folders


def test_a_users_folder_comes_before_what_evalkit_brings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "mine.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert folders("providers")[0] == tmp_path / "providers"
    assert len(folders("providers")) == 2
    assert find("providers", "mine.toml") == tmp_path / "providers" / "mine.toml"


def test_the_checkouts_folder_is_named_once_when_it_is_also_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent.parent)
    assert len(folders("providers")) == 1


def test_an_installed_package_uses_what_it_carries_and_no_neighbour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "evalkit"
    carried = package / "_shipped" / "runs"
    carried.mkdir(parents=True)
    (tmp_path / "site-packages" / "runs").mkdir()
    monkeypatch.chdir(package)
    assert _existing("runs", package) == [carried]


def test_a_missing_file_is_answered_with_the_places_and_the_nearest_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "instances" / "market").mkdir(parents=True)
    (tmp_path / "instances" / "market" / "small.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"no instances/market/smal\.jsonl.*Did you mean 'market/small'"):
        find("instances", "market/smal.jsonl")
    with pytest.raises(UsageError, match="no folder 'nonsense' exists"):
        find("nonsense", "x.toml")
