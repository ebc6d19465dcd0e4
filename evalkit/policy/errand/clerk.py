"""A clerk who does errands in a fixed form: what `plan` plays in a model's place, and what tries the machinery out.

It decides nothing: every wish is sound, every plan's paths are its lines that hold an arrow. One reply serves all kinds
of errands, since nothing but a prompt pack's wording says which kind a request is of.
"""

from evalkit.dialogue import Reply, Request
from evalkit.seeds import Stream

ARROWS = ("->", "→")


def clerk(request: Request, draws: Stream) -> Reply:
    """A reply that reads as a count, as the verdict `no conflict`, and as a short text."""
    del draws
    text = request.messages[-1].text if request.messages else ""
    paths = sum(any(arrow in line for arrow in ARROWS) for line in text.splitlines())
    return Reply(text=f"**{paths}**\n**no conflict**\nI would like all that is listed, please.")
