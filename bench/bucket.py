"""Requests a second of a run whose log is in a bucket, relative to one on a disk; 512 in flight, replies of 2 s.

    python -m bench.bucket

The bucket is that of an S3 server in a process of its own, behind a proxy that holds each request back for 50 ms, as a
store in the same region does. The disk is this machine's, and really syncs. Players are those of `bench/log.py`: they
wait for a reply, write its row and wait until it is durable. Rounds alternate, and their medians are compared.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.log import WIDTH, session
from evalkit.store.bucket import place_of

REPLY_S = 2.0
PUT_S = 0.05
ROUNDS = 3
LEAST = 0.9
"""Of the requests a second on a disk."""


def main() -> bool:
    """Measure and print; whether the promise is kept."""
    on_disk, in_bucket = list[float](), list[float]()
    with _bucket() as bucket:
        for number in range(ROUNDS):
            with tempfile.TemporaryDirectory() as folder:
                on_disk.append(asyncio.run(session(Path(folder) / "run", REPLY_S)))
            in_bucket.append(asyncio.run(session(place_of(f"{bucket}/run-{number}"), REPLY_S)))
    ratios = [one / other for one, other in zip(in_bucket, on_disk, strict=True)]
    puts = f"{PUT_S * 1e3:.0f} ms a put"
    print(f"{f'{WIDTH} in flight, replies of {REPLY_S:.0f} s':34}{'disk':>12}{puts:>14}", end="")
    print(f"{'ratio':>8}{'range':>15}{'promise':>12}")
    print(f"{'requests/s':34}{median(on_disk):12,.0f}{median(in_bucket):14,.0f}{median(ratios):8.2f}", end="")
    print(f"{f'{min(ratios):.2f} to {max(ratios):.2f}':>15}{f'>= {LEAST}':>12}")
    return median(ratios) >= LEAST


@contextmanager
def _bucket() -> Iterator[str]:
    """A bucket in a store that this process reaches."""
    command = [sys.executable, "-m", "bench.bucket", "serve"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    ) as server:
        assert server.stdout is not None
        url, bucket = server.stdout.readline().split()
        from tests.support.object_stores import environment

        os.environ |= environment(url)
        try:
            yield bucket
        finally:
            assert server.stdin is not None
            server.stdin.close()


def _serve() -> None:
    from tests.support.object_stores import make_bucket, proxy

    with proxy() as store:
        store.delay_s = PUT_S
        print(store.url, make_bucket(), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        _serve()
        sys.exit(0)
    sys.exit(0 if main() else 1)
