"""What it costs to begin a run of very many instances, to go on with it, and to ask about it: CPU seconds and memory.

A suite of scheduling is written to a temporary folder: a few lines of the native generator, repeated under other seeds.
Then whole commands are called in processes of their own: a policy that is played here, and a model that evalkit
simulates itself, each for a few episodes; `plan` before that, `status` and the first line of `report` behind it.

    python bench/start.py [INSTANCES]
"""

import sys
import tempfile
from pathlib import Path

import orjson
from finding import command

from evalkit.envs.table import ENVIRONMENTS
from evalkit.seeds import Stream

INSTANCES, DRAWN = 1_000_000, 1_000
EPISODES = 4
"""That a run plays before it stops."""
SPEC = """
name = "{name}"
width = 4
{more}
[[agents]]
{agent}
[[suites]]
name = "many.jsonl"
"""
SWEEPS = {
    "policy": SPEC.format(name="policy", more="", agent='policy = "knuth"'),
    "model": SPEC.format(name="model", more='budget_usd = "5"', agent='provider = "simulated"\nmodel = "knuth"'),
}


def write(path: Path, count: int) -> None:
    """A suite of so many different instances; what follows from a line is left out, as in lines written by hand."""
    drawn = [dict(line) for line in ENVIRONMENTS["scheduling"].generate({}, min(count, DRAWN), 1)]
    seeds = Stream(1, "bench", "start")
    with path.open("wb") as file:
        for number in range(count):
            line = drawn[number % len(drawn)]
            line |= {"id": f"{line['family']}-{number}", "seed": seeds.word() >> 1}
            file.write(orjson.dumps({key: line[key] for key in line if key not in ("digest", "expected")}) + b"\n")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else INSTANCES
    with tempfile.TemporaryDirectory(prefix="evalkit-bench-") as room:
        folder = Path(room)
        write(folder / "many.jsonl", count)
        print(f"{count:,} instances, {(folder / 'many.jsonl').stat().st_size / 1e6:,.0f} MB", flush=True)
        for name, text in SWEEPS.items():
            (folder / f"{name}.toml").write_text(text)
            some = ("run", f"{name}.toml", "--limit", str(EPISODES))
            for what, words in (
                ("plan", ("plan", f"{name}.toml")),
                ("begin", some),
                ("go on", some),
                ("status", ("status", f"runs/{name}")),
                ("report", ("report", f"runs/{name}")),
            ):
                seconds, memory, said = command(folder, *words, codes=("0", "3"))
                print(f"  {name:<7} {what:<7} {seconds:6.2f} CPU s, {memory:5.0f} MB: {said.strip()}", flush=True)


if __name__ == "__main__":
    main()
