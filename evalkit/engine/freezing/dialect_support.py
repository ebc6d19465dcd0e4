"""Whether a provider's format can express what a sweep asks for: an agent's sampling, and the tools of its suites.
Checked when a sweep is read, so that no request fails because of it.

One instance of each stratum and number of tools represents the others: names and schemas of tools depend on nothing
else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from evalkit.dialogue import Sampling, Tool
from evalkit.envs.environment import Environment, Kit, Pack
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.money import FREE
from evalkit.spec.model import AgentSpec, Model, Provider, SuiteInstance
from evalkit.wire.extras import field_objections, unlisted
from evalkit.wire.table import DIALECTS

_NEUTRAL = Sampling()
"""Values of which nothing is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTools:
    """What tools a suite's requests offer."""

    suite: str
    environment: str
    most: int
    """How many a request offers at most."""
    samples: Sequence[Any]
    """The environment's instances that stand for all."""
    _known: dict[tuple[str, bool], Sequence[tuple[Tool, ...]]] = field(default_factory=dict)

    def tools(self, pack: Pack, *, notes: bool) -> Sequence[tuple[Tool, ...]]:
        """The different lists of tools that first requests offer to agents with this pack."""
        key = (pack.digest, notes)
        if key not in self._known:
            env: Environment[Any, Any] = ENVIRONMENTS[self.environment]
            kit = Kit(pack=pack, notes=notes)
            lists = [env.tools(env.start(instance, kit)) for instance in self.samples]
            self._known[key] = tuple({id(offered): offered for offered in lists}.values())
        return self._known[key]


def offer_of(suite: str, instances: Sequence[SuiteInstance]) -> OfferedTools:
    """What a suite of one environment offers."""
    env: Environment[Any, Any] = ENVIRONMENTS[instances[0].environment]
    samples: dict[tuple[str, int], Any] = {}
    for instance in instances:
        samples.setdefault((instance.stratum, env.offers(instance.instance)), instance.instance)
    most = max(count for _, count in samples)
    return OfferedTools(suite=suite, environment=env.name, most=most, samples=tuple(samples.values()))


def check_offer(provider: Provider, offer: OfferedTools) -> None:
    """Raises UsageError if a suite offers more tools than the provider takes."""
    if provider.most_tools is not None and offer.most > provider.most_tools:
        raise UsageError(
            f"a request of suite {offer.suite!r} offers up to {offer.most} tools, and the provider {provider.name!r} "
            f"takes {provider.most_tools}. Leave one of them out, or choose shorter instances."
        )


def marks_of(spec: AgentSpec, provider: Provider, model: Model, sampling: Sampling) -> list[str]:
    """What of an environment's defaults is not sent, in words.

    Raises UsageError for settings of the agent itself that cannot be sent, and for more tokens than the model has.
    """
    unsent = _unsent(provider, model)
    asked = {name for name, value in spec.overrides.items() if (name, value) != ("seed", False)}
    for name in sorted(unsent & asked):
        raise UsageError(f"{spec.lane} refuses `{name}`. Leave it out of the agent's table.")
    efforts = DIALECTS[provider.dialect].efforts
    if "effort" in asked and efforts and sampling.effort not in efforts:
        raise UsageError(f"{spec.lane}: effort must be one of {', '.join(efforts)}, not {sampling.effort!r}.")
    _check_extra(spec, provider, model, sampling)
    if model.context_tokens is not None and sampling.max_tokens >= model.context_tokens:
        raise UsageError(
            f"max_tokens is {sampling.max_tokens:,}, which leaves nothing for the prompt in the "
            f"{model.context_tokens:,} tokens of {spec.lane}. Choose a smaller one."
        )
    meant = {name: getattr(sampling, name) for name in sorted(unsent - {"seed"}) if hasattr(sampling, name)}
    refuser = {name: "model" if name in model.quirks.refuses else "API" for name in meant}
    return [
        f"{name} not sent: the {refuser[name]} refuses it" for name, value in meant.items() if value not in (None, "")
    ]


def check_words(
    spec: AgentSpec, provider: Provider, model: Model, sampling: Sampling, pack: Pack, offer: OfferedTools
) -> None:
    """Raises UsageError for what the dialect cannot express of a request in the suite."""
    dialect = DIALECTS[provider.dialect]
    left_out = {name: getattr(_NEUTRAL, name) for name in _unsent(provider, model) if hasattr(_NEUTRAL, name)}
    sent = sampling.with_overrides(left_out)
    for tools in offer.tools(pack, notes=spec.notes):
        objections = dialect.objections(sent, tools)
        if objections:
            raise UsageError(f"suite {offer.suite!r}: {' '.join(objections)}")


def _check_extra(spec: AgentSpec, provider: Provider, model: Model, sampling: Sampling) -> None:
    """Raises UsageError for further fields of which a model that costs money may make its requests dearer."""
    fields = DIALECTS[provider.dialect].extra_fields
    if model.price in (None, FREE) or field_objections(sampling.extra, fields):
        return
    names = unlisted(sampling.extra, fields, provider.extra_allowed)
    if names:
        raise UsageError(
            f"{spec.lane}: extra may not set {' or '.join(map(repr, names))}: not known to leave alone what is billed "
            "and how many answers come, so no budget could be kept. Leave it out. If your prices hold with it, "
            f"allow it in a providers/{provider.name}.toml of your own: extra_allowed = "
            f"[{', '.join(orjson.dumps(name).decode() for name in names)}]."
        )


def _unsent(provider: Provider, model: Model) -> frozenset[str]:
    """Fields of a sampling that no request to the model carries."""
    return model.quirks.refuses | DIALECTS[provider.dialect].lacks
