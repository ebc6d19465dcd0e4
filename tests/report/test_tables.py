import csv
import io
from dataclasses import replace

import pytest

from evalkit.report.tables import Column, Kind, Table, as_csv, markdown, shown

TABLE = Table(
    name="t",
    title="Title with | and *stars*",
    columns=(
        Column(key="agent", title="Agent", group=True),
        Column(key="score", title="Score", kind="score"),
        Column(key="span", title="95 %", kind="interval"),
        Column(key="kinds", title="By kind", kind="counts"),
        Column(key="cost_pico_usd", title="Cost", kind="usd"),
    ),
    rows=(
        {
            "agent": "a|b",
            "score": 97.25,
            "span": (90.0, 99.96),
            "kinds": {"x": 1200, "y": 2},
            "cost_pico_usd": 5 * 10**12,
        },
        {"agent": "[red]c\x1b[0m", "score": None, "span": None, "kinds": {}, "cost_pico_usd": 0},
    ),
    packs=("standard",),
    notes=("one thing",),
)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("score", 97.25, "97.2"),
        ("score", 100.0, "100.0"),
        ("score", 99.99, "99.9"),
        ("score", -0.01, "0.0"),
        ("score", None, "–"),
        ("interval", (12.3, 99.96), "12.3 – 99.9"),
        ("count", 12345, "12,345"),
        ("tokens", 9999, "9,999"),
        ("tokens", 84_040, "84.0 k"),
        ("tokens", 5_998_300, "6.0 M"),
        ("tokens", 12_345_678, "12.3 M"),
        ("number", 1.5, "1.50"),
        ("usd", 12_346_000_000_000, "$12.35"),
        ("usd", 0, "$0"),
        ("seconds", 0.0, "0"),
        ("seconds", 0.0004, "0.4 ms"),
        ("seconds", 0.8, "800 ms"),
        ("seconds", 12.34, "12.3 s"),
        ("seconds", 600, "10.0 min"),
        ("counts", {"stable": 1200, "complete": 3}, "stable 1,200, complete 3"),
        ("counts", {}, "–"),
        ("text", "a\x1b[2J", "a\\x1b[2J"),
        ("text", 3, "3"),
    ],
)
def test_values_are_rounded_for_people(kind: Kind, value: object, text: str) -> None:
    assert shown(Column(key="x", title="X", kind=kind), value) == text


def test_markdown_is_a_table_with_notes() -> None:
    lines = markdown(TABLE).splitlines()
    assert lines[0] == "### Title with \\| and \\*stars\\*"
    assert lines[2:4] == ["| Agent | Score | 95 % | By kind | Cost |", "|:---|---:|---:|:---|---:|"]
    assert lines[4] == "| a\\|b | 97.2 | 90.0 – 99.9 | x 1,200, y 2 | $5.00 |"
    assert lines[5] == "| \\[red\\]c\\\\x1b\\[0m | – | – | – | $0 |"
    assert lines[7:] == ["- prompts: standard", "- one thing"]


def test_csv_keeps_every_digit() -> None:
    first, second = csv.DictReader(io.StringIO(as_csv(TABLE)))
    assert first == {
        "agent": "a|b",
        "score": "97.25",
        "span_low": "90.0",
        "span_high": "99.96",
        "kinds:x": "1200",
        "kinds:y": "2",
        "cost_pico_usd": "5000000000000",
    }
    assert (second["agent"], second["score"], second["span_low"], second["kinds:x"]) == ("[red]c\\x1b[0m", "", "", "0")


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\n", "\uff1d"], ids=lambda first: f"u{ord(first):04x}")
def test_csv_has_no_formulas(first: str) -> None:
    row = {"agent": f"{first}cmd|' /C calc'!A0", "score": -3.5, "span": (-4.0, -3.0), "kinds": {}, "cost_pico_usd": 0}
    (found,) = csv.DictReader(io.StringIO(as_csv(replace(TABLE, rows=(row,)))))
    assert found["agent"] == f"'{row['agent']}"
    assert (found["score"], found["span_low"]) == ("-3.5", "-4.0")


def test_json_holds_values_by_key() -> None:
    value = TABLE.to_json()
    assert value["rows"][0]["span"] == [90.0, 99.96]
    assert value["columns"][1] == {"key": "score", "title": "Score", "kind": "score", "unit": ""}
    assert value["prompts"] == ["standard"]


def test_a_share_of_1_has_no_percent_sign_beside_it() -> None:
    column = Column(key="rate", title="Rate", kind="percent", unit="% of actions", as_share=True)
    assert (column.told, shown(column, 7.0)) == ("share of actions", "0.07")
    assert Column(key="rate", title="Rate", kind="percent", unit="% of actions").told == "% of actions"
