"""Suites that are too large to be looked into line by line: what is found at once, and that it is the same suite."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from evalkit.envs.environment import Environment
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.spec import bulk, suites
from evalkit.spec.bulk import Bulk
from evalkit.spec.model import SuiteInstance, SuiteUse

FEW = 20


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large is so soon."""
    monkeypatch.setattr(suites, "LOOKED_INTO", FEW)
    monkeypatch.setattr(bulk, "SAMPLED", 16)
    monkeypatch.setattr(bulk, "CHUNK", 700)


def lines(count: int, environment: str = "scheduling") -> list[dict[str, Any]]:
    return [dict(line) for line in ENVIRONMENTS[environment].generate({}, count, 5)]


def write(path: Path, found: Sequence[Mapping[str, Any] | bytes]) -> SuiteUse:
    path.write_bytes(b"\n".join(one if isinstance(one, bytes) else orjson.dumps(one) for one in found))
    return SuiteUse(name=str(path))


def large(use: SuiteUse) -> Bulk:
    ((_, _, found),) = suites.expand(use)
    assert isinstance(found, Bulk)
    return found


def small(use: SuiteUse, monkeypatch: pytest.MonkeyPatch) -> list[SuiteInstance]:
    monkeypatch.setattr(suites, "LOOKED_INTO", 10**6)
    ((_, _, found),) = suites.expand(use)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("environment", ["scheduling", "pricing", "procurement", "costbench"])
def test_strata_are_those_that_loading_every_line_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: str
) -> None:
    use = write(tmp_path / "s.jsonl", lines(45, environment))
    quick, slow = large(use), small(use, monkeypatch)
    names = list(quick.strata)
    strata = {orjson.loads(raw)["id"]: names[code] for raw, code in zip(quick.chosen(), quick.codes, strict=True)}
    assert strata == {one.id: one.stratum for one in slow}
    assert sum(quick.strata.values()) == len(quick) == 45
    assert {one.stratum for one in quick.samples} == set(strata.values())
    assert 45 / 16 <= len(quick.samples) < 45


@pytest.mark.parametrize("environment", ["scheduling", "pricing", "procurement", "costbench", "errand"])
def test_every_environment_says_what_is_alike(environment: str) -> None:
    env: Environment[Any, Any] = ENVIRONMENTS[environment]
    assert env.likeness is not None
    assert env.likeness({}) == env.likeness({"id": "x"})


def test_reference_seeds_tell_the_family_that_loading_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [{"id": f"s{i}", "environment": "scheduling", "generator": "reference", "seed": i} for i in range(40)]
    use = write(tmp_path / "s.jsonl", found)
    quick = large(use)
    slow: dict[str, int] = {}
    for one in small(use, monkeypatch):
        slow[one.stratum] = slow.get(one.stratum, 0) + 1
    assert dict(quick.strata) == slow


def test_blocks_are_the_lines_wherever_blank_ones_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "ROWS", 4)
    plain = lines(30)
    use = write(tmp_path / "s.jsonl", [b"", plain[0], b"  ", b"", *plain[1:17], b"\r", *plain[17:], b"", b""])
    found = large(use)
    assert [orjson.loads(raw)["id"] for raw in found.chosen()] == [line["id"] for line in plain]
    blocks = [orjson.loads(raw)["id"] for number in range(8) for raw in found.block(number)]
    assert blocks == [line["id"] for line in plain]


