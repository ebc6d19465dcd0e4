import io
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from evalkit.dialogue import Message, Reply, ToolCall
from evalkit.errors import CorruptLogError, RunError
from evalkit.report.render.terminal import print_trajectory
from evalkit.results.moves import Move
from evalkit.results.show import EpisodeKey, find_episode, replayed, trajectory_of
from evalkit.results.trajectory import Trajectory, trajectory_parts
from evalkit.store.files.record import StepRecord
from evalkit.store.files.schema import steps_table
from evalkit.store.reading.reader import ReplayRow
from tests.support.guessing_game import calls, guess, hint, say
from tests.support.guessing_runs import ENVIRONMENTS, a_manifest, a_suite, an_agent, rows

MANIFEST = a_manifest([an_agent("knuth"), an_agent("gpt", pack="d1")], [a_suite("s", [4, 5])], 2)
KEYS = [
    EpisodeKey(id="aa11", agent="knuth", suite="s", instance="i0", replicate=0),
    EpisodeKey(id="aa22", agent="knuth", suite="s", instance="i0", replicate=1),
    EpisodeKey(id="b", agent="gpt", suite="s?k=2", instance="i0", replicate=0),
    EpisodeKey(id="bc", agent="gpt", suite="s?k=2", instance="i1", replicate=0),
]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("aa11", 0), ("aa2", 1), ("knuth:s:i0:1", 1), ("b", 2), ("bc", 3), ("gpt:s?k=2:i1:0", 3)],
)
def test_an_episode_is_found_by_id_or_place(wanted: str, found: int) -> None:
    assert find_episode(KEYS, wanted) == KEYS[found]


def test_an_ambiguous_beginning_lists_what_it_may_mean() -> None:
    with pytest.raises(RunError, match="beginning of 2 episodes") as caught:
        find_episode(KEYS, "aa")
    assert str(caught.value).splitlines()[1:] == ["  aa11  knuth:s:i0:0", "  aa22  knuth:s:i0:1"]
    many = [replace(KEYS[0], id=f"a{i}", replicate=i) for i in range(30)]
    with pytest.raises(RunError, match="and 22 more"):
        find_episode(many, "a")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("zz", "no episode 'zz'. Write an id"),
        ("", "no episode ''. Write an id"),
        ("knut:s:i0:1", "Did you mean 'knuth:s:i0:1'?"),
        ("gpt:s?k=2:i1", "Did you mean 'gpt:s?k=2:i1:0'?"),
        ("knuth:s:i0", "Did you mean 'knuth:s:i0:0'?"),
        ("nobody:s?k=2:i1:0", "Did you mean 'gpt:s?k=2:i1:0'?"),
        ("knutt:s:i0", "Did you mean 'knuth:s:i0:0'?"),
        ("knuth:s:i7:1", "Did you mean 'knuth:s:i0:1'?"),
    ],
)
def test_an_unknown_episode_is_told_with_a_way_out(wanted: str, words: str) -> None:
    with pytest.raises(RunError) as caught:
        find_episode(KEYS, wanted)
    assert words in str(caught.value)


def test_an_empty_run_has_nothing_to_show() -> None:
    with pytest.raises(RunError, match="no steps yet"):
        find_episode([], "a")


def trajectory(log: Sequence[StepRecord], period: int | None = None, *, full: bool = False) -> Trajectory:
    names = ReplayRow.__dataclass_fields__
    replay = [ReplayRow(**{name: getattr(row, name) for name in names}) for row in log]
    return trajectory_of(replayed(MANIFEST, steps_table(log), replay, ENVIRONMENTS), period=period, full=full)


def texts(found: Trajectory, kind: str) -> list[tuple[str, str]]:
    return [(part.title, part.text) for part in found.parts if part.kind == kind]


