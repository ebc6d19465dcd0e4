"""A refusal is never a score: what the provider refuses stays remaining, and a lane that refuses everything stops."""

from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalkit.client.lanes.health import ALIKE, FIRST, RefusalCount
from evalkit.dialogue import Message
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.status import read_status
from evalkit.errors import AskRefused
from evalkit.results.derived import read_cells
from evalkit.results.show import show
from evalkit.results.verify import verify
from evalkit.seats import Seat, agent
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import scan, scan_all
from evalkit.store.recovery.check import check_log
from evalkit.text import wording
from evalkit.view.overview import overview
from evalkit.view.reading import read_run
from evalkit.wire.exhausted import COUNTED, MODELS_PART, is_models_doing
from tests.support.command_line import caller
from tests.support.refusing import FOUR, Answer, error, play, sweep_text

ODD = (400, error("Unsupported value: 'temperature' does not support 0.", "unsupported_value"))
LONG = (400, error("This model's maximum context length is 8192 tokens.", "context_length_exceeded"))
FILTERED = (400, error("The prompt was filtered.", "content_filter"))
EPISODES = 12


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def nothing(episode: str, step: int, before: int) -> Answer | None:
    return None


def test_a_lane_whose_first_requests_are_refused_stops_and_owes_all(tmp_path: Path) -> None:
    outcome, provider = play(tmp_path, lambda episode, step, before: ODD)
    assert (outcome.exit_code, outcome.reason, outcome.ended, outcome.remaining) == (3, "lane", 0, EPISODES)
    assert (len(provider.seen), outcome.refused) == (FIRST, FIRST)
    (message,) = outcome.messages
    assert message.startswith(f"acme/m-1: its first {FIRST} episodes were refused")
    assert "'temperature' does not support 0" in message
    assert 'refuses = ["temperature"]' in message
    (cell,) = read_cells(tmp_path / "run")[1]
    assert (cell.ended, len(cell.refused), cell.remaining, cell.prefix) == (0, FIRST, EPISODES, ())
    assert [episode.score for episode in cell.episodes] == [None] * FIRST
    again, served = play(tmp_path, nothing)
    assert (again.exit_code, again.ended, again.remaining, again.refused) == (0, EPISODES, 0, 0)
    assert len({episode for episode, _ in served.seen}) == EPISODES
    (cell,) = read_cells(tmp_path / "run")[1]
    assert (cell.ended, cell.refused, len(cell.prefix)) == (EPISODES, (), EPISODES)
    assert verify(tmp_path / "run") == []


def test_one_refused_episode_goes_on_at_its_step_after_all_others(tmp_path: Path) -> None:
    first: list[str] = []

    def decide(episode: str, step: int, before: int) -> Answer | None:
        first.append(episode)
        return ODD if episode == first[0] and step == 1 else None

    outcome, _ = play(tmp_path, decide)
    assert (outcome.exit_code, outcome.reason, outcome.remaining, outcome.refused) == (3, "refused", 1, 1)
    (message,) = outcome.messages
    assert message.startswith("acme/m-1: 1 episode was refused and is not scored.")
    assert "'temperature' does not support 0" in message
    columns = ("episode", "step", "attempts", "ending", "raw")
    last = [row for row in scan_all(tmp_path / "run", columns).to_pylist() if row["ending"] == "refused"]
    assert [(row["episode"], row["step"], row["attempts"]) for row in last] == [(first[0], 1, "bad_request")]
    assert b"does not support 0" in last[0]["raw"]
    shown = str(show(tmp_path / "run", first[0]))
    assert "'temperature' does not support 0" in shown
    assert "not ended: it remains to be played" in shown
    status = read_status(tmp_path / "run")
    assert (status.cells[0].ended, status.cells[0].refused, status.cells[0].started) == (EPISODES - 1, 1, 1)
    again, served = play(tmp_path, decide)  # not yet mended: asked once, and still remaining
    assert (again.exit_code, again.remaining, served.seen) == (3, 1, [(first[0], 1)])
    mended, served = play(tmp_path, nothing)
    assert (mended.exit_code, mended.remaining) == (0, 0)
    assert served.seen[0] == (first[0], 1)
    assert verify(tmp_path / "run") == []


@agent(version=1)
async def drafts(seat: Seat) -> None:
    """Asks twice a step, the second time in words of its own; goes on where that is refused at step 0."""
    while not seat.ending:
        reply = await seat.ask()
        try:
            reply = await seat.ask([Message(role="user", text=f"Better than {len(reply.text)} letters?")])
        except AskRefused:
            if seat.step:
                raise
        await seat.act(reply if seat.step else await seat.ask())


