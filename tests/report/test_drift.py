from typing import Any

import pyarrow as pa
import pytest

from evalkit.report.behaviour import drift_notes, drift_tables, versions
from evalkit.store.files.schema import steps_table
from tests.support.guessing_game import guess
from tests.support.guessing_runs import a_manifest, a_suite, an_agent, report_of, rows, search, source_of

MANIFEST = a_manifest([an_agent("a"), an_agent("b")], [a_suite("s", [4, 5, 6])], replicates=2)


def log(agent: str, instance: int, replicate: int, **fields: Any) -> list[Any]:
    replies = search(4 + instance) if fields["served_model"] == "m-1" else [guess(1)] * 40
    return rows(MANIFEST, agent, "s", f"i{instance}", replicate, replies, **fields)


DAY = 86400.0
OLD = {"served_model": "m-1", "started_at": 10 * DAY}
NEW = {"served_model": "m-2", "started_at": 11 * DAY}


@pytest.fixture(scope="module")
def steps() -> pa.Table:
    made = [row for i in range(3) for row in log("a", i, 0, **OLD)]
    made += [row for i in range(2) for row in log("a", i, 1, **NEW)]
    mixed = log("a", 2, 1, **OLD)
    made += [*mixed[:1], *(type(row)(**{**_fields(row), **NEW}) for row in mixed[1:])]
    made += [row for i in range(3) for row in log("b", i, 0, **OLD)]
    return steps_table(made)


def _fields(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in type(row).__dataclass_fields__}


def test_who_answered_is_told_by_agent_with_times(steps: pa.Table) -> None:
    found = versions(source_of(MANIFEST, steps))
    assert [(one["agent"], one["served_model"], one["first"]) for one in found] == [
        ("a", "m-1", "1970-01-11 00:00:00"),
        ("a", "m-2", "1970-01-12 00:00:00"),
        ("b", "m-1", "1970-01-11 00:00:00"),
    ]
    assert drift_notes(found) == ("drift: a was served by 2 versions; the first change was seen 1970-01-12 00:00:00",)


def test_scores_are_described_where_one_version_answered_alone(steps: pa.Table) -> None:
    (table,) = drift_tables(source_of(MANIFEST, steps))
    old, new = table.rows
    assert (old["agent"], old["served_model"], old["first"]) == ("a", "m-1", "1970-01-11 00:00:00")
    # The episode that both answered in counts for neither.
    assert (old["episodes"], new["episodes"]) == (4, 3)
    assert old["replies"] + new["replies"] == sum(agent == "a" for agent in steps.column("agent").to_pylist())
    assert (old["alone"], new["alone"], old["shared"]) == (3, 2, 2)
    assert old["score"] == 100.0 > new["score"]
    assert new["score"] == new["shared_score"]
    assert any("not tested" in note for note in table.notes)
    assert any("all ended episodes" in note for note in table.notes)


def test_a_report_has_the_table_where_somebody_drifted(steps: pa.Table) -> None:
    found = report_of(MANIFEST, steps)
    assert len(found.table("drift").rows) == 2
    assert found.table("drift").packs == ("standard",)
    flags = [note for note in found.table("scores").notes if note.startswith("drift: ")]
    assert flags == [note for note in found.table("drift").notes if note.startswith("drift: ")] != []


def test_one_version_is_no_drift(steps: pa.Table) -> None:
    import pyarrow.compute as pc

    alone = steps.filter(pc.equal(steps["agent"], "b"))
    assert drift_tables(source_of(MANIFEST, alone)) == ()
    assert versions(source_of(MANIFEST, steps_table([]))) == []
    silent = steps_table([row for i in range(3) for row in log("a", i, 0, served_model="")])
    assert versions(source_of(MANIFEST, silent)) == []


def test_a_fingerprint_alone_tells_versions_apart(steps: pa.Table) -> None:
    marked = [row for i in range(2) for row in log("a", i, 0, **OLD, fingerprint=f"fp{i}")]
    assert [one["fingerprint"] for one in versions(source_of(MANIFEST, steps_table(marked)))] == ["fp0", "fp1"]
