"""A worker that is called, without Ray: calls that are repeated, askers that give up, a coordinator that stays away."""

import asyncio
from pathlib import Path

import pytest

from evalkit.machines.messages import REFUSED, Bye, Gone, Hello, Reply, WorkGrant, decode_question, encode
from evalkit.machines.process import CalledTransport, RayWorker

HELLO, BYE = Hello(evalkit="1", log=2, writer="one", manifest=""), Bye(writer="one")


def reply(valid_s: float) -> bytes:
    return encode(WorkGrant(valid_s=valid_s))


def said(answer: Reply) -> float:
    assert isinstance(answer, WorkGrant)
    return answer.valid_s


def test_a_call_that_is_repeated_gives_the_same_question_and_answers_once() -> None:
    async def talk() -> None:
        transport = CalledTransport(60)
        first = asyncio.create_task(transport.ask(HELLO))
        assert decode_question(await transport.turn(0, b"")) == HELLO
        assert decode_question(await transport.turn(0, b"")) == HELLO
        lost = asyncio.create_task(transport.turn(1, reply(7)))
        assert said(await first) == 7
        lost.cancel()
        again = asyncio.create_task(transport.turn(1, reply(7)))
        second = asyncio.create_task(transport.ask(BYE))
        assert decode_question(await again) == BYE
        assert not second.done(), "the answer to the first question is none to the second"
        transport_ends = asyncio.create_task(transport.turn(2, reply(8)))
        assert said(await second) == 8
        transport_ends.cancel()

    asyncio.run(talk())


def test_an_asker_that_gives_up_leaves_its_answer_to_nobody() -> None:
    async def talk() -> None:
        transport = CalledTransport(60)
        given_up = asyncio.create_task(transport.ask(HELLO))
        await transport.turn(0, b"")
        given_up.cancel()
        await asyncio.wait([given_up])
        asked = asyncio.create_task(transport.ask(BYE))
        assert decode_question(await transport.turn(1, reply(1))) == BYE
        last = asyncio.create_task(transport.turn(2, reply(2)))
        assert said(await asked) == 2
        last.cancel()

    asyncio.run(talk())


def test_a_coordinator_that_comes_no_more_is_gone() -> None:
    with pytest.raises(Gone, match="no answer for 0 s"):
        asyncio.run(CalledTransport(0.05).ask(HELLO))


def test_a_node_that_does_not_see_the_run_refuses(tmp_path: Path) -> None:
    answer = asyncio.run(RayWorker(str(tmp_path / "run"), 60).turn(0, b""))
    assert isinstance(answer, tuple)
    code, words = answer
    assert code == REFUSED
    assert f"There is no run at {tmp_path / 'run'} on " in words
    assert "a disk that they share" in words
