import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
import pytest

from evalkit.client.ask import Question
from evalkit.client.budget import Budget
from evalkit.client.client import ModelAsker
from evalkit.client.lanes import health
from evalkit.client.lanes.buckets import PACE
from evalkit.client.lanes.health import MOST_PAID
from evalkit.client.lanes.lane import Lane
from evalkit.client.request import RequestTemplate
from evalkit.client.retry import ATTEMPTS
from evalkit.dialogue import Message, Reply, Sampling, Tool, ToolCall, Usage
from evalkit.errors import (
    BudgetReached,
    EpisodeRefused,
    EpisodeUnavailable,
    FencedError,
    LaneClosed,
    RequestTooLarge,
)
from evalkit.money import FREE, PicoUsd, Price
from evalkit.serve.openai_chat import SERVED_OPENAI_CHAT
from evalkit.spec.catalogue import read_provider
from evalkit.spec.model import Limits, Model, Provider, ServerSpec
from evalkit.store.files.record import LedgerRecord
from evalkit.store.reading.unmetered import UnmeteredReplies
from evalkit.wire.dialect import Quirks
from evalkit.wire.http import Failure, HttpResponse
from evalkit.wire.openai_chat import OPENAI_CHAT
from evalkit.wire.table import DIALECTS
from evalkit.wire.unparsed import DRAWS
from tests.support.each_case import check_each
from tests.support.virtual_clock import run_virtual

PRICE = Price(input=10, output=100, cached_read=1, cached_write=1)
SAMPLING = Sampling(max_tokens=50, temperature=1.0)
USAGE = Usage(input=30, output=7)
REPLY = Reply(text="42", usage=USAGE, model="m-1", response_id="r")
OK = HttpResponse(status=200, headers={}, body=SERVED_OPENAI_CHAT.encode_reply(REPLY))
COST = 30 * 10 + 7 * 100


def failed(failure: Failure, status: int = 0) -> HttpResponse:
    return HttpResponse(status=status, headers={}, failure=failure, detail=f"a {failure}")


def refused(status: int, message: str = "no", code: str = "", **headers: str) -> HttpResponse:
    body = orjson.dumps({"error": {"message": message, "code": code}})
    return HttpResponse(status=status, headers={name.replace("_", "-"): v for name, v in headers.items()}, body=body)


class Disk:
    """A ledger that takes a second to commit, and tells when each row became durable."""

    def __init__(self) -> None:
        self.rows: list[LedgerRecord] = []
        self.then: list[Callable[[], None] | None] = []
        self.durable_rows = 0

    def enter(self, record: LedgerRecord, then: Callable[[], None] | None = None) -> None:
        self.rows.append(record)
        self.then.append(then)

    async def durable(self) -> None:
        count = len(self.rows)
        await asyncio.sleep(1.0)
        fresh, self.durable_rows = self.then[self.durable_rows : count], max(self.durable_rows, count)
        for then in filter(None, fresh):
            then()

    def of(self, kind: str) -> list[LedgerRecord]:
        return [row for row in self.rows if row.kind == kind]


class Script:
    """A transport that answers from a list, and notes what it was sent, when, and what was durable by then."""

    def __init__(self, responses: Sequence[HttpResponse], disk: Disk, latency_s: float = 0.5) -> None:
        self.responses = list(responses)
        self.disk = disk
        self.latency_s = latency_s
        self.sent: list[tuple[float, str, bytes]] = []
        self.durable_charges: list[int] = []

    async def send(self, body: bytes, request_id: str) -> HttpResponse:
        self.sent.append((asyncio.get_running_loop().time(), request_id, body))
        self.durable_charges.append(sum(row.kind == "charge" for row in self.disk.rows[: self.disk.durable_rows]))
        await asyncio.sleep(self.latency_s)
        return self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]


class Scene:
    """One agent, everything around it, and one question."""

    def __init__(
        self,
        *responses: HttpResponse,
        budget: int | None = 10**9,
        price: Price = PRICE,
        limits: Limits | None = None,
        quirks: Quirks | None = None,
        sampling: Sampling = SAMPLING,
        cache_key: bool = False,
        billed: Mapping[str, bool] | None = None,
        window: int | None = None,
        cached_reads_count: bool = True,
    ) -> None:
        self.disk = Disk()
        self.script = Script(responses, self.disk)
        self.lane = Lane("acme/m", limits=limits or Limits(), width=10)
        limit = None if budget is None else PicoUsd(budget)
        self.budget = Budget(budget=limit, spent=PicoUsd(0), ledger=self.disk, session="s")
        self.template = RequestTemplate(
            agent="a",
            provider=Provider(name="acme", dialect="openai_chat", key_env="ACME_KEY", cache_key=cache_key),
            model=Model(name="m", price=None, limits=Limits(), quirks=quirks or Quirks(), context_tokens=window),
            dialect=replace(OPENAI_CHAT, cached_reads_count=cached_reads_count),
            sampling=sampling,
            price=price,
            billed=billed or {},
        )
        self.asker = ModelAsker(self.template, lane=self.lane, budget=self.budget, transport=self.script)
        tools = self.asker.encode_tools((Tool(name="f", description="", parameters={"type": "object"}),))
        messages: list[bytes] = []
        self.asker.join(messages, (Message(role="user", text="hello"),))
        self.question = Question(episode="ep", step=3, seed=99, tools=tools, messages=messages)

    @property
    def bound(self) -> int:
        return self.template.worst_case(self.question)