def test_chosen_ids_are_chosen(tmp_path: Path) -> None:
    plain = lines(40)
    use = write(tmp_path / "s.jsonl", plain)
    wanted = tuple(line["id"] for line in plain[5:35])
    found = large(SuiteUse(name=use.name, instances=wanted))
    assert tuple(orjson.loads(raw)["id"] for raw in found.chosen()) == wanted
    assert found.digest != large(use).digest
    few = SuiteUse(name=use.name, instances=wanted[:3])
    ((_, _, three),) = suites.expand(few)
    assert isinstance(three, list)
    assert sorted(one.id for one in three) == sorted(wanted[:3])
    with pytest.raises(UsageError, match=r"has no instance 'uniform-00'\. Did you mean 'uniform-"):
        large(SuiteUse(name=use.name, instances=(*wanted, "uniform-00")))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda found: found.insert(30, b"{"), r"s\.jsonl:31: not valid JSON"),
        (lambda found: found.insert(30, b"[1]"), r"s\.jsonl:31: expected a JSON object with an `id`"),
        (
            lambda found: found.insert(30, b'{"id":3,"environment":"scheduling"}'),
            r"s\.jsonl:31: expected a JSON object",
        ),
        (lambda found: found.insert(30, b'{"id":"x"}'), r"s\.jsonl:31: environment: missing"),
        (
            lambda found: found.insert(30, b'{"id":"x","environment":"pricing"}'),
            r"s\.jsonl:31: environment: 'pricing' differs",
        ),
        (lambda found: found.append({**found[3], "seed": 99}), "two lines share the id 'identical-3'|two lines share"),
        (lambda found: found.insert(30, {**found[3], "id": "x", "family": "odd"}), r"s\.jsonl:31: x: family"),
        (lambda found: found.insert(30, {**found[3], "id": "x", "family": ["odd"]}), r"s\.jsonl:31: x: family"),
        (lambda found: found[32].update(n=-1), r"s\.jsonl:33: .*: n: "),
    ],
)
def test_what_one_pass_finds_is_named_with_its_line(tmp_path: Path, change: Any, says: str) -> None:
    found: list[Any] = lines(40)
    change(found)
    with pytest.raises(UsageError, match=says):
        large(write(tmp_path / "s.jsonl", found))


def test_the_same_in_the_same_words_is_played_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = lines(40)
    found = [*plain, {**plain[3], "id": "again"}, {**plain[7], "id": "and-again"}]
    use = write(tmp_path / "s.jsonl", found)
    quick = large(use)
    ids = [orjson.loads(raw)["id"] for raw in quick.chosen()]
    assert len(quick) == 40
    assert not {"again", "and-again"} & set(ids)
    assert sorted(ids) == sorted(one.id for one in small(use, monkeypatch))


def test_the_digest_is_of_the_files_bytes_and_of_what_is_varied(tmp_path: Path) -> None:
    plain = lines(40)
    use, same = write(tmp_path / "s.jsonl", plain), write(tmp_path / "t.jsonl", plain)
    assert large(use).digest == large(same).digest
    other = write(tmp_path / "u.jsonl", [*plain[1:], plain[0]])
    assert large(use).digest != large(other).digest
    varied = SuiteUse(name=use.name, vary={"periods": (3, 4)})
    digests = {found.digest for _, _, found in suites.expand(varied) if isinstance(found, Bulk)}
    assert len(digests | {large(use).digest}) == 3


def test_combinations_that_come_to_the_same_are_one_suite(tmp_path: Path) -> None:
    plain = lines(30, "costbench")
    use = write(tmp_path / "s.jsonl", plain)
    varied = SuiteUse(name=use.name, vary={"block": ("none", "cost_change"), "blocks": (1, 2)})
    assert [dict(axes) for _, axes, _ in suites.expand(varied)] == [
        {"block": "none", "blocks": 1},
        {"block": "cost_change", "blocks": 1},
        {"block": "cost_change", "blocks": 2},
    ]


def test_a_file_that_changes_under_our_hands_is_noticed(tmp_path: Path) -> None:
    plain = lines(40)
    use = write(tmp_path / "s.jsonl", plain)
    found = large(use)
    write(tmp_path / "s.jsonl", [*plain[:-1], {**plain[-1], "seed": 3}])
    with pytest.raises(UsageError, match="changed while it was read"):
        list(found.chosen())


def test_a_mark_at_the_beginning_of_a_suite_is_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = lines(45)
    plain, marked = write(tmp_path / "p.jsonl", found), write(tmp_path / "m.jsonl", found)
    path = tmp_path / "m.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    quick, known = large(marked), large(plain)
    assert [orjson.loads(raw) for raw in quick.chosen()] == [orjson.loads(raw) for raw in known.chosen()] == found
    assert orjson.loads(quick.block(0)[0]) == found[0]
    assert quick.strata == known.strata
    for name in ("utf-16", "utf-32-be"):
        path.write_bytes(orjson.dumps(found[0]).decode().encode(name))
        with pytest.raises(UsageError, match="Save it as UTF-8"):
            large(marked)
    path.write_bytes(b"\xef\xbb\xbf" + b"\n".join(orjson.dumps(one) for one in found))
    assert [one.digest for one in small(marked, monkeypatch)] == [one.digest for one in small(plain, monkeypatch)]
