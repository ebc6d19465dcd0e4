"""CPU of an environment's step, by the plain path and with the compiled kernels loaded, and beside another tree.

    python -m bench.compiled                     plain beside compiled
    python -m bench.compiled --before ../older   another checkout's plain path as well

Episodes of policies are recorded once, then their replies are replayed: no engine, no network. Every figure is of a
process of its own, the variants take turns, and the whole is done `ROUNDS` times: ratios are given with their range.
Kernels are taken from the user's cache, so `evalkit warmup` comes first.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

ROUNDS, REPEATS = 3, 5
HERE = Path(__file__).resolve().parent.parent
CASES = {
    "scheduling, n = 50": ("scheduling/hard", "knuth", 3, {}),
    "scheduling, n = 200": ("scheduling/hard", "knuth", 1, {"n": 200, "periods": 30, "generator": "native"}),
    "scheduling, n = 1000": ("scheduling/hard", "knuth", 1, {"n": 1000, "periods": 5, "generator": "native"}),
    "CostBench, N = 8": ("costbench/length-8", "replanner", 40, {}),
    "CostBench, N = 8, 3 events": ("costbench/length-8", "replanner", 40, {"block": "cost_change", "blocks": 3}),
    "CostBench, N = 15": ("costbench/extreme", "replanner", 20, {}),
}
"""Suite, policy, instances, fields that are set anew."""


def main() -> bool:
    """Measure and print all; whether nothing became slower by more than what three rounds scatter."""
    trees = {"plain": HERE, "compiled": HERE}
    if "--before" in sys.argv:
        trees = {"before": Path(sys.argv[sys.argv.index("--before") + 1]).resolve(), **trees}
    rounds = [{name: measured(tree, name) for name, tree in trees.items()} for _ in range(ROUNDS)]
    first = next(iter(trees))
    print(f"{'CPU of a step and its score':30}" + "".join(f"{name:>14}" for name in trees), end="")
    print("".join(f"{f'{first} / {name}':>26}" for name in trees if name != first))
    kept = True
    for case in CASES:
        line = "".join(f"{median(one[name][case] for one in rounds):11.1f} us" for name in trees)
        for name in trees:
            if name != first:
                ratios = [one[first][case] / one[name][case] for one in rounds]
                line += f"{median(ratios):12.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
                kept = kept and max(ratios) > 0.9
        print(f"{case:30}{line}")
    loads = [one["compiled"]["load_s"] for one in rounds]
    print(f"loading numba and the kernels: {median(loads):.2f} CPU s ({min(loads):.2f}-{max(loads):.2f})")
    return kept


def measured(tree: Path, variant: str) -> dict[str, float]:
    """Microseconds a step of every case in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--child", variant],
        env={**os.environ, "PYTHONPATH": str(tree)},
        cwd=tree,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def child(variant: str) -> None:
    """Measure one variant of the tree that is first on the path."""
    found = {}
    if variant == "compiled":
        from evalkit.envs import compiled
        from evalkit.envs.table import ENVIRONMENTS

        began = time.process_time()
        if not compiled.load(ENVIRONMENTS.values()):
            sys.exit("The kernels are not in the cache: call `evalkit warmup` first.")
        found["load_s"] = time.process_time() - began
    for case, settings in CASES.items():
        found[case] = _step_us(*settings)
    print(json.dumps(found))


def _step_us(suite: str, policy: str, instances: int, fields: dict[str, Any]) -> float:
    from evalkit.envs.environment import Kit
    from evalkit.envs.replay import advance, begin
    from evalkit.envs.table import ENVIRONMENTS
    from evalkit.spec.packs import read_pack
    from evalkit.spec.suites import find_suite, read_lines

    lines = list(read_lines(find_suite(suite)))[:instances]
    env = ENVIRONMENTS[str(lines[0]["environment"])]
    derived = {"digest", "expected", "optimum", "certificate"}
    made = [env.load({**{key: value for key, value in line.items() if key not in derived}, **fields}) for line in lines]
    kit = Kit(pack=read_pack("standard", env.name))
    recorded = [(instance, *_recorded(env, instance, kit, policy)) for instance in made]
    best = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        for instance, replies, facts in recorded:
            position = begin(env, instance, kit)
            for reply, data in replies:
                advance(env, position, reply, data)
            env.score(instance, facts)
        best = min(best, time.process_time() - began)
    return best / sum(len(replies) for _, replies, _ in recorded) * 1e6


def _recorded(env: Any, instance: Any, kit: Any, policy: str) -> tuple[list[Any], list[Any]]:
    import orjson

    from evalkit.dialogue import Request
    from evalkit.envs.replay import advance, begin
    from evalkit.policy.answer import answer
    from evalkit.policy.table import player
    from evalkit.replies import encode_reply

    position, play = begin(env, instance, kit), player(policy, env.name, instance=instance)
    replies: list[Any] = []
    facts: list[Any] = []
    while not position.ending:
        request = Request(
            messages=tuple(position.messages), tools=position.tools, sampling=env.defaults, seed=len(replies)
        )
        reply = answer(policy, play, request)
        data = encode_reply(reply)
        facts.append(orjson.loads(advance(env, position, reply, data).facts_bytes))
        replies.append((reply, data))
    return replies, facts


if __name__ == "__main__":
    if "--child" in sys.argv:
        child(sys.argv[-1])
    else:
        sys.exit(0 if main() else 1)
