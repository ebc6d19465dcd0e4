"""The list of differences: each has a golden or is an addition, a reason, and still differs; no JSON key is lost."""

import json
from pathlib import Path

import pytest

from tests.net import differences, goldens
from tests.net.checking import Made, check, check_group, lost, lost_keys
from tests.net.goldens import DIFFERENCES, GOLDENS, GROUPS, REASONS, group_of, ids, losses, read, reasons

LISTED = reasons()


def test_every_golden_belongs_to_a_group() -> None:
    assert {group_of(one) for one in ids()} == set(GROUPS)


def test_every_listed_difference_differs_and_has_its_reason() -> None:
    for one, why in LISTED.items():
        assert read(DIFFERENCES, one) != read(GOLDENS, one), f"{one} no longer differs: `--gone` drops its entry"
        assert all(len(reason.split()) >= differences.LEAST_WORDS for reason in why), one


def test_every_kept_difference_is_listed() -> None:
    assert set(ids(DIFFERENCES)) - set(LISTED) == set()


def test_no_difference_takes_a_json_key_away_that_its_entry_does_not_name() -> None:
    may = losses()
    away = {one: sorted(set(lost(one, read(DIFFERENCES, one))) - set(may[one])) for one in LISTED}
    assert {one: keys for one, keys in away.items() if keys} == {}


def test_lost_keys_are_found_at_any_depth_and_additions_are_none() -> None:
    was = {"a": 1, "rows": [{"x": 1}, {"x": 2, "y": {"z": 0}}]}
    assert lost_keys(was, {**was, "b": 2}) == []
    assert lost_keys(was, {"a": 1, "rows": [{"x": 1, "y": {}}]}) == ["$.rows[].y.z"]
    assert lost_keys(was, {"rows": was["rows"]}) == ["$.a"]


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A net of one group with three goldens, two of which say something else today."""
    for name, value in {
        "GOLDENS": tmp_path / "golden",
        "DIFFERENCES": tmp_path / "intended",
        "REASONS": tmp_path / "differences.jsonl",
        "GROUPS": {"toy": lambda folder: {"toy/a": "1\n", "toy/b": "new\n", "toy/d": "more\n"}},
    }.items():
        for module in (goldens, differences):
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr("tests.net.checking.GROUPS", goldens.GROUPS)
    monkeypatch.setattr("tests.net.checking.GOLDENS", goldens.GOLDENS)
    for one, text in {"toy/a": "1\n", "toy/b": "old\n", "toy/c": "gone\n"}.items():
        goldens.write(tmp_path / "golden", one, text)
    return tmp_path


def test_a_difference_is_listed_with_a_reason_and_the_golden_stays(
    net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert differences.main([]) == 1
    assert capsys.readouterr().out.split() == ["differs:", "toy/b", "differs:", "toy/c", "differs:", "toy/d"]
    assert differences.main(["toy/b", "--reason", "because"]) == 2
    assert differences.main(["toy/*", "--reason", "tables say more"]) == 0
    assert (net / "golden" / "toy" / "b.txt").read_text() == "old\n"
    assert (net / "intended" / "toy" / "b.txt").read_text() == "new\n"
    assert not (net / "intended" / "toy" / "c.txt").exists()
    listed = [json.loads(line) for line in (net / "differences.jsonl").read_text().splitlines()]
    assert listed == [{"id": one, "reason": "tables say more"} for one in ("toy/b", "toy/c", "toy/d")]
    for one in ("toy/a", "toy/b", "toy/c", "toy/d"):
        check(one, Made(net / one.replace("/", "-")), reasons())


def test_a_lost_key_is_named_only_where_it_is_meant(net: Path) -> None:
    goldens.write(net / "golden", "toy/b", '{"x": 1, "y": 2}')
    differences.add("toy/b", '{"x": 1}', "one key is enough")
    assert goldens.losses() == {"toy/b": []}
    differences.add("toy/b", '{"x": 1}', "one key is enough", loses=True)
    assert goldens.losses() == {"toy/b": ["$.y"]}


def test_what_differs_unlisted_or_from_its_listed_difference_fails(net: Path) -> None:
    with pytest.raises(AssertionError, match="toy/b differs"):
        check("toy/b", Made(net / "one"), reasons())
    differences.main(["toy/b", "--reason", "tables say more"])
    (net / "intended" / "toy" / "b.txt").write_text("something else\n")
    with pytest.raises(AssertionError, match="toy/b differs"):
        check("toy/b", Made(net / "two"), reasons())


def test_of_a_group_every_id_is_named_that_differs_is_gone_or_has_no_golden(net: Path) -> None:
    with pytest.raises(ExceptionGroup, match=r"3 of 4 cases failed: toy/b, toy/c, toy/d"):
        check_group("toy", Made(net / "one"))


def test_an_entry_that_no_longer_differs_is_dropped(net: Path) -> None:
    differences.add("toy/a", "2\n", "it was two for a while")
    assert differences.main(["--gone"]) == 1
    assert reasons_of(net) == []


def reasons_of(net: Path) -> list[str]:
    return [json.loads(line)["id"] for line in (net / "differences.jsonl").read_text().splitlines()]


def test_the_list_is_read_line_by_line() -> None:
    for line in REASONS.read_text().splitlines():
        assert {"id", "reason"} <= json.loads(line).keys() <= {"id", "reason", "loses"}
