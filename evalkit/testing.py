"""Tests for a package that contains an environment.

    >>> from evalkit.envs.table import ENVIRONMENTS
    >>> from evalkit.testing import check_environment
    >>> check_environment(ENVIRONMENTS["scheduling"], instances=1, episodes=2)

A package's own tests pass its own record: `check_environment(OFFERS)`. The package need not be installed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evalkit.checking import EpisodeCheck, check_episode, check_generator, check_line, check_record, packs_of
from evalkit.dialogue import Request, Sampling
from evalkit.envs.environment import Environment, Kit, Score
from evalkit.envs.replay import advance, begin
from evalkit.policy.conversation import PolicyFn
from evalkit.replies import encode_reply
from evalkit.seeds import Stream
from evalkit.spec.packs import standard_pack

__all__ = ["check_environment", "play_policy", "standard_kit"]


def check_environment(
    env: Environment[Any, Any],
    *,
    lines: Iterable[Mapping[str, Any]] = (),
    instances: int = 3,
    episodes: int = 6,
    most_steps: int = 120,
    seed: int = 0,
) -> None:
    """Check everything that the engine, the log and the report rely on. Raises AssertionError, which says what is wrong
    and where.

    lines       suite lines to play in addition to those that the environment generates
    instances   how many it generates (with its parameters at their defaults)
    episodes    how many are played of each instance: one in which the model writes only text, one that calls tools by
                their schemas, and others with every mistake that models make
    most_steps  the maximum number of replies; the episode with only text must end by itself within ten times as many
    seed        of all draws: equal seeds play equal episodes

    It checks the fields of the record, its standard texts and its report. Equal seeds must generate equal instances,
    however many are made. A line must stay the same when it is loaded and described, and damaged lines must be refused
    with UsageError. `step` must not raise or change a state in place. Facts must be JSON, every call must be answered,
    every dialect must be able to express openings and tools, and no more tools than `offers` may be offered. The same
    replies must lead to the same digests. `score` must be a pure function of facts as a log holds them, within
    `score_range`, and its metrics must not clash with other names. This takes about a second for a small environment.

    >>> from dataclasses import replace
    >>> from evalkit.envs.table import ENVIRONMENTS
    >>> check_environment(replace(ENVIRONMENTS["scheduling"], score_range=(0.9, 1.0)), instances=1, episodes=2)
    Traceback (most recent call last):
        ...
    AssertionError: scheduling: instance 'uniform-0', episode 0 ... is outside score_range, 0.9 to 1.0.
    """
    check_record(env)
    held = [*lines, *check_generator(env, instances, seed)]
    assert held, f"{env.name}: it generates no instances, and no lines were given: nothing can be played."
    for line in held:
        instance = check_line(env, line)
        for number, kit in zip(range(episodes), _kits(env), strict=False):
            about = EpisodeCheck(
                env=env, instance=instance, name=str(line["id"]), kit=kit, number=number, seed=seed, most=most_steps
            )
            check_episode(about)


def play_policy(
    env: Environment[Any, Any], line: Mapping[str, Any], policy: PolicyFn, *, seed: int = 0, most_steps: int = 10_000
) -> Score:
    """The score of one episode that a policy plays, under the environment's standard texts: no model, no run, no log.

    line    of a suite, or of what the environment generates
    seed    of the policy's draws

    Raises UsageError for a line that is refused, AssertionError for an episode that has not ended after `most_steps`.

    >>> from evalkit.dialogue import Reply
    >>> from evalkit.envs.table import ENVIRONMENTS
    >>> env = ENVIRONMENTS["scheduling"]
    >>> (line,) = env.generate({"k": 2, "periods": 1}, 1, 7)
    >>> play_policy(env, line, lambda request, draws: Reply(text="hello")).value
    0.0
    """
    instance, facts = env.load(line), []
    position = begin(env, instance, standard_kit(env))
    while not position.ending:
        assert position.step < most_steps, f"{env.name}: {line['id']!r} has not ended after {most_steps} replies."
        request = Request(
            messages=tuple(position.messages), tools=position.tools, sampling=Sampling(), seed=position.step
        )
        reply = policy(request, Stream(seed, str(line["id"]), position.step))
        facts.append(advance(env, position, reply, encode_reply(reply)).facts)
    return env.score(instance, facts)


def standard_kit(env: Environment[Any, Any], *, notes: bool = True) -> Kit:
    """An environment's standard texts, to start an episode with. Raises UsageError if they are not complete.

    >>> from evalkit.envs.table import ENVIRONMENTS
    >>> standard_kit(ENVIRONMENTS["scheduling"]).pack.name
    'standard'
    """
    return Kit(pack=standard_pack(env), notes=notes)


def _kits(env: Environment[Any, Any]) -> Iterator[Kit]:
    """Texts of each variant in turn, with notes and without, endlessly."""
    while True:
        for notes in (True, False):
            for pack in packs_of(env):
                yield Kit(pack=pack, notes=notes)
