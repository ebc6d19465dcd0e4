from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from evalkit.cli.make.describe import describe_tables, shown_values
from evalkit.envs.table import ENVIRONMENTS
from evalkit.report.render.latex import latex
from evalkit.report.tables import Table
from evalkit.spec.packs import read_pack
from evalkit.spec.suites import find_suite, read_lines

SUITES = {"costbench": 36, "procurement": 12, "scheduling": 12, "pricing": 12}


def tables(name: str, lines: Sequence[Mapping[str, Any]] | None = None) -> dict[str, Table]:
    held = list(lines) if lines else list(read_lines(find_suite(f"{name}/basic")))
    return {one.name: one for one in describe_tables(name, ENVIRONMENTS[name], held, read_pack("standard", name))}


@pytest.mark.parametrize(("name", "count"), SUITES.items())
def test_a_suites_numbers_are_those_of_its_lines(name: str, count: int) -> None:
    found = tables(name)
    assert list(found) == ["suite", "suite_tool_counts", "suite_optima", "suite_parameters", "suite_tools"]
    rows = found["suite"].rows
    assert rows[-1]["instances"] == count
    assert sum(row["instances"] for row in rows if row["stratum"] != "(all)") == count
    for quantity in ENVIRONMENTS[name].presentation.described.quantities:
        values = [quantity.of(line) for line in read_lines(find_suite(f"{name}/basic"))]
        row = [row for row in found["suite_optima"].rows if row["quantity"].startswith(quantity.title)][-1]
        assert (row["least"], row["most"], row["instances"]) == (min(values), max(values), count)
    assert {row["parameter"] for row in found["suite_parameters"].rows} == set(ENVIRONMENTS[name].parameters)
    for table in found.values():
        assert latex(table).isascii()


def test_costbenchs_tools_are_as_many_as_the_paper_has() -> None:
    row = tables("costbench")["suite_tool_counts"].rows[0]
    assert [row[key] for key in ("sequence", "atomic", "composite", "tools")] == [5, 5, 9, 14]
    rows = tables("costbench")["suite"].rows
    assert (rows[0]["combinations"], rows[-1]["combinations"], rows[-1]["queries"]) == (256, 1536, 36)


def test_tools_are_shown_as_an_agent_reads_of_them() -> None:
    rows = tables("scheduling")["suite_tools"].rows
    assert [row["tool"] for row in rows][-1] == "submit_assignment"
    assert rows[-1]["arguments"] == "assignment"
    assert all(row["description"] for row in rows)


def test_an_optimum_that_a_line_lacks_is_found() -> None:
    whole = list(read_lines(find_suite("procurement/basic")))[:2]
    bare = [{key: value for key, value in line.items() if key not in ("digest", "optimum")} for line in whole]
    assert tables("procurement", bare)["suite_optima"].rows == tables("procurement", whole)["suite_optima"].rows


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.1, 0.1], "0.1"),
        ([None, 3, 1], "1, 3, by rule"),
        ([True], "true"),
        (range(12), "0 to 11 (12 values)"),
        (["b", "a"], "a, b"),
    ],
)
def test_values_in_words(values: Any, text: str) -> None:
    assert shown_values(values) == text