def test_a_trajectory_tells_what_was_read_said_and_called() -> None:
    found = trajectory(rows(MANIFEST, "gpt", "s", "i1", 1, [hint(), guess(3), say("let me think"), guess(5)]))
    assert found.header["agent"] == "gpt (prompts: terse)"
    assert found.header["instance"] == "s i1, replicate 1"
    assert (found.header["score"], found.header["ending"]) == ("100.0 (solved)", "stable")
    assert (found.header["length"], found.header["cost"]) == (
        "4 steps in 2 periods",
        "$0.0029 for 4,000 tokens in, 80 out",
    )
    assert [part.title for part in found.parts if part.kind == "period"] == ["period 0", "period 1"]
    assert texts(found, "read") == [
        ("system", "Guess."),
        ("user", "Attempt 0. Your last guess: None."),
        ("tools", "hint, guess"),
        ("tool hint", "not too low"),
        ("tools", "gone: hint"),
        ("system", "(as before)"),
        ("user", "Attempt 1. Your last guess: 3."),
        ("tools", "hint, guess"),
        ("user", "Use a tool. You said: let me think"),
        ("tools", "gone: hint"),
    ]
    assert texts(found, "said") == [("agent", "let me think")]
    assert texts(found, "call") == [
        ("agent calls hint", "{}"),
        ("agent calls guess", '{\n  "value": 3\n}'),
        ("agent calls guess", '{\n  "value": 5\n}'),
    ]
    assert len(texts(found, "facts")) == 4
    assert {title for title, _ in texts(found, "facts")} == {"what happened"}
    assert texts(found, "end") == [("ended: stable", "")]
    assert texts(found, "warning") == []


def test_texts_are_cut_unless_all_is_asked_for() -> None:
    log = rows(MANIFEST, "gpt", "s", "i1", 1, [say("much " * 1000), guess(5)])
    ((_, cut),) = texts(trajectory(log), "said")
    assert len(cut) < 2_100
    assert cut.endswith("3,000 more characters")
    whole = trajectory(log, full=True)
    assert texts(whole, "said") == [("agent", "much " * 1000)]
    tools = next(text for title, text in texts(whole, "read") if title == "tools")
    assert [line.partition("(")[0] for line in tools.splitlines()] == ["hint", "guess"]
    assert "guess(value): " in tools


def test_facts_are_words_and_their_json_comes_with_all_of_a_trajectory() -> None:
    log = rows(MANIFEST, "gpt", "s", "i1", 1, [hint(), guess(5)])
    words = [text for _, text in texts(trajectory(log), "facts")]
    assert words[0].startswith("hint: done")
    assert words[1] == "guess: done\nvalue: 5"
    assert not any("{" in text for text in words)
    whole = [text for _, text in texts(trajectory(log, full=True), "facts")]
    for text, said, row in zip(whole, words, log, strict=True):
        assert text == f"{said}\n{row.facts.decode()}"


def test_one_period_is_shown_alone() -> None:
    log = rows(MANIFEST, "gpt", "s", "i1", 1, [hint(), guess(3), say("let me think"), guess(5)])
    found = trajectory(log, period=1)
    assert [part.title for part in found.parts if part.kind == "period"] == ["period 1"]
    assert texts(found, "read")[0] == ("system", "Guess.")
    assert len(texts(found, "turn")) == 2
    with pytest.raises(RunError, match="periods 0 to 1, so there is no period 2"):
        trajectory(log, period=2)


def test_an_unfinished_episode_and_a_refused_request_say_so() -> None:
    remaining = trajectory(rows(MANIFEST, "gpt", "s", "i1", 0, [hint()]))
    assert remaining.header["score"] == "none: the episode has not ended"
    assert texts(remaining, "end") == [("not ended: it remains to be played", "")]
    refused = trajectory(rows(MANIFEST, "gpt", "s", "i1", 0, [hint()], refused="content_filter"))
    assert texts(refused, "warning") == [("no reply", "The provider refused this request.")]
    assert texts(refused, "end") == [("ended: content_filter", "")]


