"""The test double behind HTTP: in this process, in one of its own, or where a run would start evalkit's own."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import orjson

from evalkit.errors import EvalkitError
from evalkit.serve.launch import child
from evalkit.serve.server import listening, serve
from evalkit.spec.model import Provider
from tests.provider.double import Double
from tests.provider.options import DoubleOptions, options_from, options_of

_PROJECT = Path(__file__).resolve().parents[2]
_PROGRAM = (
    f"import sys; sys.path.insert(0, {str(_PROJECT)!r}); from tests.provider.serving import main; sys.exit(main())"
)


@contextlib.asynccontextmanager
async def serving(options: DoubleOptions) -> AsyncIterator[tuple[str, Double]]:
    """The double, listening as long as the block lasts: gives its base URL and its state."""
    double = Double(options, asyncio.get_running_loop().time(), time.time())
    async with listening(double) as url:
        yield url, double


@contextlib.contextmanager
def simulated(values: Mapping[str, Any]) -> Iterator[str]:
    """The double as a child process for the length of the block; gives its base URL."""
    options_from(values)
    with child([sys.executable, "-c", _PROGRAM, orjson.dumps(values).decode()]) as url:
        yield url


@contextlib.contextmanager
def in_place() -> Iterator[None]:
    """Have the double started wherever evalkit would start its own simulated provider, in any dialect."""

    def launched(provider: Provider, **more: str) -> contextlib.AbstractContextManager[str]:
        return simulated({**more, **(provider.simulate or {})})

    with (
        mock.patch("evalkit.serve.launch.launched", launched),
        mock.patch("evalkit.serve.options.options_of", options_of),
    ):
        yield


def main() -> int:
    """A double from options as JSON, until standard input ends."""
    try:
        options = options_from(orjson.loads(sys.argv[1]))
        serve(lambda now_s: Double(options, now_s, time.time()), until_eof=True)
    except EvalkitError as flaw:
        print(flaw, file=sys.stderr)
        return 2
    return 0
