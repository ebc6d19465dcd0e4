"""Small sweeps that ask something: many instances of matching, of a few steps each."""

from pathlib import Path

import orjson

from evalkit.cli.make.generate import parse_parameters
from evalkit.engine.freezing.freeze import ResolvedSweep
from evalkit.envs.table import ENVIRONMENTS
from tests.support.small_sweeps import resolved

INSTANCES = 150
POLICIES = ("knuth", "random", "oracle")


def many(path: Path, instances: int = INSTANCES, *, periods: int = 8) -> Path:
    """Write the suite."""
    env = ENVIRONMENTS["scheduling"]
    parameters = parse_parameters(["--n", "4", "--periods", str(periods)], env.parameters, env.name)
    path.write_bytes(b"".join(orjson.dumps(dict(line)) + b"\n" for line in env.generate(parameters, instances, 0)))
    return path


def asking(
    folder: Path,
    suite: Path,
    decide: str | None = "margin = 15",
    *,
    agents: tuple[str, ...] = POLICIES,
    served: bool = False,
    before: str = "",
) -> ResolvedSweep:
    """A sweep of policies, in this process or served, with this table; None: it asks nothing."""
    asked = "" if decide is None else f"[decide]\n{decide}\n"
    agent = 'name = "{0}"\nprovider = "simulated"\nmodel = "{0}"\n' if served else 'policy = "{0}"\n'
    tables = "".join("[[agents]]\n" + agent.format(name) for name in agents)
    return resolved(folder, f'width = 4\n{before}\n{asked}{tables}[[suites]]\nname = "{suite}"\n')
