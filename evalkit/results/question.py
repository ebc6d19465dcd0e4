"""What a run is to find out, as it is frozen before its first episode: from a sweep's `[decide]` and the run's plan."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.results.draws import turn_of
from evalkit.spec.decide import ALPHA, POINTS, Decide
from evalkit.stats.deciding import Inquiry, question
from evalkit.stats.evidence import BETS_VERSION, Bounds
from evalkit.store.instances import laid
from evalkit.store.manifest import Manifest, ManifestSuite
from evalkit.store.question_files import VERSION, FrozenQuestion, FrozenSuite


def freeze_question(manifest: Manifest, decide: Decide) -> FrozenQuestion:
    """A sweep's question about a run as it is planned. Raises UsageError where it cannot be answered."""
    agents = tuple(manifest.agents)
    suites = [
        suite
        for suite in manifest.suites.values()
        if all(suite.environment in agent.packs for agent in manifest.agents.values())
    ]
    if not suites:
        raise UsageError("decide: there is no suite that all agents play, so nothing can be compared.")
    if decide.about == "instances like these" and manifest.order.key is None:
        raise UsageError(
            "decide.about: the instances of this run come in the order of their list, which may carry their "
            'difficulty. Ask about "this suite", or start a run of its own with --name.'
        )
    asked, frozen = _inquiry(decide, agents, _bounds(suites)), _suites(decide, suites)
    return FrozenQuestion(
        version=VERSION,
        about=decide.about,
        agents=agents,
        asked=asked.asked,
        pairs=asked.pairs,
        margin=asked.margin,
        alpha=asked.alpha,
        alpha_each=asked.alpha_each,
        precision=dict(asked.precision),
        scores=(asked.scores.least, asked.scores.most),
        bets=BETS_VERSION,
        key=manifest.order.key,
        suites=frozen,
    )


def _suites(decide: Decide, suites: Sequence[ManifestSuite]) -> tuple[FrozenSuite, ...]:
    """The suites, each with what a turn has of its strata."""
    sizes = [(suite, stratum, size) for suite in suites for stratum, size in laid(suite.instances).strata.items()]
    counts = [size for *_, size in sizes]
    if decide.about == "instances like these":
        counts = list(turn_of(counts))
    strata: dict[str, dict[str, int]] = {suite.name: {} for suite in suites}
    for (suite, stratum, _), count in zip(sizes, counts, strict=True):
        strata[suite.name][stratum] = count
    return tuple(FrozenSuite(name=suite.name, digest=suite.digest, strata=strata[suite.name]) for suite in suites)


def _bounds(suites: Sequence[ManifestSuite]) -> Bounds:
    """From where to where scores count.

    Chosen: where scores have no lower end, those below 0 count as 0, and those above 1, where they have no upper end,
    as 1. Without two bounds that were fixed beforehand nothing would hold at every look.
    """
    ranges = [ENVIRONMENTS[suite.environment].score_range for suite in suites]
    return Bounds(
        least=min(least if math.isfinite(least) else 0.0 for least, _ in ranges),
        most=max(most if math.isfinite(most) else 1.0 for _, most in ranges),
    )


def _inquiry(decide: Decide, agents: Sequence[str], scores: Bounds) -> Inquiry:
    """Raises UsageError."""
    half = decide.precision
    try:
        return question(
            agents,
            pairs=decide.pairs,
            margin=decide.margin / POINTS,
            alpha=ALPHA,
            scores=scores,
            precision={} if half is None else dict.fromkeys(agents, half / POINTS),
        )
    except ValueError as flaw:
        raise UsageError(f"decide: {flaw} (100 points are 1).") from flaw


def changes(frozen: FrozenQuestion, now: FrozenQuestion) -> Mapping[str, tuple[Any, Any]]:
    """What a sweep asks differently now: by key, what it was and what it is."""
    names = ("about", "asked", "pairs", "margin", "alpha", "precision", "scores", "agents", "key")
    found = {name: (getattr(frozen, name), getattr(now, name)) for name in names}
    found["suites"] = tuple(one.name for one in frozen.suites), tuple(one.name for one in now.suites)
    found["instances"] = frozen.suites, now.suites
    return {name: (was, is_now) for name, (was, is_now) in found.items() if was != is_now}
