"""The sweeps that are played: small ones, over one or two lanes."""

import contextlib
import shutil
import tempfile
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path

from evalkit.engine.freezing.freeze import ResolvedSweep, resolve
from evalkit.seats import code_of
from evalkit.spec.sweep import read_sweep
from tests.sim import players
from tests.support.question_runs import many

_PROVIDER = """
dialect = "{dialect}"
url = {url}
timeout_s = 60
stream = "off"
{limits}
[usd_per_mtok]
input = "1"
output = "4"
source = "simulated, 2026-01-01"
"""

_PER_MINUTE, _IN_FLIGHT = "requests_per_minute", "in_flight"

_AGENT = """[[agents]]
name = "{name}"
provider = "{provider}"
model = "{model}"
max_tokens = 150
"""

_CODE = """[[agents]]
name = "{name}"
agent = "tests.sim.players:{name}"
models = {{ {models} }}
max_tokens = 150
"""

_CONTEXT = """
[models."*"]
context_tokens = 1600
"""
"""Of all models, where agents are code."""

_SUITE = """[[suites]]
name = "scheduling/basic"
instances = [{instances}]
vary = {{ periods = [{periods}] }}
"""

_ASKED = """
[decide]
margin = {margin}
"""

NIGHT_S = 60
"""The deadline of a night."""
LIMITS: dict[str, dict[str, int]] = {
    "limited": {_PER_MINUTE: 20, _IN_FLIGHT: 3},
    "slow": {_PER_MINUTE: 6},
    "narrow": {_IN_FLIGHT: 2},
}
"""By provider: requests per minute, and in flight."""
MANY, INSTANCES = "many.jsonl", 40
"""The suite of sweeps that ask something, and its instances."""
TIERED = "tiered"
"""A provider that sells tiers."""
_TIERS = """
service_tiers = { standard = "default", flex = "flex" }
tier = ["flex", "standard"]
"""
_TIER_PRICES = """
[models."*"]
tiers = { flex = "0.5" }
"""
SEVERAL, SERVERS, AT_EACH = "several", ("http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1", "http://127.0.0.1:11/v1"), 2
"""A provider with several servers, and the requests that each may have in flight."""
STRICT = "strict"
"""A provider that refuses some requests for what they hold."""


def _agent(said: tuple[str, ...]) -> str:
    """(name, provider, model), or of an agent that is code (its name, the model of each role)."""
    name, *models = said
    if hasattr(players, name):
        roles = zip(code_of(getattr(players, name), name).models, models, strict=True)
        return _CODE.format(name=name, models=", ".join(f'{role} = "{model}"' for role, model in roles))
    return _AGENT.format(name=name, provider=models[0], model=models[1])


def _spec(agents: tuple[tuple[str, ...], ...], instances: int, periods: int, replicates: int) -> str:
    named = ", ".join(f'"seed-{number}"' for number in range(instances))
    return "\n".join(
        [
            f"replicates = {replicates}",
            *map(_agent, agents),
            _SUITE.format(instances=named, periods=periods),
        ]
    )


def _asking(agents: tuple[tuple[str, ...], ...], margin: int) -> str:
    return "\n".join([_ASKED.format(margin=margin), *map(_agent, agents), f'[[suites]]\nname = "{MANY}"\n'])


SWEEPS = (
    _spec((("k", "free", "knuth"),), 3, 2, 1),
    _spec((("k", "free", "knuth"), ("r", "free", "random")), 2, 2, 1),
    _spec((("k", "limited", "knuth"), ("n", "free", "noisy")), 2, 1, 2),
    _spec((("r", "limited", "random"),), 4, 1, 1),
)
"""Small sweeps over one or two lanes."""

