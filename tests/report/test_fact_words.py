"""The facts of a turn in words."""

from evalkit.results.trajectory import MOST, fact_lines


def test_each_fact_is_a_line_in_words() -> None:
    facts = {
        "action": {"blocking": 11, "repeat": False, "shown": [["W1", "T5"], ["W2", "T0"]]},
        "calls": [
            {"outcome": "ok", "tool": "write_notes"},
            {"outcome": "ok", "tool": "read_notes"},
            {"outcome": "bad_arguments", "tool": "submit_assignment"},
            {"cost": 7194, "outcome": "ok", "tool": "buy"},
        ],
        "events": [{"kind": "cost_change"}],
        "goal": True,
        "period": 3,
        "turn": 2,
        "period_end": "accepted",
        "answer": "",
    }
    assert fact_lines(facts) == [
        "action: blocking 11, repeat no, shown W1 and T5, W2 and T0",
        "write_notes, read_notes: done",
        "submit_assignment: bad arguments",
        "buy (cost 7,194): done",
        "events: kind cost change",
        "goal: yes",
        "period ends: accepted",
    ]


def test_what_a_model_wrote_is_bounded_and_visible() -> None:
    (call, answer) = fact_lines({"calls": [{"tool": "x" * 9_999, "outcome": "no_tool"}], "answer": "a\u202eb"})
    assert len(call) < MOST + 60
    assert "\u202e" not in answer
    assert fact_lines({"period": 0, "turn": 1, "calls": []}) == []
    assert fact_lines({"calls": "odd", "totals": list(range(40))}) == [
        "calls: odd",
        "totals: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 28 more",
    ]
