"""Agents that are code: asks as rows, replay that asks nothing twice, and what stops an episode."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from evalkit.client.ask import Answer, Question
from evalkit.client.outside import PolicyAsker
from evalkit.dialogue import Message, Reply, ToolCall
from evalkit.engine.agents import playing
from evalkit.engine.agents.playing import CodePlayer
from evalkit.engine.agents.roles import RoleAskers
from evalkit.engine.episode import ERRORS_THAT_STOP, ActiveEpisode, LaneContext, play
from evalkit.engine.freezing.freeze import ResolvedSweep, resolve
from evalkit.engine.options import Stop
from evalkit.engine.universe import Choice, PlannedEpisode, episodes
from evalkit.envs.replay import begin
from evalkit.errors import (
    AgentError,
    AskRefused,
    BudgetReached,
    EpisodeRefused,
    EpisodeUnavailable,
    LaneClosed,
    RequestTooLarge,
    StorageError,
)
from evalkit.money import PicoUsd
from evalkit.policy.table import player
from evalkit.replies import MOST_BYTES
from evalkit.seats import AgentFn, Seat, agent, code_of
from evalkit.spec.sweep import sweep_from
from evalkit.store.files.record import ASK, STEP, StepRecord
from evalkit.store.files.schema import steps_table
from evalkit.store.reading.rows import LogNumbers
from tests.support.patience import PATIENCE_S
from tests.support.sweep_runs import go_served


@agent(version=1)
async def plain(seat: Seat) -> None:
    while not seat.ending:
        await seat.act(await seat.ask())


@agent(version=1, models=("main", "judge"), parallel=3)
async def best_of_3(seat: Seat) -> None:
    while not seat.ending:
        forks = [seat.fork(f"draft-{number}") for number in range(3)]
        drafts = await asyncio.gather(*(fork.ask() for fork in forks))
        told = "\n".join(str([call.arguments for call in draft.calls]) for draft in drafts)
        verdict = await seat.ask([Message(role="user", text=told)], model="judge", tools=())
        await seat.act(drafts[len(verdict.text) % 3])


@dataclass
class Log:
    """Rows in memory."""

    rows: list[StepRecord] = field(default_factory=list)
    events: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)

    def append(self, record: StepRecord) -> None:
        self.rows.append(record)

    async def durable(self) -> None:
        await asyncio.sleep(0)

    async def room(self) -> None:
        pass

    def event(self, kind: str, **facts: object) -> None:
        self.events.append((kind, facts))


Answers = Callable[[str, Question], None]

AFTER = 20
"""Turns of the loop after an episode was left: what an agent has left behind runs on in a run, too."""


class Model:
    """A policy at a price, which takes its time; `meets` may raise."""

    free = False

    def __init__(self, role: str, policy: PolicyAsker, asked: list[str], meets: Answers) -> None:
        self._role, self._policy, self._asked, self._meets = role, policy, asked, meets
        self.join, self.encode_tools = policy.join, policy.encode_tools

    async def ask(self, question: Question) -> Answer:
        self._asked.append(f"{self._role} {question.address} {question.seed}")
        for _ in range(question.seed % 5):  # so that replies come in another order than they are asked for
            await asyncio.sleep(0)
        self._meets(self._role, question)
        answer = await self._policy.ask(question)
        usage = replace(answer.reply.usage, input=10, output=3)
        return Answer(
            reply=replace(answer.reply, usage=usage, model="served", response_id=question.address),
            cost=PicoUsd(7 if self._role == "main" else 5),
            latency_s=0.5,
            queue_s=0.0,
            attempts="ok",
            started_at=1.0,
        )


def nothing(role: str, question: Question) -> None:
    del role, question


def a_sweep(code: AgentFn, **params: Any) -> ResolvedSweep:
    roles = code_of(code, "test").models
    table = {"agent": "code", "models": dict.fromkeys(roles, "simulated/random"), "params": params}
    spec = {"budget_usd": "1", "agents": [table], "suites": [{"name": "pricing/basic", "vary": {"periods": [2]}}]}
    return resolve(sweep_from(spec, "spec", "test", {"code": code}))


def an_episode(code: AgentFn, **params: Any) -> PlannedEpisode:
    manifest = a_sweep(code, **params).manifest
    return next(episodes(manifest, list(manifest.agents.values()), Choice()))


@dataclass
class Outcome:
    left: str
    log: Log
    asked: list[str]
    context: LaneContext

    @property
    def asks(self) -> list[StepRecord]:
        return [row for row in self.log.rows if row.row_kind == ASK]

    @property
    def steps(self) -> list[StepRecord]:
        return [row for row in self.log.rows if row.row_kind == STEP]


def played(
    code: AgentFn,
    episode: PlannedEpisode,
    rows: Sequence[StepRecord] = (),
    *,
    meets: Answers = nothing,
    context: LaneContext | None = None,
    params: Mapping[str, Any] = MappingProxyType({"n": 3}),
) -> Outcome:
    """Play on from what a log has."""
    asked: list[str] = []
    log = Log(rows=list(rows))
    context = context or LaneContext(log=log, worker="w", stop=Stop())
    context.log = log

    def make(role: str, settings: Mapping[str, Any]) -> Any:
        sampling = episode.cell.sampling.with_overrides(settings)
        policy = PolicyAsker("random", player("random", episode.cell.env.name), sampling)
        return Model(role, policy, asked, meets)

    lanes = {role: f"simulated/{role}" for role in code_of(code, "test").models}
    role_askers = RoleAskers(code=code_of(code, "test"), lanes=lanes, params=params, max_tokens=100, make=make)

    def activate(episode: PlannedEpisode) -> ActiveEpisode:
        position = begin(episode.cell.env, episode.instance, episode.cell.kit)
        steps = [row for row in rows if row.row_kind == STEP]
        asks = {(row.step, row.ask_key, row.ask_n): row for row in rows if row.row_kind == ASK}
        return ActiveEpisode(episode=episode, position=position, rows=steps, asks=asks)

    async def whole(context: LaneContext) -> str:
        async with asyncio.timeout(PATIENCE_S):
            left = await play(episode, activate, CodePlayer(role_askers), context)
        for _ in range(AFTER):
            await asyncio.sleep(0)
        return left

    return Outcome(asyncio.run(whole(context)), log, asked, context)


def what(rows: Sequence[StepRecord]) -> list[tuple[Any, ...]]:
    """Rows without the order in which parallel asks came back."""
    return sorted(
        (
            *(row.step, row.row_kind, row.ask_key, row.ask_n, row.reply, row.request_digest, row.cost, row.ending),
            *(row.tokens_in, row.served_model, row.response_id, row.finish),
        )
        for row in rows
    )


def test_a_disk_that_refuses_an_act_stops_the_run_and_is_no_failure_of_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def durable(log: Log) -> None:
        await asyncio.sleep(0)
        if log.rows[-1].row_kind == STEP:
            raise StorageError("the disk is full")

    @agent(version=1)
    async def catching(seat: Seat) -> None:
        while not seat.ending:
            reply = await seat.ask()
            with suppress(Exception):
                await seat.act(reply)

    monkeypatch.setattr(Log, "durable", durable)
    for code in (plain, catching):
        outcome = played(code, an_episode(code))
        assert (outcome.left, outcome.context.stop.reason) == ("stopped", "storage")


@pytest.mark.parametrize("code", [plain, best_of_3])
def test_an_episode_killed_at_any_row_goes_on_to_the_same_log_and_asks_nothing_twice(code: AgentFn) -> None:
    episode = an_episode(code)
    whole = played(code, episode)
    assert whole.left == whole.steps[-1].ending != ""
    assert len(whole.asked) == len(set(whole.asked)) == len(whole.asks)
    for cut in range(len(whole.log.rows)):
        rest = played(code, episode, whole.log.rows[:cut])
        assert rest.left == whole.left
        assert what(rest.log.rows) == what(whole.log.rows)
        assert len(rest.asked) == len(whole.asks) - sum(row.row_kind == ASK for row in whole.log.rows[:cut])


def test_an_act_has_the_row_that_a_model_would_have_but_for_its_money() -> None:
    whole = played(plain, an_episode(plain))
    for step, ask in zip(whole.steps, whole.asks, strict=True):
        assert (step.step, step.reply, step.attempts, step.ask_n) == (ask.step, ask.reply, "ok", 1)
        assert (step.cost, step.tokens_in, step.tokens_out, step.latency_s) == (0, 0, 0, 0.0)
        assert (ask.cost, ask.tokens_in, ask.tokens_out, ask.latency_s) == (7, 10, 3, 0.5)


def test_no_two_requests_of_an_episode_have_the_same_seed_or_address() -> None:
    whole = played(best_of_3, an_episode(best_of_3))
    seeds = [line.split()[2] for line in whole.asked]
    addresses = [line.split()[1] for line in whole.asked]
    assert len(set(seeds)) == len(seeds)
    assert len(set(addresses)) == len(addresses)
    assert all(address.count("/") == 1 for address in addresses)


def test_a_log_that_the_code_does_not_repeat_is_left_as_it_is() -> None:
    episode = an_episode(plain)
    whole = played(plain, episode)

    @agent(version=1)
    async def other_question(seat: Seat) -> None:
        await seat.ask([Message(role="user", text="Something else?")])

    @agent(version=1)
    async def other_act(seat: Seat) -> None:
        await seat.ask()
        try:
            await seat.act("I say this instead.")
        except BaseException:  # noqa: BLE001 - as an agent may
            await seat.act("And this.")

    @agent(version=1)
    async def asks_more(seat: Seat) -> None:
        first = await seat.ask()
        await seat.ask()
        await seat.act(first)

    @agent(version=1)
    async def stops(seat: Seat) -> None:
        del seat

    for code in (other_question, other_act, asks_more, stops):
        again = played(code, episode, whole.log.rows[:-1])
        assert (again.left, again.asked, len(again.log.rows)) == ("diverged", [], len(whole.log.rows) - 1)
        assert again.log.events[0][1]["why"] == "diverged"


def test_an_agent_that_returns_early_quits() -> None:
    @agent(version=1)
    async def once(seat: Seat) -> None:
        await seat.act(await seat.ask())
        await seat.ask()

    quits = played(once, an_episode(once))
    assert quits.left == quits.steps[-1].ending == "quit"
    assert (quits.steps[-1].reply, quits.steps[-1].step, quits.steps[-1].ask_n) == (None, 1, 1)


def test_a_refused_request_is_logged_raised_and_raised_again() -> None:
    def refuses(role: str, question: Question) -> None:
        if question.step == 1 and not question.ask:
            raise EpisodeRefused("context_length", "too long")

    @agent(version=1)
    async def tries_again(seat: Seat) -> None:
        while not seat.ending:
            try:
                reply = await seat.ask()
            except AskRefused:
                reply = await seat.ask(seat.messages[-1:])
            await seat.act(reply)

    episode = an_episode(tries_again)
    whole = played(tries_again, episode, meets=refuses)
    assert [row.reply is None for row in whole.asks[:3]] == [False, True, False]
    assert whole.asks[1].attempts == "context_length"
    rest = played(tries_again, episode, whole.log.rows[:4])
    assert what(rest.log.rows) == what(whole.log.rows)
    uncaught = played(plain, an_episode(plain), meets=refuses)
    assert uncaught.left == uncaught.steps[-1].ending == "context_length"


@pytest.mark.parametrize(
    ("kind", "at", "left"),
    [("bad_request", 1, "refused"), ("context_length", 0, "refused"), ("context_length", 1, "context_length")],
)
def test_an_agent_that_gives_up_since_a_request_was_refused_is_scored_only_if_its_model_caused_it(
    kind: str, at: int, left: str
) -> None:
    def refuses(role: str, question: Question) -> None:
        if question.step == at:
            raise EpisodeRefused(kind, "no such field")

    @agent(version=1)
    async def catches(seat: Seat) -> None:
        while not seat.ending:
            try:
                reply = await seat.ask()
            except AskRefused:
                return
            await seat.act(reply)

    for code in (catches, plain):
        gone = played(code, an_episode(code), meets=refuses)
        assert (gone.left, gone.steps[-1].ending) == (left, left)
        assert (gone.steps[-1].attempts, gone.steps[-1].raw) == (kind, b"no such field")


@pytest.mark.parametrize(
    ("flaw", "left", "reason"),
    [
        (BudgetReached("no money"), "stopped", "budget"),
        (EpisodeUnavailable("no answer"), "unavailable", ""),
        (RequestTooLarge("too dear"), "too_large", ""),
    ],
)
def test_what_stops_an_episode_cannot_be_caught_and_what_is_in_flight_is_logged(
    flaw: Exception, left: str, reason: str
) -> None:
    caught: list[BaseException] = []

    @agent(version=1, parallel=3)
    async def stubborn(seat: Seat) -> None:
        try:
            await asyncio.gather(*(seat.fork(str(number)).ask() for number in range(3)))
        except Exception as seen:  # noqa: BLE001 - as an agent may
            caught.append(seen)

    met = 0

    def second_fails(role: str, question: Question) -> None:
        nonlocal met
        met += 1
        if met == 2:
            raise flaw

    stopped = played(stubborn, an_episode(stubborn), meets=second_fails)
    assert (stopped.left, stopped.context.stop.reason, caught) == (left, reason, [])
    assert len(stopped.asks) == 2  # the two others were paid for


@agent(version=1, parallel=2)
async def hasty(seat: Seat) -> None:
    """Does not wait for its second request, nor for the third."""
    while not seat.ending:
        rivals = [asyncio.ensure_future(seat.fork(name).ask()) for name in ("b", "c")]
        await asyncio.sleep(0)
        for rival in rivals:
            rival.cancel()
        await asyncio.wait(rivals)
        first = await seat.fork("a").ask()
        await seat.act(first)


def test_a_request_whose_waiter_is_cancelled_is_logged_before_the_next_act() -> None:
    flying = most = 0

    def counts(role: str, question: Question) -> None:
        nonlocal flying, most
        del role, question
        flying += 1
        most = max(most, flying)

    async def lands(log: Log) -> None:
        nonlocal flying
        for _ in range(7):
            await asyncio.sleep(0)
        flying -= log.rows[-1].row_kind == ASK

    episode = an_episode(hasty)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, "durable", lands)
        whole = played(hasty, episode, meets=counts)
    assert whole.left == whole.steps[-1].ending != ""
    assert most <= 2
    for step in whole.steps:
        place = whole.log.rows.index(step)
        asked = {row.ask_key for row in whole.log.rows[:place] if (row.row_kind, row.step) == (ASK, step.step)}
        assert (asked, step.ask_n) == ({"a", "b", "c"}, 3)
    for cut in range(len(whole.log.rows)):
        assert what(played(hasty, episode, whole.log.rows[:cut]).log.rows) == what(whole.log.rows)


def test_a_request_that_is_refused_in_a_task_group_ends_the_episode_as_one_that_is_refused_alone() -> None:
    @agent(version=1, parallel=3)
    async def grouped(seat: Seat) -> None:
        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(seat.fork(name).ask())

    @agent(version=1, parallel=2)
    async def flawed(seat: Seat) -> None:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(seat.fork("a").ask())
            try:
                await asyncio.wait({asking})
            finally:
                raise ZeroDivisionError

    def refuses(role: str, question: Question) -> None:
        raise EpisodeRefused("content_filter", f"{role} {question.address}")

    refused = played(grouped, an_episode(grouped), meets=refuses)
    assert refused.left == refused.steps[-1].ending == "refused"
    assert refused.steps[-1].attempts == "content_filter"
    assert (len(refused.asks), refused.steps[-1].ask_n) == (3, 3)
    assert played(flawed, an_episode(flawed), meets=refuses).left == "agent_error"


def test_a_closed_lane_of_a_second_model_stops_its_agent_alone() -> None:
    def closed(role: str, question: Question) -> None:
        del question
        if role == "judge":
            raise LaneClosed("the judge's key is refused")

    stopped = played(best_of_3, an_episode(best_of_3), meets=closed)
    assert (stopped.left, stopped.context.lane_stop.reason) == ("stopped", "")
    assert stopped.context.stopped == {"code": "the judge's key is refused"}
    again = played(best_of_3, an_episode(best_of_3), context=stopped.context)
    assert (again.left, again.asked) == ("stopped", [])


def test_an_exception_parks_the_episode_and_ten_in_a_row_stop_the_agent_alone() -> None:
    @agent(version=1)
    async def broken(seat: Seat) -> None:
        await seat.ask()
        raise ZeroDivisionError("my own fault")

    context: LaneContext | None = None
    for number in range(ERRORS_THAT_STOP):
        assert context is None or not context.stopped, number
        failed = played(broken, an_episode(broken), context=context)
        assert failed.left == "agent_error"
        context = failed.context
        assert "my own fault" in str(failed.log.events[-1][1]["detail"])
    assert context is not None
    assert f"{ERRORS_THAT_STOP} times in a row" in context.stopped["code"]
    assert context.deferred["code", "agent_error"] == (ERRORS_THAT_STOP, "ZeroDivisionError: my own fault")
    assert (context.stop.reason, context.errors_in_a_row) == ("", 0)
    assert played(broken, an_episode(broken), context=context).asked == []


def test_an_agent_asks_no_more_than_its_limits() -> None:
    seen: list[str] = []

    @agent(version=1)
    async def greedy(seat: Seat) -> None:
        try:
            while True:
                await seat.ask()
        except AskRefused as flaw:
            seen.append(flaw.kind)
            raise

    limited = played(greedy, an_episode(greedy))
    assert (limited.left, seen, len(limited.asked)) == ("ask_limit", ["ask_limit"], 64)


def wrong_uses() -> Iterator[tuple[str, Callable[[Seat], Any]]]:
    async def twice_at_once(seat: Seat) -> None:
        await asyncio.gather(seat.ask(), seat.ask())

    async def too_many(seat: Seat) -> None:
        await asyncio.gather(*(seat.fork(str(number)).ask() for number in range(3)))

    async def same_key(seat: Seat) -> None:
        seat.fork("a")
        seat.fork("a")

    async def late_fork(seat: Seat) -> None:
        fork = seat.fork("a")
        await seat.act(await seat.ask())
        await fork.ask()

    async def in_flight(seat: Seat) -> None:
        asking = asyncio.ensure_future(seat.ask())
        await asyncio.sleep(0)
        await seat.act("Now?")
        await asking

    async def no_role(seat: Seat) -> None:
        await seat.ask(model="jugde")

    async def no_setting(seat: Seat) -> None:
        await seat.ask(sampling={"temprature": 1})

    async def too_long(seat: Seat) -> None:
        await seat.ask(sampling={"max_tokens": 101})

    async def no_reply(seat: Seat) -> None:
        await seat.act([1])  # type: ignore[list-item]

    async def no_text(seat: Seat) -> None:
        await seat.act(Reply(text=5))  # type: ignore[arg-type]

    async def no_json(seat: Seat) -> None:
        await seat.act([ToolCall(id="1", name="x", arguments={})])  # type: ignore[arg-type]

    async def half_a_pair(seat: Seat) -> None:
        await seat.act("\ud800")

    async def too_many_bytes(seat: Seat) -> None:
        await seat.act("x" * MOST_BYTES)

    yield "still waits", twice_at_once
    yield "as the agent declares (`parallel=2`)", too_many
    yield "used twice", same_key
    yield "belongs to step 0", late_fork
    yield "still in flight", in_flight
    yield "no role 'jugde'", no_role
    yield "'temprature' cannot be set", no_setting
    yield "max_tokens must be 1 to the agent's 100", too_long
    yield "expected ToolCalls", no_reply
    yield "must be strings", no_text
    yield "must be strings", no_json
    yield "not valid text", half_a_pair
    yield "at most 8,388,608 are taken", too_many_bytes


@pytest.mark.parametrize(("words", "use"), list(wrong_uses()))
def test_a_wrong_use_of_the_seat_is_told(words: str, use: Callable[[Seat], Any]) -> None:
    told: list[str] = []

    @agent(version=1, parallel=2)
    async def wrong(seat: Seat) -> None:
        try:
            await use(seat)
        except AgentError as flaw:
            told.append(str(flaw))
            raise

    assert played(wrong, an_episode(wrong)).left == "agent_error"
    assert words in told[0]


# What an agent's code does beside its episode.


def test_what_an_agent_changes_in_tools_and_settings_is_its_own() -> None:
    seen: list[tuple[int, list[int]]] = []

    @agent(version=1)
    async def changing(seat: Seat) -> None:
        params: Any = seat.params
        seen.append((len(seat.tools[0].parameters), list(params["kept"])))
        for tool in seat.tools:
            schema: Any = tool.parameters
            schema["description"] = "mine"
            schema.get("properties", {}).clear()
        params["kept"].append(1)
        assert seat.tools[0].parameters["description"] == "mine"
        await plain(seat)

    episode = an_episode(changing)
    before = what(played(plain, episode).log.rows)
    kept: list[int] = []
    assert [what(played(changing, episode, params={"kept": kept}).log.rows) for _ in range(2)] == [before] * 2
    assert seen[0] == seen[1]


def test_an_ask_with_tools_that_the_agent_has_changed_is_another_one() -> None:
    @agent(version=1)
    async def changing(seat: Seat) -> None:
        await seat.ask(tools=seat.tools)
        schema: Any = seat.tools[0].parameters
        schema["description"] = "mine"
        await seat.ask(tools=seat.tools)

    one, other = played(changing, an_episode(changing)).asks
    assert one.request_digest != other.request_digest


async def acts(seat: Seat) -> None:
    await seat.act("late")


async def asks(seat: Seat) -> None:
    await seat.ask([Message(role="user", text="late")])


async def asks_beside(seat: Seat) -> None:
    await seat.fork("late").ask()


@pytest.mark.parametrize("use", [acts, asks, asks_beside])
@pytest.mark.parametrize("how", ["returns", "raises", "is stopped"])
def test_nothing_is_written_after_the_end_of_an_agent(how: str, use: Callable[[Seat], Any]) -> None:
    told, kept = list[BaseException](), list[asyncio.Task[None]]()
    context = LaneContext(log=Log(), worker="w", stop=Stop())

    async def later(seat: Seat, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        try:
            await use(seat)
        except BaseException as flaw:
            told.append(flaw)
            raise

    @agent(version=1, parallel=10)
    async def leaving(seat: Seat) -> None:
        await seat.act(await seat.ask())
        loop = asyncio.get_running_loop()
        for turns in range(3, 9):
            kept.append(loop.create_task(later(seat, turns)))
        if how == "raises":
            raise ValueError("mine")
        if how == "is stopped":
            context.stop.set("interrupt")
            await asyncio.Event().wait()

    outcome = played(leaving, an_episode(leaving), context=context)
    assert outcome.left == {"returns": "quit", "raises": "agent_error", "is stopped": "stopped"}[how]
    assert [type(flaw) for flaw in told] == [AgentError] * 6
    assert all("its agent has returned" in str(flaw) for flaw in told)
    assert (len(outcome.asks), len(outcome.steps)) == (1, 2 if how == "returns" else 1)


@pytest.mark.parametrize("flaw", [SystemExit(7), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
def test_whatever_an_agent_raises_parks_its_episode_alone(flaw: BaseException) -> None:
    @agent(version=1)
    async def raising(seat: Seat) -> None:
        await seat.ask()
        raise flaw

    outcome = played(raising, an_episode(raising))
    assert outcome.left == "agent_error"
    assert type(flaw).__name__ in str(outcome.log.events[-1][1]["detail"])


def asyncio_run(use: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    asyncio.run(use())


def test_a_seat_is_not_used_from_another_thread_or_loop() -> None:
    told: list[str] = []

    @agent(version=1)
    async def threaded(seat: Seat) -> None:
        loop, fork = asyncio.get_running_loop(), seat.fork("elsewhere")
        for use in (seat.ask, lambda: seat.act("x"), fork.ask):
            try:
                await asyncio.to_thread(asyncio_run, use)
            except AgentError as flaw:
                told.append(str(flaw))
        try:
            await asyncio.to_thread(lambda: seat.fork("new"))
        except AgentError as flaw:
            told.append(str(flaw))
        while not seat.ending:
            reply = await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(seat.ask(), loop).result())
            await seat.act(reply)

    episode = an_episode(threaded)
    assert what(played(threaded, episode).log.rows) == what(played(plain, episode).log.rows)
    assert [words.partition(":")[0] for words in told] == ["ask", "act", "ask", "fork"]
    assert all("asyncio.run_coroutine_threadsafe" in words for words in told)


@pytest.mark.parametrize("lane", [False, True])
@pytest.mark.parametrize("deaf", [False, True])
def test_an_agent_that_never_asks_is_left_when_the_run_or_its_lane_stops(
    deaf: bool, lane: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "CANCELS", 3)

    @agent(version=1)
    async def idle(seat: Seat) -> None:
        stop = context.lane_stop if lane else context.stop
        asyncio.get_running_loop().call_soon(stop.set, "interrupt")
        for _ in range(4 if deaf else 1):  # the last cancellation is that of the loop, at its end
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not deaf:
                    raise

    context = LaneContext(log=Log(), worker="w", stop=Stop())
    outcome = played(idle, an_episode(idle), context=context)
    assert (outcome.left, outcome.log.rows) == ("stopped", [])
    assert not context.stop._listeners
    assert not context.lane_stop._listeners


def test_a_request_in_flight_when_the_run_stops_is_awaited_and_logged() -> None:
    context = LaneContext(log=Log(), worker="w", stop=Stop())
    outcome = played(
        plain, an_episode(plain), meets=lambda role, question: context.stop.set("interrupt"), context=context
    )
    assert outcome.left == "stopped"
    assert [row.row_kind for row in outcome.log.rows] == [ASK]
    assert len(outcome.asked) == 1


def test_an_agent_that_catches_all_and_tries_again_lets_others_run() -> None:
    tries: dict[str, int] = {}

    async def in_vain(seat: Seat) -> None:
        await seat.act([1])  # type: ignore[list-item]

    async def wrongly(seat: Seat) -> None:
        await seat.ask(model="jugde")

    @agent(version=1)
    async def trying(seat: Seat) -> None:
        for use in (in_vain, wrongly):
            turned = asyncio.Event()
            asyncio.get_running_loop().call_soon(turned.set)
            for number in range(1000):
                if turned.is_set():
                    break
                tries[use.__name__] = number
                with suppress(AgentError):
                    await use(seat)

    assert played(trying, an_episode(trying)).left == "quit"
    assert max(tries.values()) < 3, tries


def test_the_log_in_numbers_counts_asks_as_requests_and_money_alone() -> None:
    whole = played(best_of_3, an_episode(best_of_3))
    rows = steps_table(whole.log.rows)
    numbers = LogNumbers()
    numbers.add(rows)
    effect, endings = numbers.effect()
    assert (len(effect.order), list(numbers.values["ending"])[endings[-1]]) == (len(whole.steps), whole.left)
    assert int(numbers.sums["requests"][0]) == rows.num_rows
    assert int(numbers.sums["cost"][0]) == sum(row.cost for row in whole.log.rows)


def test_a_reply_can_be_composed() -> None:
    @agent(version=1)
    async def talks(seat: Seat) -> None:
        await seat.act("Let me think.")
        await seat.act(Reply(text="I have thought.", finish="stop"))
        await seat.act([])

    said = played(talks, an_episode(talks))
    assert (said.left, said.asked, [row.ask_n for row in said.steps]) == ("quit", [], [0, 0, 0, 0])


def test_another_source_is_told_once_and_files_are_counted_for_all_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def room(in_flight: int) -> int:
        asked.append(in_flight)
        return in_flight

    monkeypatch.setattr("evalkit.engine.session.make_room", room)

    @agent(version=1, parallel=3)
    async def other(seat: Seat) -> None:
        while not seat.ending:
            await seat.act(await seat.ask())

    told: list[str] = []
    for code, lines in ((plain, 0), (other, 1), (other, 1)):
        sweep = a_sweep(code)
        go_served(sweep, tmp_path / "run", announce=told.extend)
        assert len(told) == lines
    assert "The source of agent 'code' (code) is not what it was" in told[0]
    assert asked == [sweep.sweep.width, 3 * sweep.sweep.width]  # the third call has nothing to do
