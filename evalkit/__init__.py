"""evalkit: asynchronous batch evaluation of language-model agents on economic environments with known optima.

An agent plays episodes of an environment whose best score is known exactly. A *sweep* says which agents play which
suites; a *run* completes a sweep: `run` requests what is missing, within its budget, and every reply is on disk before
the next request is sent.

Play a sweep and read it:

    >>> import evalkit
    >>> run = evalkit.run({
    ...     "name": "first",
    ...     "agents": [{"policy": "knuth"}, {"policy": "random"}],
    ...     "suites": [{"name": "scheduling/basic"}],
    ... })
    >>> run
    Run(first: complete, 24 of 24 episodes, 0 USD)
    >>> run.sql("select agent, avg(score) > 0.99 as best from episodes where used group by 1 order by 1").to_pylist()
    [{'agent': 'knuth', 'best': True}, {'agent': 'random', 'best': False}]

Look at one episode, and play one by hand:

    >>> print(run.episode("knuth:scheduling/basic:seed-0:0").score.value)
    1.0
    >>> game = evalkit.game(evalkit.suite("scheduling/basic")[0])
    >>> game.reply("I would rather talk.").ending
    ''

What there is:

    run, run_async      start, resume or extend a run
    plan                what a sweep will cost, without a request
    load                an existing run
    play                one episode, in a temporary directory
    suite, env          instances and environments by name
    game                an episode by hand: no model, no loop, no log
    agent               an agent as code: a coroutine that asks models and acts
    gateway             a local address at which frameworks ask through an agent's seat

    Run, Plan, Progress, Episode, Ask, Game, Turn, Instance, Environment, Score   what these return
    Message, Tool, ToolCall, Reply, Usage                                      what agents read and answer
    Seat, Gateway                                                              what agents as code are written with
    EvalkitError, UsageError, RunError, CorruptLogError                        what they raise
    AgentError, AskRefused                                                     what they raise in an agent's code

docs/python.md is the guide. `evalkit.__all__` is the interface; for packages that extend evalkit, so are
`evalkit.extend` and `evalkit.testing`. Every other name is private and can change without notice. Importing
evalkit loads none of it: a name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalkit.api.games import Game, Instance, env, game, suite
    from evalkit.api.running import Progress, play, run, run_async
    from evalkit.api.runs import Episode, Run, load
    from evalkit.dialogue import Message, Reply, Tool, ToolCall, Usage
    from evalkit.engine.planning.planned import Plan
    from evalkit.envs.environment import Environment, Facts, Score
    from evalkit.envs.replay import Turn
    from evalkit.errors import (
        AgentError,
        AskRefused,
        CorruptLogError,
        EvalkitError,
        RunError,
        UsageError,
    )
    from evalkit.integrations.gateway.server import Gateway, gateway
    from evalkit.playing.planning import plan
    from evalkit.results.moves import Ask
    from evalkit.seats import Seat, agent
    from evalkit.version import __version__ as __version__

__all__ = [
    "AgentError",
    "Ask",
    "AskRefused",
    "CorruptLogError",
    "Environment",
    "Episode",
    "EvalkitError",
    "Facts",
    "Game",
    "Gateway",
    "Instance",
    "Message",
    "Plan",
    "Progress",
    "Reply",
    "Run",
    "RunError",
    "Score",
    "Seat",
    "Tool",
    "ToolCall",
    "Turn",
    "Usage",
    "UsageError",
    "agent",
    "env",
    "game",
    "gateway",
    "load",
    "plan",
    "play",
    "run",
    "run_async",
    "suite",
]

_PLACES = {
    "evalkit.api.games": ("Game", "Instance", "env", "game", "suite"),
    "evalkit.playing.planning": ("plan",),
    "evalkit.api.running": ("Progress", "play", "run", "run_async"),
    "evalkit.api.runs": ("Episode", "Run", "load"),
    "evalkit.dialogue": ("Message", "Reply", "Tool", "ToolCall", "Usage"),
    "evalkit.integrations.gateway.server": ("Gateway", "gateway"),
    "evalkit.engine.planning.planned": ("Plan",),
    "evalkit.envs.environment": ("Environment", "Facts", "Score"),
    "evalkit.envs.replay": ("Turn",),
    "evalkit.errors": (*("AgentError", "AskRefused", "CorruptLogError", "EvalkitError", "RunError", "UsageError"),),
    "evalkit.results.moves": ("Ask",),
    "evalkit.seats": ("Seat", "agent"),
}
"""Module -> the names that it gives."""

if not TYPE_CHECKING:  # else a type checker would believe that every name is there

    def __getattr__(name):
        """Load a public name when it is first used (PEP 562)."""
        if name == "__version__":
            return import_module("evalkit.version").__version__
        for module, names in _PLACES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(module), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"]
