"""Policies: one that plays any environment, and one for an environment of evalkit's."""

from evalkit import Reply
from evalkit.extend import Policy, Request, Stream, calling, offered


def first_tool(request: Request, draws: Stream) -> Reply:
    """Call the first tool, whatever it is."""
    del draws
    return calling(request, [(request.tools[0].name, "{}")]) if request.tools else Reply(text="No tools.")


def idle(request: Request, draws: Stream) -> Reply:
    """Say something, and call nothing."""
    del request, draws
    return Reply(text="Let me think.")


FIRST_TOOL = Policy(help="calls the first tool that is offered", reply=first_tool)
IDLE = Policy(
    help="calls nothing",
    reply=idle,
    recognises=lambda request: offered(request, "submit_assignment") is not None,
    acts_with="submit_assignment",
)
