"""`evalkit play`: episodes played by a person, in the terminal or in a browser, and kept in a run."""

import argparse
import asyncio
from contextlib import AsyncExitStack

from evalkit.cli.play.screens import ask, closing, hello, show
from evalkit.doors.recorded import Outsider, recorded
from evalkit.doors.sitting import Sitting
from evalkit.errors import UsageError


def play(args: argparse.Namespace) -> int:
    """In the terminal, ask for reply after reply until the episode ends or the person leaves; 0 if it ended, else 3.
    With `--page`, serve until a signal."""
    if args.port is not None and not args.page:
        raise UsageError("--port: is an option of --page.")
    if args.port is not None and not 0 <= args.port <= 65535:
        raise UsageError(f"--port: must be 0 to 65535, not {args.port}.")
    outsider = Outsider(
        run=args.run,
        agent=args.agent,
        policy="human",
        suite=args.suite,
        prompts=args.prompts,
        replicates=args.replicate + 1,
    )
    return _in_browser(outsider, args) if args.page else _in_terminal(outsider, args)


def _in_browser(outsider: Outsider, args: argparse.Namespace) -> int:
    from evalkit.doors.page.server import serve_page
    from evalkit.doors.page.showing import address_of

    async def serve() -> None:
        async with recorded(outsider) as record:
            first = address_of(record.episode(args.instance, args.replicate)) if args.instance else ""
            await serve_page(record, port=args.port or 0, ready=_tell, first=first)

    asyncio.run(serve())
    return 0


def _tell(url: str) -> None:
    print(f"Play at {url} (Ctrl-C stops the server; every reply is kept)", flush=True)


def _in_terminal(outsider: Outsider, args: argparse.Namespace) -> int:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def begin() -> Sitting:
            record = await stack.enter_async_context(recorded(outsider))
            return await record.sit(args.instance, args.replicate)

        try:
            sitting = runner.run(begin())
            hello(sitting)
            while not sitting.game.ending:
                reply = ask(sitting.game)
                if reply is None:
                    break
                turn = runner.run(sitting.reply(reply))
                if turn is not None:
                    show(turn, sitting.game)
        finally:
            runner.run(stack.aclose())
    closing(sitting, f"evalkit play {args.suite} --instance {sitting.game.instance.id} --run {args.run}")
    return 0 if sitting.game.ending else 3
