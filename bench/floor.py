"""The floor that evalkit is compared with: the same conversations by a bare aiohttp client.

It keeps no log, has no limits and no budget, and retries nothing. So what evalkit needs beyond it is the price of
these. It runs on uvloop, as evalkit does. Of a stream it reads the pieces and nothing in them: it knows what
`bench/stub.py` says.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import job
from bench.stub import reply

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": job.TOOL_NAME,
            "description": job.TOOL_DESCRIPTION,
            "parameters": job.TOOL_PARAMETERS,
        },
    }
]
HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer none"}


async def main() -> None:
    """Hold all conversations; report how many were answered."""
    numbers = iter(range(job.EPISODES))
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        job.start()
        async with asyncio.TaskGroup() as group:
            players = [group.create_task(_play(session, numbers)) for _ in range(min(job.CONC, job.EPISODES))]
        job.report(sum(player.result() for player in players))


async def _play(session: aiohttp.ClientSession, numbers: Iterator[int]) -> int:
    answered = 0
    for number in numbers:
        text = await _converse(session, number)
        answered += "42" in text
    return answered


async def _converse(session: aiohttp.ClientSession, number: int) -> str:
    """The text that ends one conversation."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": job.SYSTEM},
        {"role": "user", "content": job.prompt(number)},
    ]
    while True:
        asked = {"model": job.MODEL, "messages": messages, "tools": TOOLS}
        body = orjson.dumps({"stream": True, **asked} if job.STREAM else asked)
        async with session.post(f"{job.BASE_URL}/chat/completions", data=body, headers=HEADERS) as response:
            if job.STREAM:
                while await response.content.readany():
                    pass
                message = reply(len(messages) // 2 - 1, last=len(messages) // 2 == job.TURNS, words=job.EVENTS)
            else:
                message = orjson.loads(await response.read())["choices"][0]["message"]
        messages.append(message)
        calls = message.get("tool_calls")
        if not calls:
            return str(message["content"])
        for call in calls:
            orjson.loads(call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": job.TOOL_TEXT})


if __name__ == "__main__":
    uvloop.run(main())
