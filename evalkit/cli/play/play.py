"""`evalkit play`: an episode played by a person in the terminal, and kept in a run."""

import argparse
import asyncio
from contextlib import AsyncExitStack

from evalkit.cli.play.screens import ask, closing, hello, show
from evalkit.doors.recorded import Outsider, recorded
from evalkit.doors.sitting import Sitting


def play(args: argparse.Namespace) -> int:
    """Ask for reply after reply until the episode ends or the person leaves; 0 if it ended, else 3."""
    outsider = Outsider(
        run=args.run,
        agent=args.agent,
        policy="human",
        suite=args.suite,
        prompts=args.prompts,
        replicates=1,
    )
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def begin() -> Sitting:
            record = await stack.enter_async_context(recorded(outsider))
            return await record.sit(args.instance, 0)

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
