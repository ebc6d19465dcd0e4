from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.replay import begin
from evalkit.frozen.manifest import Manifest
from evalkit.results.verify import COLUMNS, Replayer, ReplayFlaw
from evalkit.store.files.record import StepRecord
from evalkit.store.files.schema import steps_table
from tests.support.guessing_game import calls, guess, hint, say
from tests.support.guessing_runs import ENVIRONMENTS, a_manifest, a_suite, an_agent, rows

MANIFEST = a_manifest([an_agent("a"), an_agent("b", pack="d1")], [a_suite("s", [4, 5]), a_suite("t", [4])], 2)
REPLIES = [say("hm"), calls(("fly", "{}"), ("guess", "{")), hint(), guess(7), hint(), guess(2)]
EPISODE = rows(MANIFEST, "a", "s", "i0", 1, REPLIES)


def flaws(log: Sequence[StepRecord], manifest: Manifest = MANIFEST) -> list[ReplayFlaw]:
    return list(Replayer(manifest, ENVIRONMENTS).check(steps_table(log).select(COLUMNS).to_pylist()))


def changed(step: int, **fields: Any) -> list[StepRecord]:
    return [replace(row, **fields) if row.step == step else row for row in EPISODE]


def test_an_untouched_log_has_no_flaws() -> None:
    log = [
        *EPISODE,
        *rows(MANIFEST, "b", "s", "i1", 0, [guess(5)]),
        *rows(MANIFEST, "a", "t", "i0", 0, [hint()]),
        *rows(MANIFEST, "b", "t", "i0", 0, [guess(1)], refused="content_filter"),
    ]
    assert len(EPISODE) == 6
    assert flaws(log) == []


def test_episodes_may_be_mixed() -> None:
    other = rows(MANIFEST, "b", "s", "i1", 0, REPLIES)
    mixed = [row for pair in zip(EPISODE, other, strict=False) for row in pair]
    assert flaws(mixed) == []


@given(st.data())
def test_any_changed_byte_of_a_row_is_found_and_named(data: st.DataObject) -> None:
    step = data.draw(st.integers(0, len(EPISODE) - 1))
    field = data.draw(st.sampled_from(["reply", "facts", "observation_digest", "request_digest", "step_digest"]))
    value: bytes = getattr(EPISODE[step], field)
    at = data.draw(st.integers(0, len(value) - 1))
    # Texts stay texts: an invalid byte would be caught by Parquet already.
    byte = data.draw(st.integers(32, 126).filter(lambda code: code != value[at]))
    found = flaws(changed(step, **{field: value[:at] + bytes([byte]) + value[at + 1 :]}))
    assert [(flaw.episode, flaw.step, flaw.place) for flaw in found] == [(EPISODE[0].episode, step, "a:s:i0:1")]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"reply": EPISODE[0].reply}, "was changed after it was written: replay gives another facts"),
        ({"facts": b"{}"}, "was changed after it was written: replay gives another facts"),
        ({"observation_digest": bytes(16)}, "was changed after it was written: replay gives another observation"),
        ({"request_digest": bytes(16)}, "was changed after it was written: replay gives another request"),
        ({"step_digest": bytes(16)}, "its reply or its digest is not the one that was logged"),
        ({"ending": "complete"}, "replay gives another ending; the row is as it was written"),
        ({"finish": "length"}, "replay gives another finish reason"),
        ({"period": 0}, "replay gives another place (period 2, turn 0)"),
        ({"turn": 5}, "replay gives another place (period 2, turn 0)"),
        ({"reply": b"{"}, "a logged reply is not JSON"),
        ({"reply": None}, "has neither a reply nor an ending"),
    ],
)
def test_a_flaw_says_what_differs(fields: dict[str, Any], words: str) -> None:
    found = flaws(changed(4, **fields))
    assert [flaw.step for flaw in found] == [4]
    assert words in found[0].problem


@pytest.mark.parametrize(
    ("order", "step", "words"),
    [
        ([0, 1, 3, 4, 5], 2, "step 2 is missing: the next row is of step 3"),
        ([0, 4, 5], 1, "steps 1 to 3 are missing: the next row is of step 4"),
        ([1, 2, 3, 4, 5], 0, "step 0 is missing"),
        ([0, 1, 1, 2, 3], 1, "comes again after step 1"),
        ([0, 2, 1, 3, 4, 5], 1, "step 1 is missing"),
        ([0, 1, 2, 3, 4, 5, 5], 5, "follows the end of its episode"),
    ],
)
def test_rows_that_are_missing_or_out_of_order_are_named(order: list[int], step: int, words: str) -> None:
    found = flaws([EPISODE[i] for i in order])
    assert [flaw.step for flaw in found] == [step]
    assert words in found[0].problem


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"agent": "b"}, "another id"),
        ({"instance": "i1"}, "another id"),
        ({"replicate": 0}, "another id"),
        ({"replicate": 7}, "does not plan"),
        ({"agent": "c"}, "does not plan"),
        ({"suite": "u"}, "does not plan"),
        ({"environment": "pricing"}, "does not plan"),
    ],
)
def test_an_episode_must_be_one_that_the_manifest_plans(fields: dict[str, Any], words: str) -> None:
    found = flaws([replace(row, **fields) for row in EPISODE])
    assert [flaw.step for flaw in found] == [0]
    assert words in found[0].problem