CODE = """
width = 1
budget_usd = 5
[[agents]]
name = "m"
agent = "drafts"
models = { main = "acme/m-1" }
[[suites]]
name = "pricing/basic"
instances = ["seed-0", "seed-3"]
vary = { periods = [1] }
"""


@pytest.mark.parametrize("late", [False, True])
def test_a_refused_agent_that_is_code_buys_no_answer_twice(tmp_path: Path, late: bool) -> None:
    """It asks three times at step 0, twice at step 1. `late`: at step 1 after a refusal that it survived at step 0;
    else at step 0, its last request."""
    asked: list[tuple[str, int]] = []

    def decide(episode: str, step: int, before: int) -> Answer | None:
        asked.append((episode, step))
        mine, number = episode == asked[0][0], sum(place == (episode, step) for place in asked)
        return ODD if mine and number in ({0: (2,), 1: (2, 3)}[step] if late else (3, 4) if step == 0 else ()) else None

    def again(refuse: Callable[[str, int, int], Answer | None]) -> tuple[RunOutcome, list[tuple[str, int]]]:
        outcome, provider = play(tmp_path, refuse, CODE, {"drafts": drafts})
        return outcome, provider.seen

    outcome, seen = again(decide)
    first, place = seen[0][0], 1 if late else 0
    assert (outcome.reason, outcome.ended, outcome.remaining, outcome.refused) == ("refused", 1, 1, 1)
    outcome, seen = again(decide)
    assert (outcome.remaining, seen) == (1, [(first, place)])
    outcome, seen = again(nothing)
    assert (outcome.exit_code, outcome.remaining) == (0, 0)
    assert seen == ([(first, 1)] if late else [(first, 0), (first, 1), (first, 1)])
    run = tmp_path / "run"
    assert (verify(run), check_log(run)) == ([], [])
    steps = scan(run, ("episode", "step", "tokens_in")).to_pylist()
    of_first = [row["tokens_in"] for row in steps if row["episode"] == first]
    assert of_first == ([18, 18] if late else [27, 18])
    rows = scan_all(run, ("episode", "row_kind", "reply")).to_pylist()
    answered = [row for row in rows if row["row_kind"] == "ask" and row["reply"] is not None]
    assert len(answered) == 10 - late


def test_what_was_accepted_and_is_refused_in_one_wording_stops_the_lane(tmp_path: Path) -> None:
    def decide(episode: str, step: int, before: int) -> Answer | None:
        number = len(started)
        started.setdefault(episode, number)
        words = f"Request req_{before} was refused: field {step}{before} is gone."
        return None if started[episode] < 2 else (422, error(words))

    started: dict[str, int] = {}
    outcome, _ = play(tmp_path, decide, sweep_text(replicates=6))
    assert (outcome.exit_code, outcome.ended, outcome.remaining) == (3, 2, 22)
    assert len(started) == 2 + ALIKE
    assert outcome.messages[0].startswith(f"acme/m-1: {ALIKE} episodes in a row were refused in the same words")


def test_refused_episodes_do_not_keep_fresh_ones_from_being_played(tmp_path: Path) -> None:
    refused: set[str] = set()

    def decide(episode: str, step: int, before: int) -> Answer | None:
        if episode in refused or (step == 0 and before and len(refused) < FIRST + 1):
            refused.add(episode)
            return FILTERED
        return None

    play(tmp_path, decide)
    more, _ = play(tmp_path, decide, sweep_text(replicates=4))
    assert (more.ended, more.remaining, more.refused) == (16 - FIRST - 1, FIRST + 1, FIRST + 1)


TOO_LONG = {
    "at its first request": ("", 0, "refused"),
    "later": ("", 1, "context_length"),
    "later, where the suite does not count it": ("counted_refusals = []", 1, "refused"),
}


@pytest.mark.parametrize(("more", "step", "left"), TOO_LONG.values(), ids=TOO_LONG)
def test_a_context_that_the_conversation_outgrew_is_the_models_doing(
    tmp_path: Path, more: str, step: int, left: str
) -> None:
    text = sweep_text(replicates=1, instances=FOUR[:1], more=more)
    play(tmp_path, lambda episode, at, before: LONG if at == step else None, text)
    (cell,) = read_cells(tmp_path / "run")[1]
    (episode,) = cell.episodes
    assert (episode.ending, episode.score is None) == (left, left == "refused")


def test_the_table_says_which_refusals_may_be_the_models_doing() -> None:
    assert COUNTED == ("context_length",)
    for kind in (*MODELS_PART, "bad_request", "not_supported", "quota"):
        assert not is_models_doing(kind, tuple(MODELS_PART), answered=False)
        assert is_models_doing(kind, tuple(MODELS_PART), answered=True) == (kind in MODELS_PART)
        assert not is_models_doing(kind, (), answered=True)


