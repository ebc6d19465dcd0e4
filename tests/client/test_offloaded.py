"""Large bodies are understood in a thread, and the loop goes on meanwhile."""

import asyncio
import threading
from typing import Any

import pytest

from evalkit.client.ask import Answer
from evalkit.client.streaming import offloaded
from evalkit.dialogue import Reply, Usage
from evalkit.serve.openai_chat import SERVED_OPENAI_CHAT
from evalkit.wire.http import HttpResponse
from evalkit.wire.lenient import ON_LOOP_BYTES
from tests.client.test_client import Scene
from tests.support.patience import PATIENCE_S

LARGE = HttpResponse(
    status=200,
    headers={},
    body=SERVED_OPENAI_CHAT.encode_reply(Reply(text="x" * ON_LOOP_BYTES, usage=Usage(input=30, output=7))),
)


@pytest.mark.parametrize(("size", "elsewhere"), [(0, False), (ON_LOOP_BYTES, False), (ON_LOOP_BYTES + 1, True)])
def test_work_on_many_bytes_is_done_in_a_thread(size: int, elsewhere: bool) -> None:
    async def main() -> bool:
        return await offloaded(threading.get_ident, size) != threading.get_ident()

    assert asyncio.run(main()) is elsewhere


class Slow:
    """Understands once it may."""

    def __init__(self, scene: Scene) -> None:
        scene.script.latency_s = 0.0
        self.begun, self.may = threading.Event(), threading.Event()
        self._understand = scene.asker._understand
        scene.asker._understand = self

    def __call__(self, response: HttpResponse) -> Any:
        self.begun.set()
        assert self.may.wait(PATIENCE_S), "the loop stood still"
        return self._understand(response)

    async def begin(self, scene: Scene) -> "asyncio.Task[Answer]":
        asking = asyncio.create_task(scene.asker.ask(scene.question))
        assert await asyncio.to_thread(self.begun.wait, PATIENCE_S)
        return asking


def test_the_loop_goes_on_while_a_large_reply_is_understood() -> None:
    async def main() -> Answer:
        scene = Scene(LARGE)
        slow = Slow(scene)
        asking = await slow.begin(scene)
        slow.may.set()
        return await asking

    assert asyncio.run(main()).reply.text == "x" * ON_LOOP_BYTES


def test_a_reply_that_is_cancelled_before_it_is_understood_is_charged_at_its_bound() -> None:
    async def main() -> None:
        scene = Scene(LARGE)
        slow = Slow(scene)
        asking = await slow.begin(scene)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        slow.may.set()
        charged = scene.disk.of("charge")
        assert [(row.reason, row.amount) for row in charged] == [("cancelled", scene.bound)]
        assert scene.lane.stats().in_flight == 0

    asyncio.run(main())