def played(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(play())


def test_a_good_reply_is_settled_at_its_cost() -> None:
    async def play() -> None:
        scene = Scene(OK)
        answer = await scene.asker.ask(scene.question)
        assert answer.reply == REPLY
        assert (answer.cost, answer.attempts, answer.latency_s, answer.raw) == (COST, "ok", 0.5, None)
        assert (scene.budget.stats().spent, scene.budget.stats().reserved) == (COST, 0)
        assert [row.kind for row in scene.disk.rows] == ["lease"]
        _, request_id, body = scene.script.sent[0]
        assert request_id == "ep/3/0"
        sent = orjson.loads(body)
        assert (sent["model"], sent["max_tokens"], sent["seed"]) == ("m", 50, 99)
        assert scene.bound == (len(body) + OPENAI_CHAT.overhead_tokens) * 10 + 50 * 100

    played(play)


@pytest.mark.parametrize(("chosen", "sent"), [(None, 99), (False, None), (0, 0), (7, 7)])
def test_an_agents_own_seed_stands_in_for_the_requests_and_false_for_none(
    chosen: int | bool | None, sent: int | None
) -> None:
    async def play() -> None:
        scene = Scene(OK, sampling=SAMPLING.with_overrides({"seed": chosen}))
        await scene.asker.ask(scene.question)
        assert orjson.loads(scene.script.sent[0][2]).get("seed") == sent

    played(play)


def test_a_seed_that_the_model_refuses_is_not_sent() -> None:
    async def play() -> None:
        scene = Scene(OK, quirks=Quirks(refuses=frozenset({"seed"})))
        await scene.asker.ask(scene.question)
        assert "seed" not in orjson.loads(scene.script.sent[0][2])

    played(play)


@pytest.mark.parametrize("failure", ["timeout", "reset", "truncated"])
def test_an_attempt_of_unknown_usage_is_durably_charged_before_the_next_one_leaves(failure: Failure) -> None:
    async def play() -> None:
        scene = Scene(failed(failure), failed(failure), OK)
        answer = await scene.asker.ask(scene.question)
        assert answer.attempts == f"{failure},{failure},ok"
        assert [row.amount for row in scene.disk.of("charge")] == [scene.bound] * 2
        charge = scene.disk.of("charge")[1]
        assert (charge.lane, charge.agent, charge.episode, charge.step, charge.attempt, charge.reason) == (
            ("acme/m", "a", "ep", 3, 1, failure)
        )
        assert scene.script.durable_charges == [0, 1, 2]
        assert scene.budget.stats().spent == 2 * scene.bound + answer.cost
        assert [request_id for _, request_id, _ in scene.script.sent] == ["ep/3/0", "ep/3/1", "ep/3/2"]

    played(play)


@pytest.mark.parametrize("response", [refused(429), refused(409), refused(503), failed("connect")])
def test_a_refusal_costs_nothing_and_is_asked_again(response: HttpResponse) -> None:
    async def play() -> None:
        scene = Scene(response, OK)
        answer = await scene.asker.ask(scene.question)
        assert answer.attempts.endswith(",ok")
        assert scene.budget.stats().spent == COST
        assert not scene.disk.of("charge")

    played(play)


class Elsewhere:
    """A second server of a scene's lane."""

    def __init__(self, scene: Scene, *responses: HttpResponse) -> None:
        self.script = Script(responses, scene.disk)
        scene.lane = Lane("acme/m", limits=Limits(), width=10, servers=(ServerSpec(url="a:1"), ServerSpec(url="b:1")))
        scene.asker = ModelAsker(
            scene.template,
            lane=scene.lane,
            budget=scene.budget,
            transport=scene.script,
            others=[(self.script, None)],
        )


def test_an_attempt_that_may_be_billed_is_charged_before_it_is_repeated_elsewhere() -> None:
    async def play() -> None:
        scene = Scene(failed("reset"))
        other = Elsewhere(scene, OK, OK)
        answer = await scene.asker.ask(scene.question)
        assert answer.attempts == "reset,ok"
        assert [row.amount for row in scene.disk.of("charge")] == [scene.bound]
        assert other.script.durable_charges == [1]
        assert [request_id for _, request_id, _ in other.script.sent] == ["ep/3/1"]
        assert scene.question.cached_at == {"acme/m": 1}
        assert (await scene.asker.ask(scene.question)).attempts == "ok"
        assert len(other.script.sent) == 2

    played(play)


def test_a_server_that_asks_to_wait_waits_alone() -> None:
    async def play() -> None:
        scene = Scene(refused(429, retry_after="7200"))
        other = Elsewhere(scene, OK)
        answer = await scene.asker.ask(scene.question)
        assert answer.attempts == "rate_limit,ok"
        ((at, _, _),) = other.script.sent
        assert at < 5.0
        assert scene.lane.stats().ended == ""

    played(play)


def test_a_server_whose_answers_are_no_replies_ends_the_lane_and_is_named() -> None:
    async def play() -> None:
        junk = HttpResponse(status=200, headers={}, body=b"<html>")
        scene = Scene(*[junk] * MOST_PAID)
        Elsewhere(scene, *[OK] * 20)

        async def ask() -> None:
            for _ in range(20):
                scene.question.cached_at["acme/m"] = 0
                with suppress(EpisodeUnavailable):
                    await scene.asker.ask(scene.question)

        with pytest.raises(LaneClosed) as said:
            await ask()
        assert f"acme/m at a:1: {MOST_PAID} answers in a row could not be read" in str(said.value)

    played(play)


def with_credentials(response: HttpResponse, number: int) -> HttpResponse:
    return replace(response, credentials=number)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_that_can_be_renewed_is_asked_with_the_next_one(status: int) -> None:
    async def play() -> None:
        scene = Scene(with_credentials(refused(status), 1), with_credentials(OK, 2))
        answer = await scene.asker.ask(scene.question)
        assert answer.attempts == "bad_key,ok"
        assert scene.budget.stats().spent == COST
        assert not scene.disk.of("charge")

    played(play)


def test_two_keys_refused_one_after_the_other_end_the_lane() -> None:
    async def play() -> None:
        scene = Scene(with_credentials(refused(401), 4), with_credentials(refused(401), 5), OK)
        with pytest.raises(LaneClosed, match="Check the key in ACME_KEY"):
            await scene.asker.ask(scene.question)
        assert len(scene.script.sent) == 2

    played(play)


def test_a_key_that_was_not_renewed_after_a_refusal_is_not_asked_with_again() -> None:
    async def play() -> None:
        scene = Scene(with_credentials(refused(401), 4), with_credentials(refused(401), 4), OK)
        with pytest.raises(LaneClosed, match="Check the key in ACME_KEY"):
            await scene.asker.ask(scene.question)
        assert len(scene.script.sent) == 2

    played(play)


def test_a_key_that_expires_again_later_is_renewed_again() -> None:
    async def play() -> None:
        numbers = [with_credentials(refused(401), 1), with_credentials(refused(503), 2)]
        scene = Scene(*numbers, with_credentials(refused(401), 3), with_credentials(OK, 4))
        assert (await scene.asker.ask(scene.question)).attempts.startswith("bad_key,overload,bad_key,ok")

    played(play)


def test_a_key_that_does_not_change_is_not_asked_with_again() -> None:
    async def play() -> None:
        scene = Scene(refused(401), OK)
        with pytest.raises(LaneClosed):
            await scene.asker.ask(scene.question)
        assert len(scene.script.sent) == 1

    played(play)


def test_retry_after_is_waited_for_and_counts_as_no_latency() -> None:
    async def play() -> None:
        scene = Scene(refused(429, retry_after="30"), OK)
        answer = await scene.asker.ask(scene.question)
        times = [at for at, _, _ in scene.script.sent]
        assert times[1] - times[0] == pytest.approx(30.5)
        assert answer.latency_s == 0.5

    played(play)


def test_a_200_without_a_reply_is_charged_and_asked_again() -> None:
    async def play() -> None:
        scene = Scene(HttpResponse(status=200, headers={}, body=b"<html>"), OK)
        answer = await scene.asker.ask(scene.question)
        assert answer.attempts == "unreadable,ok"
        assert len(scene.disk.of("charge")) == 1

    played(play)


def test_a_reply_that_strict_json_refuses_is_kept_as_it_came() -> None:
    body = SERVED_OPENAI_CHAT.encode_reply(REPLY).replace(b"42", b"4\xff2")

    async def play() -> None:
        scene = Scene(HttpResponse(status=200, headers={}, body=body))
        answer = await scene.asker.ask(scene.question)
        assert (answer.reply.text, answer.raw, answer.attempts) == ("4\ufffd2", body, "ok")
        assert len(scene.script.sent) == 1

    played(play)


def test_a_reply_without_usage_is_settled_at_its_bound_and_marked() -> None:
    body = SERVED_OPENAI_CHAT.encode_reply(Reply(text="42" * 200))

    async def play() -> None:
        scene = Scene(HttpResponse(status=200, headers={}, body=body))
        answer = await scene.asker.ask(scene.question)
        assert (answer.cost, answer.attempts) == (scene.bound, "unmetered")
        assert scene.budget.stats().spent == scene.bound
        # The provider's limit on tokens holds all the same: they are counted by the reply's length.
        assert scene.lane.stats().output_tokens == 100

    played(play)


def counted(text: str, **usage: object) -> HttpResponse:
    """A reply whose usage is just this."""
    value = orjson.loads(SERVED_OPENAI_CHAT.encode_reply(Reply(text=text)))
    return HttpResponse(status=200, headers={}, body=orjson.dumps({**value, "usage": usage}))


NO_CACHE = {"cached_tokens": 0, "cache_write_tokens": 0}


@pytest.mark.parametrize("said", [None, -3, "7", True, 7.5, 2**31, 0])
def test_missing_output_usage_is_charged_at_its_bound_beside_the_input_that_is_stated(said: object) -> None:
    usage = {"prompt_tokens": 30, "prompt_tokens_details": NO_CACHE, "completion_tokens": said}

    async def play() -> None:
        scene = Scene(counted("42", **usage))
        answer = await scene.asker.ask(scene.question)
        assert (answer.cost, answer.attempts) == (30 * 10 + 50 * 100, "unmetered")
        assert (answer.reply.usage.input, answer.reply.usage.output) == (30, 0)
        stats = scene.budget.stats()
        assert (stats.spent, stats.reserved) == (answer.cost, 0)
        assert stats.unmetered == UnmeteredReplies(replies=1, cost=answer.cost)
        assert scene.lane.stats().output_tokens == 1

    played(play)


def test_missing_input_usage_is_charged_at_its_bound_beside_the_output_that_is_stated() -> None:
    async def play() -> None:
        scene = Scene(counted("42", completion_tokens=7))
        answer = await scene.asker.ask(scene.question)
        assert (answer.cost, answer.attempts) == (scene.bound - 50 * 100 + 7 * 100, "unmetered")

    played(play)


def test_figures_that_contradict_each_other_are_charged_as_the_larger_use_and_marked() -> None:
    cached = {"cached_tokens": 27}
    cases: dict[str, tuple[dict[str, object], int]] = {
        "thoughts in the total alone": (
            {"prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 67},
            37 * 100 + 300,
        ),
        "cached beyond the prompt": (
            {"prompt_tokens": 3, "completion_tokens": 7, "prompt_tokens_details": cached},
            3 * 10 + 27 * 1 + 7 * 100,
        ),
        "more than may be written": (
            {"prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 10**6},
            30 * 10 + 50 * 100,
        ),
    }

    def check(case: tuple[dict[str, object], int]) -> None:
        usage, cost = case

        async def play() -> None:
            scene = Scene(counted("42", **usage))
            answer = await scene.asker.ask(scene.question)
            told = UnmeteredReplies(doubtful=1, doubtful_cost=cost)
            if usage.get("total_tokens") == 10**6:  # no request can have used so many: then some are unknown
                told = UnmeteredReplies(replies=1, cost=cost)
            assert (answer.cost, answer.attempts) == (cost, "doubtful" if told.doubtful else "unmetered")
            assert scene.budget.stats().unmetered == told
            assert scene.lane.stats().ended == ""
            absurd = Scene(
                counted("42", prompt_tokens=3, completion_tokens=7, prompt_tokens_details={"cached_tokens": 10**6})
            )
            answer = await absurd.asker.ask(absurd.question)
            assert (answer.cost, absurd.lane.stats().ended) == (absurd.bound - 43 * 100, "")

        played(play)

    check_each(cases.items(), check)


def test_a_filters_answer_in_place_of_a_reply_ends_the_episode_once_at_what_it_states() -> None:
    usage = {"prompt_tokens": 30, "completion_tokens": 7, "prompt_tokens_details": NO_CACHE}
    for stated, charge in ((usage, COST), (None, None)):
        value = {"id": "c", "model": "m", "choices": [{"finish_reason": "content_filter"}], "usage": stated}

        async def play(value: object = value, charge: int | None = charge) -> None:
            scene = Scene(HttpResponse(status=200, headers={}, body=orjson.dumps(value)))
            with pytest.raises(EpisodeRefused) as said:
                await scene.asker.ask(scene.question)
            assert (said.value.kind, len(scene.script.sent)) == ("content_filter", 1)
            amount = scene.bound if charge is None else charge
            assert [row.amount for row in scene.disk.of("charge")] == [amount]
            assert (scene.budget.stats().spent, scene.budget.stats().reserved) == (amount, 0)

        played(play)


def test_a_missing_figure_that_makes_nothing_dearer_is_no_missing_usage() -> None:
    async def play() -> None:
        scene = Scene(counted("42", prompt_tokens=30, completion_tokens=7))
        answer = await scene.asker.ask(scene.question)
        assert (answer.cost, answer.attempts) == (COST, "ok")
        dear = Scene(
            counted("42", prompt_tokens=30, completion_tokens=7),
            price=Price(input=10, output=100, cached_read=1, cached_write=12),
        )
        answer = await dear.asker.ask(dear.question)
        assert (answer.cost, answer.attempts) == (30 * 12 + 7 * 100, "unmetered")

    played(play)


@pytest.mark.parametrize("status", [408, 500, 502, 504, 520, 524])
def test_a_failure_that_may_have_been_billed_is_charged_before_it_is_tried_again(status: int) -> None:
    async def play() -> None:
        scene = Scene(refused(status), OK)
        answer = await scene.asker.ask(scene.question)
        assert answer.attempts == "server_error,ok"
        assert scene.script.durable_charges == [0, 1]
        assert scene.budget.stats().spent == scene.bound + COST

    played(play)


def test_a_provider_overrides_what_counts_as_billed() -> None:
    async def play() -> None:
        for response, billed, charged in (
            (refused(500), {"500": False}, False),
            (refused(503), {"503": True}, True),
            (failed("timeout"), {"timeout": False}, False),
        ):
            scene = Scene(response, OK, billed=billed)
            await scene.asker.ask(scene.question)
            assert bool(scene.disk.of("charge")) == charged
            assert scene.budget.stats().spent == COST + charged * scene.bound

    played(play)


FILTERED = refused(400, code="content_filter")
TOO_LONG = refused(400, "maximum context length is 8 tokens", code="context_length_exceeded")


def test_a_provider_may_bill_prompts_that_it_refuses() -> None:
    def check(case: tuple[HttpResponse, Mapping[str, bool], bool]) -> None:
        response, billed, charged = case

        async def play() -> None:
            scene = Scene(response, billed=billed)
            with pytest.raises(EpisodeRefused):
                await scene.asker.ask(scene.question)
            assert scene.budget.stats().spent == charged * scene.bound
            assert scene.disk.durable_rows == len(scene.disk.rows)

        played(play)

    azure = read_provider("azure").billed
    assert azure == read_provider("azure-responses").billed
    check_each(
        [
            ("filtered", (FILTERED, {}, False)),
            ("too long", (TOO_LONG, {}, False)),
            ("filtered, Azure", (FILTERED, azure, True)),
            ("too long, Azure", (TOO_LONG, azure, True)),
            ("invalid, Azure", (refused(400), azure, False)),
            ("another word for both", (FILTERED, {"400": True, "content_filter": False}, False)),
            ("all of a status", (FILTERED, {"400": True}, True)),
        ],
        check,
    )


@pytest.mark.parametrize(("counts", "lasts"), [(True, (290, 400)), (False, (0, 60))])
def test_cached_reads_may_stand_outside_the_limit_of_input_tokens(counts: bool, lasts: tuple[int, int]) -> None:
    """Twelve requests of 3,000 tokens at 6,000 a minute; all but 50 of each were read from the cache."""
    reply = replace(REPLY, usage=Usage(input=3_000, output=7, cached_read=2_950))

    async def play() -> None:
        body = SERVED_OPENAI_CHAT.encode_reply(reply)
        limits = Limits(input_tokens_per_minute=6_000)
        scene = Scene(replace(OK, body=body), limits=limits, cached_reads_count=counts)
        for _ in range(12):
            await scene.asker.ask(scene.question)
        assert lasts[0] <= asyncio.get_running_loop().time() <= lasts[1]

    played(play)
    assert not DIALECTS["anthropic_messages"].cached_reads_count


def test_a_proxy_that_wants_credentials_ends_the_lane_and_costs_nothing() -> None:
    async def play() -> None:
        scene = Scene(failed("connect", 407))
        with pytest.raises(LaneClosed, match="https_proxy"):
            await scene.asker.ask(scene.question)
        assert (scene.budget.stats().spent, scene.budget.stats().reserved) == (0, 0)
        assert not scene.disk.of("charge")

    played(play)


def test_a_reply_above_its_bound_is_returned_and_stops_the_lane() -> None:
    greedy = SERVED_OPENAI_CHAT.encode_reply(Reply(text="42", usage=Usage(input=30, output=10**6)))

    async def play() -> None:
        scene = Scene(HttpResponse(status=200, headers={}, body=greedy))
        answer = await scene.asker.ask(scene.question)
        assert answer.cost > scene.bound
        assert scene.budget.stats().spent == answer.cost
        with pytest.raises(LaneClosed, match="max_tokens"):
            await scene.asker.ask(scene.question)
        assert len(scene.script.sent) == 1
        assert scene.budget.stats().reserved == 0

    played(play)


@pytest.mark.parametrize(
    ("response", "ending"),
    [
        (refused(400, "too long", "context_length_exceeded"), "context_length"),
        (refused(400, "filtered", "content_filter"), "content_filter"),
        (refused(422, "nonsense"), "bad_request"),
    ],
)
def test_the_providers_refusal_of_a_request_ends_its_episode_alone(response: HttpResponse, ending: str) -> None:
    async def play() -> None:
        scene = Scene(response, OK)
        with pytest.raises(EpisodeRefused) as flaw:
            await scene.asker.ask(scene.question)
        assert flaw.value.kind == ending
        assert (await scene.asker.ask(scene.question)).attempts == "ok"
        assert scene.budget.stats().spent == COST

    played(play)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (refused(401, "bad key."), "ACME_KEY"),
        (refused(404, "no such model"), "'m'"),
        (refused(429, "pay", "insufficient_quota"), "credit"),
        (failed("tls"), "certificate"),
        (refused(307), "url"),
    ],
)
def test_what_no_episode_can_get_past_ends_the_lane_for_all(response: HttpResponse, words: str) -> None:
    async def play() -> None:
        scene = Scene(response)
        with pytest.raises(LaneClosed, match=words):
            await scene.asker.ask(scene.question)
        with pytest.raises(LaneClosed, match=words):
            await scene.asker.ask(scene.question)
        assert len(scene.script.sent) == 1
        assert scene.budget.stats().reserved == 0

    played(play)


def test_retries_end_and_say_what_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    # Alone in its lane it would count as an outage, which is probed instead.
    monkeypatch.setattr(health, "DOWN_FEW", ATTEMPTS + 1)

    async def play() -> None:
        scene = Scene(refused(500, "boom"))
        with pytest.raises(EpisodeUnavailable, match=f"{ATTEMPTS} attempts at step 3 failed .*boom"):
            await scene.asker.ask(scene.question)
        assert len(scene.script.sent) == ATTEMPTS
        assert (scene.budget.stats().reserved, scene.lane.stats().in_flight) == (0, 0)

    played(play)


def test_the_budget_stops_a_retry_that_does_not_fit_any_more() -> None:
    async def play() -> None:
        scene = Scene(failed("timeout"))
        limit = int(2.5 * scene.bound)
        scene = Scene(failed("timeout"), budget=limit)
        with pytest.raises(BudgetReached):
            await scene.asker.ask(scene.question)
        assert len(scene.script.sent) == 2
        assert scene.budget.stats().spent == 2 * scene.bound <= limit

    played(play)


def test_a_request_cancelled_in_flight_is_charged_and_leaves_nothing_else() -> None:
    async def play() -> None:
        scene = Scene(OK)
        task = asyncio.ensure_future(scene.asker.ask(scene.question))
        await asyncio.sleep(1.2)  # the lease takes a second
        assert len(scene.script.sent) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [(row.amount, row.reason) for row in scene.disk.of("charge")] == [(scene.bound, "cancelled")]
        assert (scene.budget.stats().reserved, scene.lane.stats().in_flight) == (0, 0)

    played(play)


def test_a_request_cancelled_in_the_line_costs_nothing() -> None:
    async def play() -> None:
        scene = Scene(OK, limits=Limits(requests_per_minute=1.0))
        task = asyncio.ensure_future(scene.asker.ask(scene.question))
        await asyncio.sleep(10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not scene.script.sent
        assert not scene.disk.of("charge")
        assert (scene.budget.stats().spent, scene.budget.stats().reserved) == (0, 0)
        assert scene.lane.stats().waiting == 0

    played(play)


def test_time_in_the_line_is_measured_apart() -> None:
    async def play() -> None:
        scene = Scene(OK, limits=Limits(requests_per_minute=6.0))
        answer = await scene.asker.ask(scene.question)
        # The lease that was written afterwards took a second, and is time of neither kind.
        assert (answer.queue_s, answer.latency_s) == (pytest.approx(10.0 / PACE), 0.5)
        assert scene.script.sent[0][0] == pytest.approx(10.0 / PACE + 1.0)

    played(play)


def test_whoever_stands_in_the_line_of_a_paused_lane_holds_no_money() -> None:
    async def play() -> None:
        scene = Scene(OK)
        scene.lane.pause(60.0)
        asking = asyncio.create_task(scene.asker.ask(scene.question))
        await asyncio.sleep(30.0)
        assert scene.budget.stats().reserved == 0
        assert (await asking).reply.text == "42"
        assert scene.script.sent[0][0] == pytest.approx(61.0)

    played(play)


def test_a_request_that_was_admitted_before_its_process_stood_still_waits_again() -> None:
    """Between its turn and its sending: when the process goes on, its share of the limits has run out."""

    async def play() -> None:
        scene, loop, lapsed = Scene(OK, price=FREE), asyncio.get_running_loop(), [False]
        lane = scene.lane
        lane.lapsed = lambda: lapsed[0]
        admit = lane._admit

        def stands_still(*given: Any) -> Any:
            lane._admit = admit  # type: ignore[method-assign]
            lapsed[0] = True
            return admit(*given)

        def is_heard() -> None:
            lapsed[0] = False
            lane.reshare({}, 1, 1.0)

        lane._admit = stands_still  # type: ignore[assignment]
        lane.pause(5.0)
        loop.call_at(60.0, is_heard)
        await scene.asker.ask(scene.question)
        assert [at for at, _, _ in scene.script.sent] == [60.0]
        assert lane.stats().in_flight == 0

    played(play)


def test_a_pause_that_begins_while_money_is_waited_for_is_obeyed() -> None:
    async def play() -> None:
        scene = Scene(OK)
        asking = asyncio.create_task(scene.asker.ask(scene.question))
        await asyncio.sleep(0.5)  # a lease is being written
        scene.lane.pause(60.0)
        answer = await asking
        assert scene.script.sent[0][0] == pytest.approx(60.0)
        assert (answer.queue_s, answer.latency_s) == (pytest.approx(59.0), 0.5)
        assert (scene.lane.stats().in_flight, scene.budget.stats().reserved) == (0, 0)

    played(play)


def test_a_free_model_needs_no_lease_and_writes_no_charge() -> None:
    async def play() -> None:
        scene = Scene(failed("timeout"), OK, budget=10**9, price=FREE)
        answer = await scene.asker.ask(scene.question)
        assert (answer.cost, answer.attempts) == (0, "timeout,ok")
        assert not scene.disk.rows

    played(play)


def test_tool_calls_and_their_results_join_the_chat_as_they_were() -> None:
    call = ToolCall(id="c1", name="f", arguments="{oops")
    body = SERVED_OPENAI_CHAT.encode_reply(Reply(calls=(call,), finish="tool_calls", usage=USAGE))

    async def play() -> None:
        scene = Scene(HttpResponse(status=200, headers={}, body=body))
        answer = await scene.asker.ask(scene.question)
        parts = list(scene.question.messages)
        scene.asker.join(parts, (answer.reply.message(), Message(role="tool", text="no", call_id="c1")))
        again = Question(episode="ep", step=4, seed=1, tools=scene.question.tools, messages=parts)
        await scene.asker.ask(again)
        _, request = SERVED_OPENAI_CHAT.decode_request(scene.script.sent[1][2])
        assert request.messages[1].calls == (call,)
        assert request.messages[2].call_id == "c1"

    played(play)


@pytest.mark.parametrize("cache_key", [False, True])
def test_requests_name_their_episode_where_the_provider_wants_it(cache_key: bool) -> None:
    async def main() -> bytes:
        scene = Scene(OK, cache_key=cache_key)
        await scene.asker.ask(scene.question)
        return scene.script.sent[0][2]

    body = orjson.loads(run_virtual(main()))
    assert body.pop("prompt_cache_key", None) == ("ep" if cache_key else None)
    assert (body["model"], body["seed"], len(body["messages"]), len(body["tools"])) == ("m", 99, 1, 1)


class Deposed:
    """The right to send, which another process has taken."""

    is_current = False

    def check(self) -> None:
        raise FencedError("Another process has taken it over.")


def test_who_may_have_been_taken_over_asks_before_it_sends_and_sends_nothing_then() -> None:
    async def play() -> None:
        scene = Scene(OK)
        scene.asker._permission = Deposed()
        with pytest.raises(FencedError):
            await scene.asker.ask(scene.question)
        assert scene.script.sent == []

    asyncio.run(play())


GENERATION = '<function=set_prices>{"prices": {"1": 2}}</function>'
FAILED_CALL = HttpResponse(
    status=400,
    headers={},
    body=orjson.dumps(
        {"error": {"message": "no", "code": "tool_use_failed", "failed_generation": GENERATION, "type": "invalid"}}
    ),
)
CUT_CALL = refused(400, "1 validation error for list[function-wrap[f()]]\n  Invalid JSON: EOF while parsing an object")


def seeds_of(scene: Scene) -> list[int]:
    return [orjson.loads(body)["seed"] for _, _, body in scene.script.sent]


@pytest.mark.parametrize("refusal", [FAILED_CALL, CUT_CALL])
def test_a_call_that_the_provider_could_not_read_is_drawn_again(refusal: HttpResponse) -> None:
    async def play() -> None:
        scene = Scene(refusal, refusal, OK)
        answer = await scene.asker.ask(scene.question)
        assert (answer.reply, answer.cost, answer.attempts) == (REPLY, COST, "bad_call,bad_call,ok")
        assert len(set(seeds_of(scene))) == 3
        charges = scene.disk.of("charge")
        assert [row.reason for row in charges] == ["bad_call"] * 2
        assert scene.script.durable_charges == [0, 1, 2]
        assert scene.budget.stats().spent == COST + sum(row.amount for row in charges)

    played(play)


def test_a_call_that_no_draw_cures_is_the_models_malformed_one() -> None:
    async def play() -> None:
        scene = Scene(FAILED_CALL)
        answer = await scene.asker.ask(scene.question)
        (call,) = answer.reply.calls
        assert (call.name, orjson.loads(call.arguments)) == ("set_prices", [GENERATION])
        assert (answer.reply.finish, answer.cost, answer.attempts) == (
            "malformed_call",
            0,
            "bad_call,bad_call,bad_call",
        )
        assert len(scene.script.sent) == len(scene.disk.of("charge")) == DRAWS
        assert scene.budget.stats().reserved == 0
        again = await scene.asker.ask(scene.question)
        assert again.reply == answer.reply
        assert seeds_of(scene)[:DRAWS] == seeds_of(scene)[DRAWS:]

    played(play)


def test_an_agents_own_seed_stays_and_a_provider_that_bills_no_bad_call_charges_none() -> None:
    async def play() -> None:
        scene = Scene(CUT_CALL, sampling=replace(SAMPLING, seed=5), billed={"bad_call": False})
        answer = await scene.asker.ask(scene.question)
        assert seeds_of(scene) == [5] * DRAWS
        assert (scene.budget.stats().spent, scene.disk.of("charge")) == (0, [])
        assert [(call.name, call.arguments) for call in answer.reply.calls] == [("", '[""]')]

    played(play)


LONG = replace(REPLY, text="x" * 100_000)
"""More than 50 tokens of 128 bytes, and what is added to them."""


def long_reply(**fields: Any) -> HttpResponse:
    return replace(OK, body=SERVED_OPENAI_CHAT.encode_reply(replace(LONG, **fields)))


@pytest.mark.parametrize(
    "fields",
    [{}, {"text": "", "calls": (ToolCall(id="c", name="f", arguments='{"a":"' + "y" * 90_000 + '"}'),)}],
    ids=["text", "arguments"],
)
def test_a_reply_far_longer_than_max_tokens_is_unreadable_and_charged(fields: dict[str, Any]) -> None:
    async def play() -> None:
        scene = Scene(long_reply(**fields), OK)
        answer = await scene.asker.ask(scene.question)
        assert (answer.reply, answer.attempts) == (REPLY, "unreadable,ok")
        assert [row.amount for row in scene.disk.of("charge")] == [scene.bound]

    played(play)


def test_a_long_reply_within_its_tokens_is_accepted_and_one_beyond_its_bound_charged_in_full() -> None:
    async def play() -> None:
        scene = Scene(replace(OK, body=SERVED_OPENAI_CHAT.encode_reply(replace(REPLY, text=" " * 6_000))))
        assert (await scene.asker.ask(scene.question)).attempts == "ok"
        dear = Scene(long_reply(usage=Usage(input=30, output=25_000)))
        answer = await dear.asker.ask(dear.question)
        assert answer.cost == 30 * 10 + 25_000 * 100
        with pytest.raises(LaneClosed, match="more than the"):
            await dear.asker.ask(dear.question)

    played(play)


@pytest.mark.parametrize(("window", "sent"), [(None, 1), (1_000_000, 1), (5, 0)])
def test_what_cannot_fit_the_models_window_is_not_sent(window: int | None, sent: int) -> None:
    async def play() -> None:
        scene = Scene(OK, window=window)
        if sent:
            await scene.asker.ask(scene.question)
        else:
            with pytest.raises(EpisodeRefused, match="It was not sent") as caught:
                await scene.asker.ask(scene.question)
            assert caught.value.kind == "context_length"
        assert (len(scene.script.sent), scene.budget.stats().reserved) == (sent, 0)

    played(play)


def test_of_a_giant_only_its_opening_counts_as_usual() -> None:
    async def play() -> None:
        scene = Scene(OK, budget=10_000_000)
        messages = list(scene.question.messages)
        scene.asker.join(messages, [Message(role="user", text="x" * 2_000_000)])
        giant = Question(episode="ep", step=4, seed=9, tools=scene.question.tools, messages=messages)
        opening = Question(episode="ep", step=0, seed=9, tools=scene.question.tools, messages=messages[1:])
        for question in (giant, opening):
            with pytest.raises(RequestTooLarge):
                await scene.asker.ask(question)
        await scene.asker.ask(scene.question)

    played(play)