TIGHT = len(SWEEPS)
"""The number of a sweep with more episodes than its provider takes requests at once, and more requests than it takes
in a minute."""
SCARCE = TIGHT + 1
"""The number of a sweep whose episodes start in number before its money is at an end."""
_ALL = (
    *SWEEPS,
    _spec((("k", "slow", "knuth"), ("n", "narrow", "knuth")), 5, 1, 1),
    _spec((("k", "free", "knuth"),), 10, 1, 1),
    _spec((("best_of", "free/knuth", "free/random"),), 2, 1, 1),
    _spec((("best_of", "limited/knuth", "narrow/random"), ("plain", "free/noisy")), 2, 1, 1),
    _spec((("planned", "free/random", "limited/knuth"), ("branching", "free/noisy")), 2, 1, 1),
    _spec((("branching", "narrow/knuth"), ("best_of", "free/noisy", "free/noisy")), 2, 1, 1),
    _spec((("wide", "free/knuth"),), 2, 2, 1),
    _spec((("hasty", "narrow/random"), ("wide", "free/noisy")), 2, 1, 1),
    _spec((("careful", f"{STRICT}/knuth"), ("plain", f"{STRICT}/noisy")), 3, 1, 1),
    _spec((("hasty", f"{STRICT}/random"), ("best_of", "free/noisy", f"{STRICT}/random")), 2, 1, 1),
    _asking((("k", "free", "knuth"), ("r", "free", "random")), 40),
    _asking((("k", "free", "knuth"), ("n", "narrow", "noisy"), ("r", "free", "random")), 40),
    _spec((("k", SEVERAL, "knuth"),), 4, 1, 2),
    _spec((("k", SEVERAL, "knuth"), ("n", SEVERAL, "noisy")), 3, 2, 1),
    f'deadline = "90s"\n{_spec((("k", TIERED, "knuth"),), 5, 2, 2)}',
    f'deadline = "1h"\n{_spec((("k", TIERED, "knuth"), ("n", TIERED, "noisy")), 3, 2, 1)}'.replace(
        'name = "n"\n', 'name = "n"\ntier = "flex"\n'
    ),
    f'deadline = "{NIGHT_S}s"\n{_spec((("k", TIERED, "knuth"),), 12, 1, 4)}',
)
NIGHT = len(_ALL) - 1
"""The number of the sweep of a night: 48 episodes, by a deadline."""
MIXED = range(NIGHT - 2, NIGHT)
"""The numbers of sweeps whose requests go by tiers, by a deadline."""
SERVED = range(MIXED.start - 2, MIXED.start)
"""The numbers of sweeps whose provider has several servers."""
ASKING = range(SERVED.start - 2, SERVED.start)
"""The numbers of sweeps that ask something."""
AGENTS = range(SCARCE + 1, ASKING.start)
"""The numbers of sweeps whose agents are code (`players.py`)."""
WIDE = tuple(number for number in AGENTS if '"tests.sim.players:wide"' in _ALL[number])
"""Of these, the ones in which an agent has many requests in flight."""

_MORE = """
[[suites]]
name = "scheduling/medium"
instances = ["seed-1"]
vary = { periods = [1] }
"""


def extended(number: int) -> int:
    """The number of a sweep that asks for what another one does, and for more: a suite, or one replicate."""
    return number + len(_ALL)


def _text(number: int) -> str:
    if number < len(_ALL):
        return _ALL[number]
    less = number - len(_ALL)
    if less % 2:
        return _ALL[less] + _MORE
    replicates = int(_ALL[less].partition("replicates = ")[2].partition("\n")[0])
    return _ALL[less].replace(f"replicates = {replicates}", f"replicates = {replicates + 1}")


@cache
def spec(number: int) -> Path:
    """The file of one of the sweeps, with its providers beside it; made once a process."""
    folder = Path(tempfile.mkdtemp(prefix="evalkit-sim-"))
    # Processes of a pool do not run what `atexit` has.
    Finalize(None, shutil.rmtree, args=(folder, True), exitpriority=0)
    (folder / "providers").mkdir()
    several = ", ".join(f'{{ url = "{url}", {_IN_FLIGHT} = {AT_EACH} }}' for url in SERVERS)
    for name, said in {"free": {}, STRICT: {}, SEVERAL: {}, TIERED: {}, **LIMITS}.items():
        limits = "\n".join(["[limits]", *(f"{limit} = {most}" for limit, most in said.items())])
        url = f"[{several}]" if name == SEVERAL else f'"{SERVERS[0]}"'
        text = _PROVIDER.format(dialect="openai_chat", url=url, limits=limits)
        if name == TIERED:
            text = text.replace("[limits]", f"{_TIERS}[limits]") + _TIER_PRICES
        coded = number % len(_ALL) in AGENTS
        (folder / "providers" / f"{name}.toml").write_text(text + _CONTEXT if coded else text)
    if number in ASKING:
        many(folder / MANY, INSTANCES, periods=1)
    (folder / "sweep.toml").write_text(_text(number))
    return folder / "sweep.toml"


@cache
def resolved(number: int) -> ResolvedSweep:
    """One of the sweeps, read once a process."""
    with contextlib.chdir(spec(number).parent):
        return resolve(read_sweep(spec(number)))
