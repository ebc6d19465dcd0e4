"""Six agents as code, from the plainest to those with several models. `docs/agents.md` explains them.

evalkit run sweep.toml        # in this folder
"""

import asyncio

import evalkit
from evalkit import Message, Reply, Seat


def ask(text: str) -> Message:
    """What a user says."""
    return Message(role="user", text=text)


def shown(reply: Reply) -> str:
    """A reply in words, for another model to read."""
    calls = [f"{call.name}({call.arguments})" for call in reply.calls]
    return "\n".join([reply.text, *calls]).strip() or "(nothing)"


@evalkit.agent(version=1)
async def plain(seat: Seat) -> None:
    """What a model alone does, row for row."""
    while not seat.ending:
        await seat.act(await seat.ask())


@evalkit.agent(version=1)
async def react(seat: Seat) -> None:
    """Think in words before each act, and keep the thoughts on a scratchpad of bounded length."""
    pad: list[str] = []
    while not seat.ending:
        notes = "\n".join(pad[-8:]) or "(empty)"
        thought = await seat.ask([*seat.messages, ask(f"Your scratchpad:\n{notes}\nThink: what next?")], tools=())
        pad.append(f"Step {seat.step}: {thought.text[:500]}")
        await seat.act(await seat.ask([*seat.messages, ask(f"Your thought:\n{thought.text}\nNow act.")]))


@evalkit.agent(version=1)
async def reflection(seat: Seat) -> None:
    """Act once a period has passed by what was learned in the one before."""
    lesson, period, told = "", seat.period, ""
    while not seat.ending:
        if seat.period != period:
            period = seat.period
            lesson = (await seat.ask([ask(f"You did this:\n{told}\nWhat will you do otherwise?")], tools=())).text
        reply = await seat.ask([*seat.messages, ask(f"Your lesson: {lesson}")] if lesson else None)
        told = shown(reply)
        await seat.act(reply)


@evalkit.agent(version=1, models=("planner", "executor"))
async def planner_executor(seat: Seat) -> None:
    """One model plans each period, another carries the plan out."""
    plan, period = "", -1
    while not seat.ending:
        if seat.period != period:
            period = seat.period
            plan = (await seat.ask([*seat.messages, ask("Plan this period.")], model="planner", tools=())).text
        await seat.act(await seat.ask([*seat.messages, ask(f"The plan:\n{plan}\nCarry it out.")], model="executor"))


@evalkit.agent(version=1, models=("main", "judge"), parallel=3)
async def best_of(seat: Seat) -> None:
    """Drafts side by side, of which a judge chooses one."""
    while not seat.ending:
        forks = [seat.fork(f"draft-{number}") for number in range(min(3, seat.params.get("n", 3)))]
        drafts = await asyncio.gather(*(fork.ask() for fork in forks))
        listed = "\n".join(f"{number}: {shown(draft)}" for number, draft in enumerate(drafts))
        question = ask(f"Which of these is best? Answer with its number.\n{listed}")
        verdict = await seat.ask([question], model="judge", tools=(), sampling={"temperature": 0})
        digits = [int(letter) for letter in verdict.text if letter in "0123456789"]
        await seat.act(drafts[digits[0] if digits and digits[0] < len(drafts) else 0])


@evalkit.agent(version=1)
async def retry_invalid(seat: Seat) -> None:
    """Have a reply that calls no tool on offer written again, up to twice, before the environment sees it."""
    while not seat.ending:
        reply = await seat.ask()
        offered = {tool.name for tool in seat.tools}
        for _ in range(2):
            if reply.calls and all(call.name in offered for call in reply.calls):
                break
            again = ask(f"That called none of {sorted(offered)}. Call one.")
            reply = await seat.ask([*seat.messages, Message(role="assistant", text=shown(reply)), again])
        await seat.act(reply)
