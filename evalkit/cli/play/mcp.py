"""`evalkit mcp`: an episode as a server of the Model Context Protocol."""

import argparse
import asyncio
import sys
from typing import Any

from evalkit.api.environments import suite
from evalkit.api.games import game
from evalkit.doors.sitting import Sitting
from evalkit.errors import UsageError


def mcp(args: argparse.Namespace) -> int:
    """Serve until the client has gone, or until a signal."""
    from evalkit.doors.mcp import serve_http, serve_stdio

    if args.http is not None and not 0 <= args.http <= 65535:
        raise UsageError(f"--http: must be 0 to 65535, not {args.http}.")
    asyncio.run(_serve(args, serve_stdio, serve_http))
    return 0


async def _serve(args: argparse.Namespace, stdio: Any, http: Any) -> None:
    async def begin(instance: str, replicate: int) -> Sitting:
        del replicate
        chosen = suite(args.suite, instances=[instance] if instance else ())[0]
        return Sitting(game(chosen, prompts=args.prompts))

    if args.http is None:
        await stdio(await begin(args.instance, args.replicate))
    else:
        await http(begin, port=args.http, ready=_tell, instance=args.instance, replicate=args.replicate)


def _tell(url: str) -> None:
    print(
        f"An episode at {url}\nPOST to /episodes begins another (Ctrl-C stops the server)", file=sys.stderr, flush=True
    )
