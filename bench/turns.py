"""What a turn costs this process late in a chat and early in it: a request's CPU must not grow with the history.

The path is that of a sweep from the observation to the log's row: the message is encoded once, the body spliced, the
lane and the budget asked, the reply decoded, the environment moved, the row made. Around it nothing: the transport is a
function that answers at once and the log keeps nothing, so that no constant cost hides what grows.

A body has to be copied and sent, and that does grow. So the time of one plain join of the very parts a dialect splices
is measured in the same run and taken off: what is left is the promise. The ratio with it is shown beside.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

from bench.lookup import LOOKUP, Instance
from evalkit.client.ask import Answer, Question
from evalkit.client.budget import Budget
from evalkit.client.client import ModelAsker
from evalkit.client.lanes.lane import Lane
from evalkit.client.request import RequestTemplate
from evalkit.dialogue import Reply, Tool, ToolCall, Usage
from evalkit.engine.episode import LaneContext, play
from evalkit.engine.options import Stop
from evalkit.engine.resume import Holdings
from evalkit.engine.universe import AgentSetup, PlannedEpisode
from evalkit.envs.environment import Kit, Pack
from evalkit.frozen.instances import ManifestInstance
from evalkit.frozen.manifest import ManifestAgent, ManifestSuite
from evalkit.money import PicoUsd, Price
from evalkit.spec.model import Limits, Model, Provider
from evalkit.store.files.record import LedgerRecord, StepRecord
from evalkit.wire.dialect import Dialect
from evalkit.wire.http import HttpResponse
from evalkit.wire.table import DIALECTS
from tests.provider.dialects import SERVED_DIALECTS

SHORT, LONG = 2, 200
"""Turns behind the request that is measured."""
AROUND = 5
"""Requests measured at each length."""
EPISODES = 60
MOST = 1.2
"""Times the CPU of a turn after `SHORT`, copying aside."""
TEXT = "The shelf holds 17 boxes; two of them are open. " * 8
PRICE = Price(input=10**6, output=4 * 10**6, cached_read=10**5, cached_write=10**6)
WIDE = Limits(requests_per_minute=6e7, input_tokens_per_minute=6e10, output_tokens_per_minute=6e10)
TOOL = Tool(name="lookup", description="Look a key up.", parameters={"type": "object", "properties": {}})
SPOTS = [range(length, length + AROUND) for length in (SHORT, LONG)]


def main() -> bool:
    """Measure and print all dialects; whether every promise is kept."""
    print(f"{'CPU of a turn':24}{f'after {SHORT}':>12}{f'after {LONG}':>12}{'of it copy':>12}", end="")
    print(f"{'ratio':>8}{'less copy':>12}{'promise':>12}")
    kept = [_line(dialect) for dialect in DIALECTS.values()]
    return all(kept)


def _line(dialect: Dialect) -> bool:
    wire = _Wire(dialect)
    asyncio.run(_play(dialect, wire))
    early, late = (median(found) for found in wire.turns)
    copied = [median(found) for found in wire.copies]
    whole, net = late / early, (late - copied[1]) / (early - copied[0])
    print(f"{dialect.name:24}{early:9.1f} us{late:9.1f} us{copied[1]:9.1f} us", end="")
    print(f"{whole:8.2f}{net:12.2f}{f'<= {MOST}':>12}")
    return net <= MOST


class _Wire:
    """A transport that answers at once, and takes the time between one request and the next."""

    def __init__(self, dialect: Dialect) -> None:
        call = ToolCall(id="c1", name="lookup", arguments='{"key": 1}')
        usage = Usage(input=900, output=30)
        encode_reply = SERVED_DIALECTS[dialect.name].encode_reply
        self._body = encode_reply(
            Reply(text="I look.", calls=(call,), finish="tool_calls", usage=usage, model="m", response_id="r")
        )
        self._last = encode_reply(Reply(text="42", usage=usage, model="m", response_id="r"))
        self._left_ns = 0
        self.turns: tuple[list[float], list[float]] = ([], [])
        """Microseconds at each of `SPOTS`."""
        self.copies: tuple[list[float], list[float]] = ([], [])
        """Microseconds that one plain join of the body's parts took there."""
        self.parts: Sequence[bytes] = ()
        """Of the body that comes next."""

    async def send(self, body: bytes, request_id: str) -> HttpResponse:
        """A call, until the last turn that is looked at is over."""
        now = time.thread_time_ns()
        del body
        turn = int(request_id.split("/")[1])
        for spot, turns, copies in zip(SPOTS, self.turns, self.copies, strict=True):
            if turn - 1 in spot:
                turns.append((now - self._left_ns) * 1e-3)
                began = time.thread_time_ns()
                b",".join(self.parts)
                copies.append((time.thread_time_ns() - began) * 1e-3)
        answer = self._last if turn == SPOTS[-1].stop else self._body
        response = HttpResponse(status=200, headers={}, body=answer)
        self._left_ns = time.thread_time_ns()
        return response


