"""What streaming costs on our side: CPU a step, streamed and in one piece, for replies of 20, 100 and 500 events.

    python -m bench.streams
    python -m bench.streams --events 100 --over 0 5 --rounds 5

The conversations, the server and the client are those of `bench/throughput.py`; each reply holds a text of as many
words beside its call, and both ways give the client the same replies in the same time. The rounds alternate, one in
one piece first and last, so that each streamed round stands between two others; a ratio is that to the mean of these
two. With `--over 0` all events come at once, as through a gateway that collects them; else one by one over so many
seconds, as a model writes them.

What a stream costs a bare aiohttp client on uvloop that reads its pieces as they come, and nothing in them, is measured
in the same rounds: `floor` is the ratio that would be left if evalkit did nothing else either.
"""

import argparse
import sys
from dataclasses import replace
from itertools import pairwise
from statistics import mean, median

from bench.throughput import Job, measure

MOST = 1.3
"""Times the CPU of a step in one piece."""
EVENTS = (20, 100, 500)
OVER_S = (0.0, 2.0)
EPISODES, IN_FLIGHT = 64, 64
ROUNDS = 3


def main() -> bool:
    """By the command line; whether every ratio is as promised."""
    parser = argparse.ArgumentParser(prog="python -m bench.streams")
    parser.add_argument("--events", type=int, nargs="+", default=EVENTS, help="a reply")
    parser.add_argument("--over", type=float, nargs="+", default=OVER_S, help="seconds from first to last")
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    titles = f"{'events':>8}{'seconds':>9}{'whole, ms':>12}{'streamed':>10}{'ratio':>8}{'range':>15}"
    print(f"{titles}{'floor':>8}{'range':>15}   ratio <= {MOST}")
    kept = True
    for over_s in chosen.over:
        for events in chosen.events:
            job = Job(episodes=chosen.episodes, in_flight=IN_FLIGHT, events=events, over_s=over_s)
            kept = compared(job, chosen.rounds) and kept
    return kept


def compared(job: Job, rounds: int) -> bool:
    """Measure and print one line; whether the promise is kept."""
    # In one piece a reply takes as long as its stream does.
    slow, fast = replace(job, latency_s=job.latency_s + job.over_s), replace(job, stream=True)
    whole, streamed, bare = [_cpu_ms("driver.py", slow)], list[float](), list[float]()
    for _ in range(rounds):
        streamed.append(_cpu_ms("driver.py", fast))
        bare.append(_cpu_ms("floor.py", fast) - _cpu_ms("floor.py", slow))
        whole.append(_cpu_ms("driver.py", slow))
    means = [mean(around) for around in pairwise(whole)]
    ratios = [one / other for one, other in zip(streamed, means, strict=True)]
    floors = [1 + more / other for more, other in zip(bare, means, strict=True)]
    print(f"{job.events:8}{job.over_s:9g}{median(whole):12.3f}{median(streamed):10.3f}", end="")
    print("".join(f"{median(those):8.2f}{f'{min(those):.2f} to {max(those):.2f}':>15}" for those in (ratios, floors)))
    sys.stdout.flush()
    return median(ratios) <= MOST


def _cpu_ms(client: str, job: Job) -> float:
    """A request."""
    found = measure(client, job)
    if found.fault:
        sys.exit(found.fault)
    return found.cpu_ms


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
