"""`evalkit new`: a commented sweep spec to start from, or a package with an environment."""

import argparse
import keyword
import re
from pathlib import Path

from evalkit.cli.choosing import program
from evalkit.cli.tools.schema import put_schema, schema_line
from evalkit.envs.table import OWN_ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.files import new_file, write_new

# The project that `evalkit new --plugin` writes: the files of `evalkit/plugin_project/`, named after its folder.

PROJECT_FILES = Path(__file__).resolve().parent.parent.parent / "plugin_project"
ENDING = ".in"
PACKAGE = "package"
"""The folder of the template that gets the package's name."""

_PREFIX = re.compile(r"^evalkit[-_.]+")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def write_project(folder: Path) -> str:
    """Write the project; return the name of its environment.

    Raises UsageError if the folder is not empty, or if its name does not give a valid name for an environment.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; nothing was written. Choose another name.")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; nothing was written. Choose another name.")
    name = environment_name(folder.resolve().name)
    for path, text in project_files(name).items():
        write_new(folder / path, text)
    return name


def environment_name(folder: str) -> str:
    """The name of the environment whose project is in a folder with that name. Raises UsageError."""
    name = re.sub(r"[-. ]+", "_", _PREFIX.sub("", folder.lower()))
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UsageError(
            f"--plugin: the environment is named after the folder, and {name!r} is not a valid name: use "
            "lower-case letters, digits and _, starting with a letter, as in `evalkit-auctions`. Nothing "
            "was written."
        )
    if name in OWN_ENVIRONMENTS:
        raise UsageError(f"--plugin: evalkit already has an environment {name!r}. Choose another name for the folder.")
    return name


def project_files(name: str) -> dict[str, str]:
    """The files of a project by their paths within it. `name`: the environment's."""
    words = {
        "@name@": name,
        "@package@": f"evalkit_{name}",
        "@distribution@": f"evalkit-{name.replace('_', '-')}",
    }
    files = {}
    for file in sorted(path for path in PROJECT_FILES.rglob(f"*{ENDING}") if path.is_file()):
        text = file.read_text(encoding="utf-8")
        for word, value in words.items():
            text = text.replace(word, value)
        first, *rest = file.relative_to(PROJECT_FILES).with_suffix("").parts
        first = words["@package@"] if first == PACKAGE and rest else first
        files["/".join((first, *rest))] = text
    return files


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
    write_new(path, schema_line("sweep") + TEMPLATE)
    put_schema(path.parent, "sweep")
    print(f"Wrote {path}. Next: {program()} plan {path}")
    return 0


def _plugin(folder: Path) -> int:

    name = write_project(folder)
    print(f"Wrote {folder}: a package with the environment {name!r}, so far an example game of offers. Next, there:")
    for line in (
        "pip install -e '.[dev]'",
        "pytest",
        f"{program()} tools plugins",
        f"{program()} run runs/baselines.toml",
    ):
        print(f"  {line}")
    return 0
