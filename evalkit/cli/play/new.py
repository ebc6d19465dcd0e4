"""`evalkit new`: a commented sweep spec to start from, or a package with an environment."""

import argparse
from pathlib import Path

from evalkit.cli.choosing import program
from evalkit.errors import UsageError
from evalkit.files import new_file, write_new

TEMPLATE = """\
# A sweep: agents x suites x replicates. It describes a desired state: `evalkit run` asks only for what is missing, so
# the same command starts it, resumes it after any interruption, and extends it when you add to this file.

replicates = 1          # episodes of each agent on each instance
width = 64              # episodes in flight for each model
budget_usd = "5.00"     # hard ceiling of the whole run, crashes included; leave it out for none. A provider that bills
                        # more than it reports cannot be noticed.
# deadline = "8h"       # stop (and stay resumable) after this time

# An agent is a model at a provider (`evalkit providers` lists them) ...
[[agents]]
name = "sim-knuth"
provider = "simulated"  # a local server that evalkit starts: no key, no cost
model = "knuth"
# temperature = 1.0     # default: the environment's setting
# max_tokens = 8192
# tags = ["reasoning"]  # chooses the prompts for reasoning models
# notes = false         # removes the notes tools
# prompts = "my.toml"   # another prompt pack

# ... or a policy played in this process: a baseline.
[[agents]]
policy = "random"

[[suites]]
name = "scheduling/basic"            # also procurement/, pricing/, costbench/ and basic, medium, hard, expert, extreme
# instances = ["seed-0", "seed-1"]   # only these
# vary = { k = [1, 2, 5] }           # one suite for each value; reports know the axis

# Limits for one model; without them, the limits in the provider's file apply.
# [limits."simulated/knuth"]
# requests_per_minute = 600
# input_tokens_per_minute = 200000
# in_flight = 32
"""


def new(args: argparse.Namespace) -> int:
    """Write the template; never overwrite an existing file."""
    if bool(args.plugin) == bool(args.file):
        raise UsageError("new: name either a sweep's FILE, or --plugin and a folder.")
    if args.plugin:
        return _plugin(Path(args.plugin))
    path = new_file(args.file, ".toml", "a sweep's file")
    write_new(path, TEMPLATE)
    print(f"Wrote {path}. Next: {program()} plan {path}")
    return 0


def _plugin(folder: Path) -> int:
    from evalkit.cli.play.project import write_project

    name = write_project(folder)
    print(f"Wrote {folder}: a package with the environment {name!r}. Next, in that folder:")
    for line in (
        "pip install -e '.[dev]'",
        "pytest",
        f"{program()} tools plugins",
        f"{program()} run runs/baselines.toml",
    ):
        print(f"  {line}")
    return 0
