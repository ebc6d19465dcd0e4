"""A run of all four environments with an agent that answers with markup, served and read as its pages need it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from evalkit.view.reading import Reading, completed, read_run
from evalkit.view.run_cache import RunCache
from evalkit.view.server import serving
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go

HOSTILE = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'> \\u202egnp.exe </script> {{ 7 * 7 }}"
)

SPEC = f"""
replicates = 1
[[agents]]
policy = "oracle"
[[agents]]
policy = "noisy"
[[agents]]
name = "hostile"
policy = "scripted"
[agents.params]
replies = ["{HOSTILE}", {{ text = "{HOSTILE}", calls = [{{ name = "<i>x</i>", arguments = "{{not <b>json" }}] }}]
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3", "seed-6"]
vary = {{ periods = [3] }}
[[suites]]
name = "procurement/basic"
instances = ["seed-0"]
vary = {{ periods = [3] }}
[[suites]]
name = "pricing/basic"
instances = ["seed-0"]
vary = {{ periods = [4] }}
[[suites]]
name = "costbench/basic"
"""


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shown")
    directory = folder / "runs" / "shown"
    outcome = go(resolved(folder, SPEC, "shown"), directory)
    assert outcome.remaining == 0, outcome.messages
    return directory


@pytest.fixture(scope="session")
def reading(run: Path) -> Reading:
    return completed(read_run(run))


@dataclass(frozen=True, slots=True)
class Said:
    """An answer of the server."""

    status: int
    text: str
    headers: dict[str, str] = field(repr=False)


Get = Callable[..., Awaitable[Said]]

MOST_READINGS = 20
"""A page shows two runs at most, each read in two parts."""


@asynccontextmanager
async def client(cache: RunCache) -> AsyncIterator[tuple[str, Get]]:
    """(the address of the served pages, a function that asks for a path; it waits while pages are computed)."""
    async with serving(cache) as url, aiohttp.ClientSession() as session:

        async def get(path: str, *, method: str = "GET", **headers: str) -> Said:
            for _ in range(MOST_READINGS):
                async with session.request(method, url + path, headers=headers) as answer:
                    said = Said(answer.status, await answer.text(), dict(answer.headers))
                if said.status != 202 and "Figures are being drawn" not in said.text:
                    return said
                await at_rest(cache)
            raise AssertionError(f"{path}: nothing is being read, and the page is still not whole")

        yield url, get


async def at_rest(cache: RunCache) -> None:
    """Wait until nothing is being read."""
    while cache.busy:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.01)


def ask(cache: RunCache, *paths: str) -> list[Said]:
    """What the server answers to these, one after another."""

    async def all_of_them() -> list[Said]:
        async with client(cache) as (_, get):
            return [await get(path) for path in paths]

    return asyncio.run(all_of_them())
