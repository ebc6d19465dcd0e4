"""The policies that do errands, by name.

It decides nothing: every wish is sound, every plan's paths are its lines that hold an arrow. One reply serves all kinds
of errands, since nothing but a prompt pack's wording says which kind a request is of.
"""

from collections.abc import Mapping

from evalkit.dialogue import Reply, Request
from evalkit.policy.conversation import Policy
from evalkit.seeds import Stream

ARROWS = ("->", "→")


def clerk(request: Request, draws: Stream) -> Reply:
    """A reply that reads as a count, as the verdict `no conflict`, and as a short text."""
    del draws
    text = request.messages[-1].text if request.messages else ""
    paths = sum(any(arrow in line for arrow in ARROWS) for line in text.splitlines())
    return Reply(text=f"**{paths}**\n**no conflict**\nI would like all that is listed, please.")


POLICIES: Mapping[str, Policy] = {
    "clerk": Policy(
        help="answers errands in a fixed form: no wishes conflict, and every line with an arrow is a path", reply=clerk
    ),
}
