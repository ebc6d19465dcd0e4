"""What streaming costs on our side: CPU a step, streamed and in one piece, for replies of 20, 100 and 500 events.

    python -m bench.streams
    python -m bench.streams --events 100 --over 0 5 --rounds 5

The conversations, the server and the client are those of `bench/throughput.py`; each reply holds a text of as many
words beside its call, and both ways give the client the same replies in the same time. The rounds alternate, one in
one piece first and last, so that each streamed round stands between two others; a ratio is that to the mean of these
two. With `--over 0` all events come at once, as through a gateway that collects them; else one by one over so many
seconds, as a model writes them.
"""

import argparse
import sys
from dataclasses import replace
from itertools import pairwise
from statistics import mean, median

from bench.throughput import Job, Round, measure

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
    print(f"{'events':>8}{'seconds':>9}{'whole, ms':>12}{'streamed':>10}{'ratio':>8}{'range':>15}   <= {MOST}")
    kept = True
    for over_s in chosen.over:
        for events in chosen.events:
            job = Job(episodes=chosen.episodes, in_flight=IN_FLIGHT, events=events, over_s=over_s)
            kept = compared(job, chosen.rounds) and kept
    return kept


def compared(job: Job, rounds: int) -> bool:
    """Measure and print one line; whether the promise is kept."""
    # In one piece a reply takes as long as its stream does.
    slow = replace(job, latency_s=job.latency_s + job.over_s)
    whole, streamed = [_sound("driver.py", slow)], list[Round]()
    for _ in range(rounds):
        streamed.append(_sound("driver.py", replace(job, stream=True)))
        whole.append(_sound("driver.py", slow))
    ratios = [
        one.cpu_ms / mean(two.cpu_ms for two in around) for one, around in zip(streamed, pairwise(whole), strict=True)
    ]
    middle, span = median(ratios), f"{min(ratios):.2f} to {max(ratios):.2f}"
    cpu_ms = [median(one.cpu_ms for one in those) for those in (whole, streamed)]
    print(f"{job.events:8}{job.over_s:9g}{cpu_ms[0]:12.3f}{cpu_ms[1]:10.3f}{middle:8.2f}{span:>15}", flush=True)
    return middle <= MOST


def _sound(client: str, job: Job) -> Round:
    found = measure(client, job)
    if found.fault:
        sys.exit(found.fault)
    return found


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