def test_what_replay_does_not_reproduce_is_marked() -> None:
    log = rows(MANIFEST, "gpt", "s", "i1", 0, [hint(), guess(3)])
    (warning,) = texts(trajectory([replace(log[0], facts=b'{"calls":[]}'), log[1]]), "warning") or [("", "")]
    assert warning == ("", "")  # the digest is that of what was played, so nothing differs but the logged copy
    found = trajectory([replace(log[0], step_digest=bytes(16)), log[1]])
    ((title, text),) = texts(found, "warning")
    assert title == "replay differs"
    assert "At step 0" in text


def test_a_damaged_reply_is_an_error() -> None:
    log = rows(MANIFEST, "gpt", "s", "i1", 0, [hint(), guess(3)])
    with pytest.raises(CorruptLogError, match="logged reply"):
        trajectory([replace(log[0], reply=b"{}"), log[1]])


HOSTILE = "[bold red]\x1b[2J\x1b]8;;http://x\x07\u202eevil[/]"


def test_nothing_a_model_wrote_reaches_the_terminal_raw() -> None:
    log = rows(MANIFEST, "gpt", "s", "i1", 0, [say(HOSTILE), calls((HOSTILE, HOSTILE), text=HOSTILE), guess(1)])
    found = trajectory(log)
    out = io.StringIO()
    print_trajectory(found, to=Console(file=out, width=200, highlight=False))
    shown = "[bold red]\\x1b[2J\\x1b]8;;http://x\\x07\\u202eevil[/]"
    for text in (out.getvalue(), str(found)):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "\x07" not in text
        assert text.count(shown) >= 5


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"a":1}', '{\n  "a": 1\n}'),
        ('{"a": "寿司"}', '{\n  "a": "寿司"\n}'),
        ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        ('{"a": 1e400}', '{"a": 1e400}'),
        ('{"a": 1.10}', '{"a": 1.10}'),
        ("{'a': 1}", "{'a': 1}"),
        ("[" * 5000, "[" * 2000 + "... 3,000 more characters"),
        ("[" * 5000 + "]" * 5000, "[" * 2000 + "... 8,000 more characters"),
        ('{"a": ' + "1" * 6000 + "}", '{"a": ' + "1" * 1994 + "... 4,007 more characters"),
        ("", ""),
    ],
)
def test_arguments_are_shown_as_they_are(arguments: str, text: str) -> None:
    found = trajectory(rows(MANIFEST, "gpt", "s", "i1", 0, [calls(("fly", arguments))]))
    assert texts(found, "call") == [("agent calls fly", text)]


def test_an_empty_reply_is_shown_as_one() -> None:
    found = trajectory(rows(MANIFEST, "gpt", "s", "i1", 0, [say("")]))
    assert texts(found, "said") == [("agent", "(an empty reply, finish stop)")]


class Calls(tuple[ToolCall, ...]):
    """Counts how often it is gone through."""

    looks = 0

    def __iter__(self) -> Iterator[ToolCall]:
        Calls.looks += 1
        return super().__iter__()

    def __reversed__(self) -> Iterator[ToolCall]:
        Calls.looks += 1
        return iter(self[::-1])


def test_a_reply_of_many_calls_is_not_searched_for_every_answer() -> None:
    many = 2_000
    made = Calls(ToolCall(id=f"c{i % (many // 2)}", name=f"tool{i}", arguments="{}") for i in range(many))
    row = {"step": 0, "period": 0, "turn": 0, "tokens_in": 1, "tokens_out": 1, "cost": 1, "latency_s": 0.1}
    move = Move(
        row=row,
        period=0,
        turn=0,
        opening=(),
        offered=(),
        reply=Reply(calls=made),
        facts={},
        messages=tuple(Message(role="tool", text="x", call_id=call.id) for call in made[: many // 2]),
    )
    Calls.looks = 0
    titles = [part.title for part in trajectory_parts([move]) if part.kind == "read"]
    assert titles == [f"tool tool{i}" for i in range(many // 2)]
    assert Calls.looks < 10
