"""All policies by name. A plain table: adding a policy is adding a line here and a function beside it.

A policy recognises its environment by the tools that the request offers; which function plays which environment is said
here too, one line an environment.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evalkit.dialogue import Reply, Request
from evalkit.errors import UsageError, nearest
from evalkit.policy.costbench import playing as costbench
from evalkit.policy.pricing import playing as pricing
from evalkit.policy.procurement import playing as procurement
from evalkit.policy.scheduling import playing as scheduling
from evalkit.policy.any_tool import any_tool
from evalkit.policy.conversation import PolicyFn
from evalkit.policy.errand.clerk import clerk
from evalkit.policy.costbench import mistakes as noisy_costbench
from evalkit.policy.pricing import mistakes as noisy_pricing
from evalkit.policy.procurement import mistakes as noisy_procurement
from evalkit.policy.scheduling import mistakes as noisy_scheduling
from evalkit.policy.noisy.mistakes import noisy
from evalkit.policy.scripted import read_script
from evalkit.seeds import Stream

ANY_ENVIRONMENT: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One policy. Exactly one of `reply`, `oracle` and `script` is there."""

    name: str
    help: str
    """One line for people."""
    environments: frozenset[str]
    """The environments it can play; empty: all."""
    reply: PolicyFn | None = None
    """Plays from the conversation alone; such a policy can also be served as a model."""
    oracle: Callable[[Any], PolicyFn] | None = None
    """Privileged: made for one instance, whose hidden part it reads."""
    script: Callable[[str], PolicyFn] | None = None
    """Made from the agent's script, a JSON text."""

    def plays(self, environment: str) -> bool:
        """Whether it can play that environment."""
        return not self.environments or environment in self.environments


_MARKS: Mapping[str, tuple[Callable[[Request], bool], str]] = {
    "scheduling": (scheduling.plays, scheduling.ACTION),
    "procurement": (procurement.plays, procurement.ACTION),
    "pricing": (pricing.plays, pricing.ACTION),
    "costbench": (costbench.plays, "any that state a cost and an output type"),
}
"""Environment -> whether a request is one of its own, and what tells so, in words."""


def _by_tools(players: Mapping[str, PolicyFn], otherwise: PolicyFn | None = None) -> PolicyFn:
    """The player of the environment whose tools the request offers; of none, `otherwise`, or a reply that says so and
    calls nothing."""
    choices = [(_MARKS[environment][0], play) for environment, play in players.items()]
    known = ", or ".join(_MARKS[environment][1] for environment in players)

    def reply(request: Request, draws: Stream) -> Reply:
        for plays, play in choices:
            if plays(request):
                return play(request, draws)
        if otherwise is not None:
            return otherwise(request, draws)
        return Reply(text=f"None of the tools offered is one that I act with: {known}.")

    return reply


def _oracle(instance: Any) -> PolicyFn:
    # Imported late: reading an instance needs its environment with its tables, playing from a conversation does not.
    from evalkit.policy.oracle import oracle

    return oracle(instance)


def _policy(name: str, about: str, players: Mapping[str, PolicyFn]) -> Policy:
    return Policy(name=name, help=about, environments=frozenset(players), reply=_by_tools(players))


POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(
            name="random",
            help="a random valid action in every period; in CostBench any tool whose inputs are held; else any tool",
            environments=ANY_ENVIRONMENT,
            reply=_by_tools(
                {
                    "scheduling": scheduling.random,
                    "procurement": procurement.random,
                    "pricing": pricing.random,
                    "costbench": costbench.random,
                },
                any_tool,
            ),
        ),
        _policy(
            "knuth",
            "repairs one random reported blocking pair a period (the paper's heuristic)",
            {"scheduling": scheduling.knuth},
        ),
        _policy(
            "climber",
            "learns what items are worth from what its plans supported, and buys the best plan by that",
            {"procurement": procurement.climber},
        ),
        _policy(
            "fixed",
            "half the highest sensible price at first, then the same prices, in proportion to costs, for ever",
            {"pricing": pricing.fixed},
        ),
        _policy(
            "learner",
            "infers how prices drift and how demand falls with them, and sets the markup that earns most",
            {"pricing": pricing.learner},
        ),
        _policy(
            "greedy",
            "calls the tool that is cheapest for each step it stands for (the paper's baseline)",
            {"costbench": costbench.greedy},
        ),
        _policy(
            "planner",
            "finds the cheapest plan at the start and follows it until it cannot go on",
            {"costbench": costbench.planner},
        ),
        _policy(
            "replanner",
            "finds the cheapest plan afresh in every turn",
            {"costbench": costbench.replanner},
        ),
        _policy(
            "noisy",
            "a knuth, climber, learner or replanner that makes every kind of mistake a model makes",
            {
                "scheduling": noisy(scheduling.knuth, noisy_scheduling.MISTAKES),
                "procurement": noisy(procurement.climber, noisy_procurement.MISTAKES),
                "pricing": noisy(pricing.learner, noisy_pricing.MISTAKES),
                "costbench": noisy(costbench.replanner, noisy_costbench.MISTAKES),
            },
        ),
        Policy(
            name="clerk",
            help="does errands in a fixed form: no wish conflicts, every line with an arrow is a path",
            environments=frozenset({"errand"}),
            reply=clerk,
        ),
        Policy(
            name="scripted",
            help="answers from the agent's list of replies, from its first in every chat",
            environments=ANY_ENVIRONMENT,
            script=read_script,
        ),
        Policy(
            name="oracle",
            help="reads the instance and takes the best actions from the first on",
            environments=frozenset({"scheduling", "procurement", "pricing", "costbench"}),
            oracle=_oracle,
        ),
    )
}


def player(name: str, *, instance: Any = None, script: str = "") -> PolicyFn:
    """The policy of that name, ready to play one episode.

    `instance` is what the oracle reads, `script` what the scripted policy answers; the others look at neither.
    Raises UsageError where there is no such policy, or the script is none.
    """
    policy = find_policy(name)
    if policy.oracle is not None:
        return policy.oracle(instance)
    if policy.script is not None:
        return policy.script(script)
    assert policy.reply is not None
    return policy.reply


def find_policy(name: str) -> Policy:
    """The policy of that name. Raises UsageError with the nearest name."""
    if name not in POLICIES:
        raise UsageError(f"There is no policy {name!r}.{nearest(name, POLICIES)}")
    return POLICIES[name]
