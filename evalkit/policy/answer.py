"""One reply of a policy to one request: the same for the simulated provider and for a policy in this process.

The stream comes from the request's seed and the policy's name, and a reply longer than the request's `max_tokens` is
cut as a provider would cut it; so a sweep over HTTP and the same sweep in this process give the same replies.
"""

from evalkit.dialogue import Reply, Request
from evalkit.policy.conversation import PolicyFn
from evalkit.seeds import Stream
from evalkit.wire.tokens import cut


def answer(name: str, play: PolicyFn, request: Request) -> Reply:
    """What the policy of that name, played by `play`, says to the request."""
    return cut(play(request, Stream(request.seed, "policy", name)), request.sampling.max_tokens)