def test_a_swap_of_rows_between_episodes_is_found_in_both() -> None:
    other = rows(MANIFEST, "b", "s", "i1", 0, REPLIES)
    log = [replace(row, episode=twin.episode) for row, twin in zip(EPISODE, other, strict=True)]
    log += [replace(twin, episode=row.episode) for row, twin in zip(EPISODE, other, strict=True)]
    assert {(flaw.episode, flaw.step) for flaw in flaws(log)} == {(EPISODE[0].episode, 0), (other[0].episode, 0)}


def test_other_prompts_or_instances_in_the_manifest_are_found() -> None:
    import msgspec

    pack = msgspec.structs.replace(MANIFEST.packs["d0"], texts={"system": "Guess a number, please."})
    found = flaws(EPISODE, msgspec.structs.replace(MANIFEST, packs={**MANIFEST.packs, "d0": pack}))
    assert [flaw.step for flaw in found] == [0]
    assert "another request" in found[0].problem
    suite = MANIFEST.suites["s"]
    easier = msgspec.structs.replace(suite.instances[0], line={"value": 7, "family": "odd"})
    suite = msgspec.structs.replace(suite, instances=(easier, *suite.instances[1:]))
    found = flaws(EPISODE, msgspec.structs.replace(MANIFEST, suites={**MANIFEST.suites, "s": suite}))
    assert [(flaw.step, "ending" in flaw.problem) for flaw in found] == [(3, True)]


def again(replies: Sequence[Any], take: int, **kinds: Any) -> list[StepRecord]:
    return rows(MANIFEST, "a", "s", "i0", 0, replies, take=take, **kinds)


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        # An episode that its environment ended is played again from its start.
        (again([guess(1), guess(2), guess(3)], 0) + again([guess(4)], 1), ""),
        (again([hint()], 0) + again([guess(4)], 1), ""),
        # One that the provider refused goes on from the refused request.
        (again([hint()], 0, refused="content_filter") + again([hint(), guess(4)], 1)[1:], ""),
        (again([hint()], 0, refused="content_filter") + again([hint(), guess(4)], 0)[1:], "follows the end"),
        (again([hint()], 1) + again([hint(), guess(4)], 0)[1:], "of take 0, but take 1"),
        (again([guess(4)], 0) + again([guess(4)], 0), "follows the end"),
    ],
)
def test_a_later_take_goes_on_or_starts_afresh(log: list[StepRecord], problem: str) -> None:
    found = flaws(log)
    assert len(found) == bool(problem)
    assert problem in "".join(flaw.problem for flaw in found)


def test_of_each_episode_the_first_flaw_is_named_and_a_later_take_is_looked_at_again() -> None:
    broken = [replace(row, facts=b"{}") for row in again([guess(1), guess(2), guess(3)], 0)]
    assert [flaw.step for flaw in flaws(broken)] == [0]
    twice = broken + [replace(row, facts=b"[]") for row in again([guess(4)], 1)]
    assert [flaw.step for flaw in flaws(twice)] == [0, 0]


def test_a_changed_ending_without_a_reply_is_found() -> None:
    log = again([guess(1)], 0, refused="content_filter")
    assert flaws(log) == []
    assert [flaw.step for flaw in flaws([log[0], replace(log[1], facts=b'{"a":1}')])] == [1]
    assert [flaw.step for flaw in flaws([log[0], replace(log[1], request_digest=bytes(16))])] == [1]


def test_of_rows_that_are_as_they_were_written_nothing_is_put_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Manifest] = []
    monkeypatch.setattr(Manifest, "file", property(lambda manifest: looked.append(manifest) or "manifest"))
    assert flaws(EPISODE) == []
    assert looked == []  # it lists a folder, which took a third of the time
    assert (MANIFEST.file, len(looked)) == ("manifest", 1)


def test_replay_keeps_only_episodes_that_go_on() -> None:
    replayer = Replayer(MANIFEST, ENVIRONMENTS)
    log = [*EPISODE, *rows(MANIFEST, "b", "s", "i1", 0, [hint()])]
    assert list(replayer.check(steps_table(log).select(COLUMNS).to_pylist())) == []
    held = {key: track.position is not None for key, track in replayer._tracks.items()}
    assert held == {EPISODE[0].episode: False, log[-1].episode: True}


def test_rows_may_come_in_pieces() -> None:
    replayer = Replayer(MANIFEST, ENVIRONMENTS)
    read: Callable[[list[StepRecord]], list[Any]] = lambda log: steps_table(log).select(COLUMNS).to_pylist()  # noqa: E731
    assert list(replayer.check(read(EPISODE[:2]))) == []
    assert list(replayer.check(read(EPISODE[2:5]))) == []
    (found,) = replayer.check(read(EPISODE[4:]))
    assert (found.step, found.problem) == (4, "comes again after step 4")


def test_episodes_that_begin_alike_begin_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    monkeypatch.setattr("evalkit.results.verify.begin", lambda *what: begun.append(what) or begin(*what))
    log = [
        *rows(MANIFEST, "a", "s", "i0", 0, REPLIES),
        *rows(MANIFEST, "b", "s", "i0", 0, REPLIES),
        *rows(MANIFEST, "a", "s", "i0", 1, REPLIES[1:]),
        *rows(MANIFEST, "a", "s", "i1", 0, REPLIES),
    ]
    assert flaws(log) == []
    assert len(begun) == 3  # two instances, and one of them with two packs
