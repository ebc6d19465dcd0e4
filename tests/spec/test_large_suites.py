"""Suites of rows: they are what their lines are in a text file, and a file that is none is told."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

import evalkit
from evalkit.envs import suite_rows
from evalkit.envs.suite_rows import EncodedRows, SuiteRow, encode_rows
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.spec import suites
from evalkit.spec.model import SuiteUse
from evalkit.spec.suites import expand, rows_of


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large is so soon."""
    monkeypatch.setattr(suites, "MOST_LINES", 45)
    monkeypatch.setattr(suites, "SAMPLED", 16)
    monkeypatch.setattr(suite_rows, "ROWS", 7)


def lines(count: int, environment: str = "scheduling") -> list[dict[str, Any]]:
    return [dict(line) for line in ENVIRONMENTS[environment].generate({}, count, 5)]


def text(path: Path, found: Sequence[Mapping[str, Any]]) -> SuiteUse:
    path.write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in found))
    return SuiteUse(name=str(path))


def keep(path: Path, rows: Sequence[SuiteRow]) -> SuiteUse:
    path.write_bytes(encode_rows(rows).data.to_pybytes())
    return SuiteUse(name=str(path))


def rows(found: Sequence[Mapping[str, Any]]) -> list[SuiteRow]:
    return list(rows_of(found, "here"))


def large(use: SuiteUse) -> EncodedRows:
    ((_, _, found),) = expand(use)
    assert isinstance(found, EncodedRows)
    return found


@pytest.mark.parametrize("environment", ["scheduling", "pricing", "procurement", "costbench"])
@pytest.mark.parametrize("vary", [{}, {"periods": (3, 4)}])
def test_both_kinds_of_file_are_the_same_suite(tmp_path: Path, environment: str, vary: dict[str, Any]) -> None:
    if environment == "costbench" and vary:
        vary = {"block": ("none", "cost_change"), "blocks": (1, 2)}  # no event twice is no event
    found = lines(20, environment)
    found.append({**found[3], "id": "again"})
    kept, plain = keep(tmp_path / "s.parquet", rows(found)), text(tmp_path / "s.jsonl", found)
    one, other = (evalkit.suite(use.name, vary=vary) for use in (kept, plain))
    assert len(one) == 20 * (3 if environment == "costbench" and vary else max(1, len(vary.get("periods", ())))) > 19
    by_name = {(each.suite.partition("?")[2], each.id): each for each in other}
    for each in one:
        same = by_name[each.suite.partition("?")[2], each.id]
        assert (each.digest, each.stratum, each.line) == (same.digest, same.stratum, same.line)


def test_a_text_file_of_more_lines_is_refused_with_the_command_that_makes_the_other(tmp_path: Path) -> None:
    assert len(next(expand(text(tmp_path / "s.jsonl", lines(45))))[2]) == 45
    use = text(tmp_path / "s.jsonl", lines(46))
    told = rf"more than 45 lines.*`evalkit suites generate {use.name} --out {tmp_path}/s\.parquet`"
    with pytest.raises(UsageError, match=told):
        list(expand(use))
    with pytest.raises(UsageError, match=told):  # whatever is chosen
        list(expand(SuiteUse(name=use.name, instances=("identical-3",))))


def test_chosen_ids_are_chosen(tmp_path: Path) -> None:
    kept = keep(tmp_path / "s.parquet", rows(lines(40)))
    wanted = tuple(line["id"] for line in lines(40)[5:35])
    assert sorted(one.id for one in evalkit.suite(kept.name, instances=wanted)) == sorted(wanted)
    with pytest.raises(UsageError, match=r"has no instance 'uniform-00'\. Did you mean 'uniform-"):
        large(SuiteUse(name=kept.name, instances=("uniform-00",)))


def test_what_a_file_holds_is_known_by_its_bytes_and_what_is_varied(tmp_path: Path) -> None:
    one, same = (keep(tmp_path / f"{name}.parquet", rows(lines(9))) for name in "ab")
    assert list(suites.digests(one).values()) == list(suites.digests(same).values())
    other = keep(tmp_path / "c.parquet", rows(lines(8)))
    varied = SuiteUse(name=one.name, vary={"periods": (3, 4)})
    assert len({*suites.digests(one).values(), *suites.digests(other).values(), *suites.digests(varied).values()}) == 4


FOUND = lines(40)


@pytest.mark.parametrize(
    ("number", "change", "says"),
    [
        (9, {"id": FOUND[8]["id"]}, f"two instances share the id '{FOUND[8]['id']}'"),
        (0, {"digest": "0" * 32}, "the row is not what its line comes to.*evalkit suites generate"),
        (9, {"stratum": "odd"}, "the row is not what its line comes to"),
        (16, {"line": "{"}, "not valid JSON"),
        (16, {"line": "{}"}, "expected a JSON object with this `id`"),
        (16, {"line": orjson.dumps({**FOUND[16], "n": -1}).decode()}, f"{FOUND[16]['id']}: n: "),
    ],
)
def test_a_row_that_is_none_is_named(tmp_path: Path, number: int, change: dict[str, str], says: str) -> None:
    found = rows(FOUND)
    found[number] = found[number]._replace(**change)
    with pytest.raises(UsageError, match=says):
        large(keep(tmp_path / "s.parquet", found))


def test_a_file_of_another_kind_is_told(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "s.parquet"
    path.write_text("no Parquet")
    with pytest.raises(UsageError, match="it is no Parquet file"):
        large(SuiteUse(name=str(path)))
    pq.write_table(pa.table({"id": ["a"], "line": ["{}"], "digest": ["b"], "stratum": [1]}), path)
    with pytest.raises(UsageError, match="no column 'stratum' of text"):
        large(SuiteUse(name=str(path)))
    gap = pa.array([None], "string")
    pq.write_table(pa.table({"id": ["a"], "line": ["{}"], "digest": ["b"], "stratum": gap}), path)
    with pytest.raises(UsageError, match="a value is missing"):
        large(SuiteUse(name=str(path)))
    path.write_bytes(encode_rows([]).data.to_pybytes())
    with pytest.raises(UsageError, match="empty"):
        large(SuiteUse(name=str(path)))


def test_lines_of_two_environments_make_no_file() -> None:
    with pytest.raises(UsageError, match="must be of one environment"):
        rows([*lines(2), *lines(2, "pricing")])
    with pytest.raises(UsageError, match="two instances share the id"):
        rows([*lines(2), *lines(1)])
