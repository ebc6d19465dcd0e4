"""Replies that show whether their settings were heeded: what `heeds` makes of a policy's reply.

A policy decides from the conversation; most settings leave it as it is. With `heeds`, the named settings show in every
reply, and the others are ignored as by a provider that accepts a field and does nothing with it.
"""

from dataclasses import replace

from evalkit.dialogue import Reply, Request
from evalkit.policy.conversation import calling
from evalkit.seeds import Stream
from evalkit.wire.tokens import BYTES_PER_TOKEN

SETTINGS = ("effort", "seed", "parallel_calls", "tool_choice")
THOUGHTS = {"minimal": 10, "low": 50, "high": 400}
"""Tokens of reasoning by effort; any other, and effort that is ignored, brings `USUAL`."""
USUAL = 150


def heeding(request: Request, heeds: frozenset[str], number: int) -> Reply:
    """A reply whose words depend on the seed, whose reasoning on the effort and whose calls on the other two.

    `number` of the request: the words where the seed is ignored.
    """
    sampling = request.sampling
    draws = Stream(request.seed if "seed" in heeds else number, "heeding")
    words = " ".join(f"{draws.word():016x}" for _ in range(4))
    calls = len(request.tools)
    if "parallel_calls" in heeds and sampling.parallel_calls is False:
        calls = min(calls, 1)
    if "tool_choice" in heeds and sampling.tool_choice == "none":
        calls = 0
    effort = THOUGHTS.get(sampling.effort, USUAL) if "effort" in heeds else USUAL
    reply = calling(request, [(tool.name, "{}") for tool in request.tools[:calls]], text=words)
    return replace(reply, reasoning="thought " * (effort * BYTES_PER_TOKEN // 8))
