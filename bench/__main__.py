"""`make bench`: what evalkit promises in figures, each beside a floor measured in the same run.

Throughput is first: evalkit and a bare aiohttp client against a server of this folder. Nothing is installed, and
nothing outside the project is needed. Exits non-zero where a promise is not kept.
"""

import sys


def main() -> int:
    """All benchmarks. Throughput comes before the others are imported: a process that it starts begins with the memory
    of this one in its peak."""
    from bench import throughput

    kept = [throughput.main()]
    from bench import bucket, episodes, integrations, log, planning, pricing, procurement, results, turns, workers

    for part in (log, bucket, procurement, pricing, planning, episodes, turns, results, integrations, workers):
        print()
        kept.append(part.main())
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