def test_refusals_are_counted_by_episode_and_wording() -> None:
    fresh = RefusalCount()
    assert [bool(fresh.refused(f"e{n // 2}", f"no {n}")) for n in range(2 * FIRST)] == [False] * 8 + [True] * 2
    used = RefusalCount()
    used.answered()
    assert not any(used.refused(f"e{n}", "one" if n % 2 else "two") for n in range(3 * ALIKE))
    used.answered()
    assert not any(used.refused(f"e{n}", f"id {n}") for n in range(ALIKE - 1))
    used.answered()
    assert not used.refused("e", "id 9")
    assert wording("Field 'a b' of req-12 (12.5 kB)") == wording("Field 'c' of req-7 (8 kB)")


def test_another_choice_of_what_counts_conflicts_with_the_run(tmp_path: Path) -> None:
    play(tmp_path, nothing, sweep_text(replicates=1))
    with pytest.raises(Exception, match="counted_refusals"):
        play(tmp_path, nothing, sweep_text(replicates=1, more='counted_refusals = ["content_filter"]'))
    with pytest.raises(Exception, match=r"suites\[1\].*counted_refusals.*Did you mean 'content_filter'"):
        play(tmp_path, nothing, sweep_text(replicates=1, more='counted_refusals = ["content_filters"]'))


def test_the_index_knows_refused_episodes_and_counts_them_as_unfinished(tmp_path: Path) -> None:
    play(tmp_path, lambda episode, step, before: ODD if before == 3 else None)
    index = read_index(tmp_path / "run")
    assert len(index.remaining()) == 1
    assert sum(cell.ended for cell in index.cells.values()) == EPISODES - 1
    assert sum(cell.refused for cell in index.cells.values()) == 1


def test_commands_and_the_page_tell_how_many_were_refused_and_what_was_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(tmp_path, lambda episode, step, before: ODD if before in (1, 4) else None, sweep_text(replicates=1))
    call = caller(capsys)
    for command, *words in (
        ("status run", "m: 2 episodes were refused by the provider and not scored; the same command plays them again."),
        (
            "report run",
            "2 of them refused by the provider",
            "refused: m on pricing/basic?periods=1: 2 episodes without",
        ),
        ("status run --json", '"refused": 2', '"refused_words": {'),
        ("report run --json", '"refused": 2', '"refused_words": { "m":'),
        ("compare run run", "refused: m on pricing/basic?periods=1: 2 episodes without a score, in no mean"),
    ):
        said = " ".join(call(*command.split()).out.split())
        for word in (*words, "does not support 0"):
            assert word in said, (command, word, said)
    page = overview(read_run(tmp_path / "run"), "run")
    (told,) = [line for line in page.warnings if line.startswith("refused: ")]
    assert "does not support 0" in told
    assert [fact.note for fact in page.facts if fact.title == "Remaining"] == ["2 begun, 2 refused"]


REFUSING = st.tuples(
    st.sampled_from([400, 413, 415, 418, 422, 431, 451]),
    st.one_of(
        st.text(max_size=60),
        st.builds(
            error,
            st.sampled_from(
                [
                    "flagged by moderation",
                    "maximum context length",
                    "Role 'user' after 'tool'",
                    "top up",
                    "tool_use_failed",
                ]
            ),
            st.sampled_from(["", "content_filter", "context_length_exceeded", "unsupported_value", "3230"]),
        ),
    ),
)


@given(answers=st.lists(REFUSING, min_size=8, max_size=8))
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_score_depends_on_a_refusal(answers: list[Answer], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each second episode is refused in another way, at its first or second request; only a window that was outgrown
    makes a score, of what the episode had reached."""
    order: list[str] = []

    def decide(episode: str, step: int, before: int) -> Answer | None:
        order.append(episode)
        number = [*dict.fromkeys(order)].index(episode)
        return answers[number // 2] if number % 2 and step == number // 2 % 2 else None

    folder = tmp_path_factory.mktemp("any")
    text = sweep_text(replicates=4)
    with chdir(folder):
        play(folder, decide, text)
    (cell,) = read_cells(folder / "run")[1]
    known = {one.id: one for one in cell.episodes}
    for number, name in enumerate(dict.fromkeys(order)):
        episode = known.get(name)
        if number % 2 == 0:
            assert episode is not None
            assert episode.ending == "complete"
        elif episode is not None and episode.finished:
            assert (episode.ending, episode.steps) == ("context_length", 2)
        else:
            assert episode is None or (episode.score, episode.ending in ("refused", "")) == (None, True)
    scored = [one for one in cell.prefix if one.ending == "complete"]
    again = {one.instance: one.score for one in scored}
    assert all(one.score == again[one.instance] for one in scored)
