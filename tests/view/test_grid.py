import json
from dataclasses import replace

import pytest

from evalkit.report.tables import Column, Table
from evalkit.view.grid import RANGE_WIDTH, RowOrder, grid
from evalkit.view.render import Frame, environment, json_inside, offline_policy, render

TABLE = Table(
    name="scores",
    title="Scores",
    columns=(
        Column(key="suite", title="Suite", group=True),
        Column(key="score", title="Score", kind="score"),
        Column(key="interval", title="95 %", kind="interval"),
        Column(key="prompts", title="Prompts"),
    ),
    rows=(
        {"suite": "a", "score": 50.0, "interval": (-100.0, 100.0), "prompts": "p"},
        {"suite": "a", "score": None, "interval": None, "prompts": "p"},
        {"suite": "b", "score": 99.99, "interval": (99.0, 100.0), "prompts": "p"},
    ),
    packs=("p",),
    query="select 'it''s'",
)


def test_intervals_of_a_column_share_a_scale() -> None:
    made = grid(TABLE, "my run")
    first, none, last = (row.cells[2].range for row in made.rows)
    assert none is None
    assert first is not None
    assert last is not None
    assert (first.low, first.high, first.zero) == (4.0, RANGE_WIDTH - 4, RANGE_WIDTH / 2)
    assert first.point == pytest.approx(4 + 0.75 * (RANGE_WIDTH - 8))
    assert last.high == first.high


def test_what_is_known_to_be_0_is_drawn_and_what_few_cannot_exclude_is_a_thinner_line() -> None:
    known = replace(TABLE.columns[2], equal=2.0)
    table = replace(
        TABLE, columns=(*TABLE.columns[:2], known), rows=({"suite": "a", "score": 0.0, "interval": (0, 0)},)
    )
    assert grid(table, "my run").rows[0].cells[2].range is not None
    one = {**TABLE.rows[2], "unmet": 50.0}
    drawn = grid(replace(TABLE, rows=(one,)), "my run").rows[0].cells[2].range
    assert drawn is not None
    assert drawn.down == RANGE_WIDTH / 2 < drawn.low


def test_rows_say_how_they_sort_and_where_groups_begin() -> None:
    made = grid(TABLE, "my run")
    assert [head.title for head in made.heads] == ["Suite", "Score", "95 %"]  # one pack for all is a note
    assert [row.cells[1].sort for row in made.rows] == ["50.0", "", "99.99"]
    assert [row.cells[1].text for row in made.rows] == ["50.0", "–", "100.0"[:0] + "99.9"]
    assert [row.begins for row in made.rows] == [False, False, True]
    assert ["same" in row.cells[0].style for row in made.rows] == [False, True, False]


def test_the_command_asks_the_query() -> None:
    assert grid(TABLE, "my run").command == """evalkit sql 'my run' 'select '"'"'it'"'"''"'"'s'"'"''"""


def test_json_in_a_page_cannot_leave_its_element() -> None:
    value = {"</script><!--": "<b> & \u2028 ' \" </SCRIPT>"}
    text = str(json_inside(value))
    assert json.loads(text) == value
    assert not set("<>&\u2028") & set(text)


def test_what_a_template_prints_is_escaped_and_visible() -> None:
    template = environment().from_string("{{ text }}|{{ number }}")
    assert template.render(text="<b>\u202ea\x1b[0m", number=3) == "&lt;b&gt;\\u202ea\\x1b[0m|3"
    page = render("message.html", Frame(title="<i>"), heading="<b>", text="a\u2066b")
    assert "<i>" not in page
    assert "<b>" not in page
    assert "a\\u2066b" in page


def test_a_page_in_one_file_allows_only_its_own_scripts() -> None:
    policy = offline_policy(figures=False)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "http" not in policy
    assert "unsafe" not in policy


def test_a_head_orders_by_its_column_and_then_the_other_way_round() -> None:
    number, name = Column(key="cost", title="Cost", kind="usd"), Column(key="agent", title="Agent")
    orders = {order: RowOrder(order=order, address=lambda to: f"?order={to}") for order in ("", "cost", "-cost")}
    assert [(orders[order].head(number).href, orders[order].head(number).sort) for order in orders] == [
        ("?order=-cost", ""),
        ("?order=-cost", "ascending"),
        ("?order=cost", "descending"),
    ]
    assert [(orders[order].head(name).href, orders[order].head(name).sort) for order in ("", "cost")] == [
        ("?order=agent", ""),
        ("?order=agent", ""),
    ]
    rows = Table(name="t", title="T", columns=(number, name), rows=({"cost": 1, "agent": "a"},), packs=())
    assert [head.href for head in grid(rows, "run", ordered=orders["-cost"]).heads] == ["?order=cost", "?order=agent"]