class _Watched(ModelAsker):
    """Shows the transport of what parts a body was spliced."""

    def __init__(self, template: RequestTemplate, *, lane: Lane, budget: Budget, transport: _Wire) -> None:
        super().__init__(template, lane=lane, budget=budget, transport=transport)
        self._wire = transport

    async def ask(self, question: Question) -> Answer:
        self._wire.parts = question.messages
        return await super().ask(question)


class _Nothing:
    """A log, and a ledger, that keep nothing."""

    def append(self, record: StepRecord) -> None:
        """Take a row."""

    def enter(self, record: LedgerRecord, then: Callable[[], None] | None = None) -> None:
        """Take a row."""
        del record
        if then is not None:
            then()

    async def durable(self) -> None:
        """At once."""

    async def room(self) -> None:
        """At once."""

    def event(self, kind: str, **facts: object) -> None:
        """Nothing goes wrong here."""
        raise AssertionError((kind, facts))


class _Given(PlannedEpisode, frozen=True, kw_only=True):
    """An episode whose instance is at hand."""

    @property
    def instance(self) -> Instance:
        found: Instance = self.target.line["instance"]
        return found


async def _play(dialect: Dialect, wire: _Wire) -> None:
    nothing = _Nothing()
    template = RequestTemplate(
        agent="model",
        provider=Provider(name="null", dialect=dialect.name),
        model=Model(name="m", price=None, limits=Limits()),
        dialect=dialect,
        sampling=LOOKUP.defaults,
        price=PRICE,
    )
    asker = _Watched(
        template,
        lane=Lane("null/m", limits=WIDE, width=1),
        budget=Budget(budget=None, spent=PicoUsd(0), ledger=nothing, session="bench"),
        transport=wire,
    )
    context = LaneContext(log=nothing, worker="bench", stop=Stop())
    seats = Holdings(episodes={}, rows={})
    for number in range(EPISODES):
        assert await play(_episode(number), seats.activate, asker, context) == "answered"


def _episode(number: int) -> PlannedEpisode:
    agent = ManifestAgent(
        name="model",
        identity="model",
        lane="null/m",
        provider="null",
        model="m",
        policy="",
        script="",
        overrides={},
        sampling={},
        packs={},
        pack="none",
        notes=False,
        tags=(),
    )
    kit = Kit(pack=Pack(name="none", digest="", texts={}))
    cell = AgentSetup(agent=agent, env=LOOKUP, kit=kit, sampling=LOOKUP.defaults, key="")
    suite = ManifestSuite(
        name="lookup", base="lookup", axes={}, environment="lookup", environment_version=1, digest="", instances=()
    )
    instance = Instance(system=TEXT, prompt=TEXT, tool=TOOL, result=TEXT)
    target = ManifestInstance(id=str(number), digest=str(number), stratum="", line={"instance": instance})
    return _Given(
        id=str(number),
        cell=cell,
        suite=suite,
        target=target,
        replicate=0,
        index=0,
        cell_key=(cell.agent.name, suite.name),
    )


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
