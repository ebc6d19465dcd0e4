"""The sweeps that are played: small ones, over one or two lanes."""

import atexit
import contextlib
import shutil
import tempfile
from functools import cache
from pathlib import Path

from evalkit.engine.freezing.freeze import Resolved, resolve
from evalkit.spec.sweep import read_sweep

_PROVIDER = """
dialect = "{dialect}"
url = "http://127.0.0.1:9/v1"
any_model = true
timeout_s = 60
{limits}
[usd_per_mtok]
input = "1"
output = "4"
as_of = 2026-01-01
source = "simulated"
"""

_LIMITED = """[limits]
requests_per_minute = 20
in_flight = 3
"""

_AGENT = """[[agents]]
name = "{name}"
provider = "{provider}"
model = "{model}"
max_tokens = 150
"""

_SUITE = """[[suites]]
name = "scheduling/basic"
instances = [{instances}]
vary = {{ periods = [{periods}] }}
"""

LIMIT, IN_FLIGHT = 20, 3
"""Requests per minute and in flight of the provider `limited`."""


def _spec(agents: tuple[tuple[str, str, str], ...], instances: int, periods: int, replicates: int) -> str:
    named = ", ".join(f'"seed-{number}"' for number in range(instances))
    return "\n".join(
        [
            f"replicates = {replicates}",
            *(_AGENT.format(name=name, provider=provider, model=model) for name, provider, model in agents),
            _SUITE.format(instances=named, periods=periods),
        ]
    )


SWEEPS = (
    _spec((("k", "free", "knuth"),), 3, 2, 1),
    _spec((("k", "free", "knuth"), ("r", "free", "random")), 2, 2, 1),
    _spec((("k", "limited", "knuth"), ("n", "free", "noisy")), 2, 1, 2),
    _spec((("r", "limited", "random"),), 4, 1, 1),
)
"""Small sweeps over one or two lanes."""


@cache
def spec(number: int) -> Path:
    """The file of one of the sweeps, with its providers beside it; made once a process."""
    folder = Path(tempfile.mkdtemp(prefix="evalkit-sim-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "providers").mkdir()
    for name, limits in (("free", ""), ("limited", _LIMITED)):
        (folder / "providers" / f"{name}.toml").write_text(_PROVIDER.format(dialect="openai_chat", limits=limits))
    (folder / "sweep.toml").write_text(SWEEPS[number])
    return folder / "sweep.toml"


@cache
def resolved(number: int) -> Resolved:
    """One of the sweeps, read once a process."""
    with contextlib.chdir(spec(number).parent):
        return resolve(read_sweep(spec(number)))
