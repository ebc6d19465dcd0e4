from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Reply, ToolCall
from evalkit.envs.environment import Kit, Pack
from evalkit.envs.errand import errand
from evalkit.envs.errand.errand import ERRAND, count_in, verdict_in, written
from evalkit.envs.replay import advance, begin
from evalkit.errors import UsageError
from evalkit.replies import encode_reply

TEXTS = {key: f"{key}: " + " ".join(f"{{{name}}}" for name in sorted(fields)) for key, fields in errand.TEXTS.items()}
KIT = Kit(pack=Pack(name="own", digest="", texts=TEXTS))
VALUES = {
    "coverage": {"text": "A -> B"},
    "enumeration": {"text": "1. A -> B"},
    "conflict": {"about": "a hotel", "wishes": "- kind: city"},
    "requirement": {
        "about": "a hotel",
        "wishes": "- kind: city",
        "options": "- kind: city, sea",
        "query": "<Query00001>",
    },
}


def line(kind: str) -> dict[str, Any]:
    return {"id": "one", "environment": "errand", "kind": kind, "values": VALUES[kind]}


def answered(kind: str, reply: Reply) -> tuple[dict[str, Any], Any]:
    """The facts of an errand with this reply, and its score."""
    instance = ERRAND.load(line(kind))
    position = begin(ERRAND, instance, KIT)
    turn = advance(ERRAND, position, reply, encode_reply(reply))
    assert turn.ending == position.ending == "complete"
    assert turn.messages == ()
    return dict(turn.facts), ERRAND.score(instance, [turn.facts])


@pytest.mark.parametrize("kind", errand.FIELDS)
def test_an_errand_is_one_request_without_tools(kind: str) -> None:
    instance = ERRAND.load(line(kind))
    assert ERRAND.describe(instance) == line(kind)
    assert (ERRAND.stratum(instance), ERRAND.offers(instance)) == (kind, 0)
    position = begin(ERRAND, instance, KIT)
    assert (position.ending, position.tools, position.period) == ("", (), 0)
    system, user = position.messages
    assert (system.role, user.role) == ("system", "user")
    shown = [VALUES[kind][name] for name in sorted(errand.FIELDS[kind])]
    assert user.text == f"{kind}.user: {' '.join(shown)}"
    assert "Query" not in user.text


@pytest.mark.parametrize(
    ("kind", "reply", "facts", "metrics"),
    [
        ("coverage", "**15**", {"outcome": "ok", "value": 15}, {"paths": 15}),
        ("enumeration", "15", {"outcome": "ok", "value": 15}, {"paths": 15}),
        ("coverage", "many", {"outcome": "unparseable"}, None),
        ("coverage", " \n", {"outcome": "empty"}, None),
        ("coverage", "<think>12 or 13</think>13", {"outcome": "ok", "value": 13}, {"paths": 13}),
        ("conflict", "**No conflict**", {"outcome": "ok", "value": False}, {"conflict": 0}),
        ("conflict", "conflict.", {"outcome": "ok", "value": True}, {"conflict": 1}),
        ("conflict", "perhaps", {"outcome": "unparseable"}, None),
        ("requirement", " A quiet town. ", {"outcome": "ok", "characters": 13}, {"characters": 13, "truncated": 0}),
        ("requirement", "<think>hm</think>", {"outcome": "empty"}, None),
    ],
)
def test_the_reply_is_read_and_scored(kind: str, reply: str, facts: dict[str, Any], metrics: Any) -> None:
    found, score = answered(kind, Reply(text=reply))
    assert found == {"calls": [], "ended": "complete", **facts}
    assert score.solved is (metrics is not None)
    assert (score.value, score.metrics) == (1.0 if metrics else 0.0, metrics or {})


def test_a_text_that_the_token_limit_cut_off_is_marked() -> None:
    facts, score = answered("requirement", Reply(text="A quiet", finish="length"))
    assert facts["truncated"] is True
    assert score.metrics == {"characters": 7, "truncated": 1}


def test_calls_that_nothing_offered_do_nothing() -> None:
    facts, _ = answered("coverage", Reply(text="", calls=(ToolCall(id="a", name="b", arguments="{}"),)))
    assert facts["outcome"] == "empty"
    assert ERRAND.score(ERRAND.load(line("coverage")), []).value == 0.0


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("**conflict**", True),
        ("It may look like a conflict, yet: **no conflict**", False),
        ("**Verdict: No  Conflict.**", False),
        ("Well.\n\nNo conflict.\n", False),
        ("conflict", True),
        ("I find no conflict here.", False),
        ("These wishes conflict.", True),
        ("I see no real conflict.", None),
        ("They don't conflict.", None),
        ("It is not clear. There is a conflict.", True),
        ("conflicting wishes", None),
        ("", None),
    ],
)
def test_verdicts(text: str, verdict: bool | None) -> None:
    assert verdict_in(text) is verdict


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("**15**", 15),
        ("15", 15),
        ("15.", 15),
        ("I count 15 paths.", 15),
        ("**Path 1**: A -> B\n**Path 2**: C\n\n**2**", 2),
        ("1. A -> B\n2. C\n\nTotal: 2", 2),
        ("1. A\n2. B\n2\n", 2),
        ("**1,024**", 1024),
        ("first **3**, corrected **4**", 4),
        ("12.5", None),
        ("between 3 and 4", None),
        ("1234567890123", None),
        ("none", None),
    ],
)
def test_counts(text: str, count: int | None) -> None:
    assert count_in(text) == count


@given(st.text(st.sampled_from("*no cflit15,.\n</think>"), max_size=80))
def test_reading_is_total(text: str) -> None:
    bare = written(text)
    assert bare == bare.strip()
    assert verdict_in(bare) in (True, False, None)
    count = count_in(bare)
    assert count is None or count >= 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "conflcit"}, "Did you mean 'conflict'?"),
        ({"kind": None}, "kind"),
        ({"values": {}}, "values.text"),
        ({"values": {"text": 3}}, "values.text"),
        ({"values": {"text": "a", "txet": "b"}}, "values.txet"),
        ({"values": "text"}, "values"),
        ({"environment": "scheduling"}, "environment"),
        ({"id": 3}, "id"),
        ({"sort": "x"}, "sort"),
    ],
)
def test_a_line_that_is_no_errand_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        ERRAND.load(line("coverage") | changes)


def test_errands_are_not_generated_and_need_all_texts() -> None:
    with pytest.raises(UsageError, match="evalkit tools judge"):
        ERRAND.generate({}, 3, 0)
    with pytest.raises(UsageError, match=r"coverage\.user"):
        ERRAND.start(
            ERRAND.load(line("coverage")), Kit(pack=Pack(name="own", digest="", texts={"coverage.system": ""}))
        )
