import asyncio

from evalkit.client.ask import Question
from evalkit.client.outside import PolicyAsker
from evalkit.dialogue import Message, Reply, Request, Sampling, Tool
from evalkit.seeds import Stream

TOOL = Tool(name="f", description="", parameters={})


def dice(request: Request, draws: Stream) -> Reply:
    """Says what it saw, and a number drawn."""
    return Reply(text=f"{request.messages[-1].text} {len(request.tools)} {draws.below(10**6)}")


def asked(seed: int) -> tuple[str, int, str]:
    asker = PolicyAsker("dice", dice, Sampling())
    parts: list[Message] = []
    asker.join(parts, (Message(role="user", text="hello"),))
    question = Question(episode="e", step=0, seed=seed, tools=asker.encode_tools((TOOL,)), messages=parts)
    answer = asyncio.run(asker.ask(question))
    return answer.reply.text, answer.cost, answer.attempts


def test_a_policy_answers_the_same_question_the_same_way_and_for_nothing() -> None:
    assert asked(7) == asked(7)
    assert asked(7)[0] != asked(8)[0]
    assert asked(7)[0].startswith("hello 1 ")
    assert asked(7)[1:] == (0, "ok")
    assert PolicyAsker.free


def test_its_reply_is_cut_like_a_providers() -> None:
    def talk(request: Request, draws: Stream) -> Reply:
        return Reply(text="word " * 1_000)

    asker = PolicyAsker("talk", talk, Sampling(max_tokens=5))
    question = Question(episode="e", step=0, seed=1, tools=(), messages=[Message(role="user", text="x")])
    assert asyncio.run(asker.ask(question)).reply.finish == "length"
