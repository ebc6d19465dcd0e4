"""`evalkit mcp`: an episode as a server of the Model Context Protocol; `mcp end` ends one whose client is gone."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from evalkit.api.games import game, suite
from evalkit.errors import QUIT, UsageError
from evalkit.integrations.play_session import PlaySession
from evalkit.integrations.recorded import Outsider, end, recorded
from evalkit.playing.specs import run_directory

END = "end"
"""The word in the place of a suite's name that ends an episode."""


def mcp(args: argparse.Namespace) -> int:
    """Serve until the client has gone, or until a signal; or end an episode of a run."""
    if args.suite == END:
        return _end(args)
    if args.more:
        raise UsageError(
            f"mcp: {args.more[0]!r} is too much. Write `evalkit mcp SUITE`, or `evalkit mcp end RUN EPISODE`."
        )
    from evalkit.integrations.mcp import serve_http, serve_stdio

    if args.http is not None and not 0 <= args.http <= 65535:
        raise UsageError(f"--http: must be 0 to 65535, not {args.http}.")

    async def serve(begin: Callable[[str, int], Awaitable[PlaySession]]) -> None:
        if args.http is None:
            await serve_stdio(await begin(args.instance, 0))
        else:
            await serve_http(begin, port=args.http, ready=_tell, instance=args.instance)

    asyncio.run(_recorded(args, serve) if args.run else serve(_only_played(args)))
    return 0


def _end(args: argparse.Namespace) -> int:
    if len(args.more) != 2:
        raise UsageError("mcp: write `evalkit mcp end RUN EPISODE`, the episode as `evalkit show` takes it.")
    run, episode = args.more
    directory = run_directory(run)
    place = asyncio.run(end(directory.resolve(), episode, "" if args.prompts == "standard" else args.prompts))
    print(f"{directory}: {place} has ended as `{QUIT}`.")
    return 0


def _only_played(args: argparse.Namespace) -> Callable[[str, int], Awaitable[PlaySession]]:
    async def begin(instance: str, replicate: int) -> PlaySession:
        del replicate
        chosen = suite(args.suite, instances=[instance] if instance else ())[0]
        return PlaySession(game(chosen, prompts=args.prompts))

    return begin


async def _recorded(args: argparse.Namespace, serve: Any) -> None:
    outsider = Outsider(
        run=args.run,
        agent=args.agent,
        policy="outside",
        suite=args.suite,
        prompts=args.prompts,
        replicates=1,
    )
    async with recorded(outsider) as record:
        await serve(record.sit)


def _tell(url: str) -> None:
    print(
        f"An episode at {url}\nPOST to /episodes begins another (Ctrl-C stops the server)", file=sys.stderr, flush=True
    )
