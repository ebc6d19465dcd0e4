"""`check_environment` finds nothing wrong where nothing is, and each thing that is wrong elsewhere."""

import doctest
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from evalkit import testing
from evalkit.dialogue import Message, Reply, Tool
from evalkit.envs.environment import (
    ActionShare,
    Environment,
    InstanceSize,
    Observation,
    Opening,
    Parameter,
    Presentation,
    Score,
    SuiteDescription,
)
from evalkit.envs.table import OWN_ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.testing import check_environment
from tests.support.guessing_game import GUESSING

Env = Environment[Any, Any]
LINE = {"id": "i0", "environment": "guessing", "value": 4, "family": "even"}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Env]:
    """A copy of the guessing game that is right in everything."""
    place = tmp_path_factory.mktemp("texts")
    (place / "guessing_texts").mkdir()
    (place / "guessing_texts" / "__init__.py").write_text("")
    (place / "guessing_texts" / "texts.toml").write_text('[guessing]\nsystem = "Guess the number."\n')
    sys.path.insert(0, str(place))

    def load(line: Mapping[str, Any]) -> Any:
        value, family = line.get("value"), line.get("family")
        if type(value) is not int or not 0 <= value <= 9 or not isinstance(family, str):
            raise UsageError(f"value: got {value!r}")
        return GUESSING.load({"value": value, "family": family})

    def step(state: Any, reply: Reply) -> tuple[Any, Observation]:
        state, seen = GUESSING.step(state, reply)
        calls = [{**call, "tool": call["tool"][:64]} for call in seen.facts["calls"]]
        return state, replace(seen, facts={**seen.facts, "calls": calls})

    yield replace(
        GUESSING,
        texts=replace(GUESSING.texts, standard="guessing_texts:texts.toml"),
        load=load,
        step=step,
        describe=lambda one: {"id": "i0", "environment": "guessing", **GUESSING.describe(one)},
        generate=lambda _, count, seed: (
            {"id": f"i{i}", "environment": "guessing", "value": (seed + i) % 10, "family": "f"} for i in range(count)
        ),
        offers=lambda _: 2,
        score_range=(0.0, 1.0),
    )
    sys.path.remove(str(place))


def test_nothing_is_wrong_with_what_is_right(good: Env) -> None:
    check_environment(good, lines=[LINE])


@pytest.mark.parametrize("name", [name for name, env in OWN_ENVIRONMENTS.items() if env.parameters])
def test_nothing_is_wrong_with_our_own(name: str) -> None:
    check_environment(OWN_ENVIRONMENTS[name], instances=2, episodes=4, most_steps=60)


def test_its_own_examples_are_true() -> None:
    found = doctest.testmod(testing, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert (found.attempted >= 5, found.failed) == (True, 0)


NUMBERS = itertools.count()
"""Never the same number twice: what a clock or a global generator is to an environment."""


def stepping(change: Callable[[Any, Reply, Any, Observation], tuple[Any, Observation]]) -> Callable[[Env], Env]:
    """The environment with its steps changed."""

    def broken(env: Env) -> Env:
        def step(state: Any, reply: Reply) -> tuple[Any, Observation]:
            return change(state, reply, *env.step(state, reply))

        return replace(env, step=step)

    return broken


def facts(**more: Any) -> Callable[[Env], Env]:
    """The environment with further facts."""
    return stepping(lambda _, __, state, seen: (state, replace(seen, facts={**seen.facts, **more})))


def raising(state: Any, reply: Reply, after: Any, seen: Observation) -> tuple[Any, Observation]:
    """Trust the model's arguments."""
    for call in reply.calls:
        if call.name == "guess":
            json.loads(call.arguments)["value"]
    return after, seen


def in_place(env: Env) -> Env:
    """Count steps in a state that is shared."""
    held = {"steps": 0}

    def step(state: Any, reply: Reply) -> tuple[Any, Observation]:
        held["steps"] += 1
        state, seen = env.step(state, reply)
        return state, replace(seen, facts={**seen.facts, "steps": held["steps"]})

    return replace(env, step=step)


def scoring(value: Callable[[Score, Any], Score]) -> Callable[[Env], Env]:
    """The environment with another score."""
    return lambda env: replace(env, score=lambda one, logged: value(env.score(one, logged), logged))


def spoiling(score: Score, logged: Any) -> Score:
    """Score, and change what was logged."""
    for one in logged:
        one["calls"] = []
    return score


def drawing_from_one_stream(env: Env) -> Env:
    """Make all instances of one sequence that depends on how many there are."""
    return replace(
        env,
        generate=lambda _, count, seed: (
            {"id": f"i{i}", "environment": "guessing", "value": (seed + i + count) % 10, "family": "f"}
            for i in range(count)
        ),
    )


def another_message(role: Any, text: str) -> Callable[[Env], Env]:
    """The environment with another opening."""
    said = (Message(role=role, text=text),)
    return lambda env: replace(env, opening=lambda state: Opening(messages=(*env.opening(state).messages, *said)))


def worded(env: Env, **changes: Any) -> Env:
    return replace(env, texts=replace(env.texts, **changes))


def shown(env: Env, **changes: Any) -> Env:
    return replace(env, presentation=Presentation(**changes))


def litmus(env: Env) -> Env:
    """The game on a scale without an optimum, though it is still solved."""
    score = scoring(lambda score, _: replace(score, solved=True))(env).score
    return replace(
        env,
        score=score,
        score_range=(0.0, 1.0),
        presentation=Presentation(scale="litmus", zero_means="patience", one_means="haste"),
    )


def talking(state: Any, reply: Reply) -> tuple[Any, Observation]:
    """A step that takes words for an action."""
    after, seen = GUESSING.step(state, reply)
    return after, msgspec.structs.replace(seen, acted=True)


BROKEN: Mapping[str, tuple[Callable[[Env], Env], str]] = {
    "a step that raises": (stepping(raising), r"instance 'i0', episode \d .*step \d+: step, after the reply .* raised"),
    "a state that is changed in place": (in_place, "the same state and reply gave different facts"),
    "facts that are no JSON": (facts(at=object()), "raised TypeError"),
    "facts that are different when read back": (facts(pair=(1, 2)), "different when read back"),
    "calls without an outcome": (facts(calls=[{"tool": "x"}]), "each needs a `tool` and an `outcome`"),
    "facts that hold the model's text": (
        stepping(lambda _, reply, state, seen: (state, replace(seen, facts={**seen.facts, "said": str(reply) * 99}))),
        "facts grow with the model's text",
    ),
    "a call that nobody answers": (
        stepping(lambda _, __, state, seen: (state, replace(seen, messages=seen.messages[1:]))),
        "answer each call, in order",
    ),
    "something else than replies that decides": (
        lambda env: replace(
            env, opening=lambda state: Opening(messages=(Message(role="user", text=f"{next(NUMBERS)}"),))
        ),
        "something other than the replies decides it",
    ),
    "a model that only talks and never ends": (
        lambda env: replace(
            env,
            step=lambda state, reply: (
                env.step(state, reply) if reply.calls else (state, Observation(messages=(), facts={"calls": []}))
            ),
        ),
        "the episode has not ended after 300 replies without a tool call",
    ),
    "an opening that the user does not end": (another_message("system", "x"), "must end with a user message"),
    "an opening with an answer": (
        lambda env: replace(
            env, opening=lambda state: Opening(messages=(Message(role="assistant"), *env.opening(state).messages))
        ),
        "must not contain replies",
    ),
    "a field that is not filled in": (
        lambda env: another_message("user", "Up to {most}.")(
            replace(env, texts=replace(env.texts, all={"system": frozenset({"most"})}))
        ),
        "still contains {most}",
    ),
    "a tool that no dialect can say": (
        lambda env: replace(
            env,
            tools=lambda _: (Tool(name="no spaces", description="", parameters={"type": "object", "properties": {}}),),
        ),
        "cannot express its tools: The tool name 'no spaces' is not allowed",
    ),
    "more tools than it says": (
        lambda env: replace(env, offers=lambda _: 1),
        "2 tools are offered, but `offers` allows at most 1",
    ),
    "other tools each time": (
        lambda env: replace(env, tools=lambda state: (*GUESSING.tools(state),)),
        "the same tuple object as long as",
    ),
    "a score out of its range": (scoring(lambda score, _: replace(score, value=1.5)), "1.5 is outside score_range"),
    "a litmus test that is solved": (litmus, "solved: a litmus test claims no optimum"),
    "a litmus test that names one end": (
        lambda env: replace(litmus(env), presentation=Presentation(scale="litmus", zero_means="patience")),
        "scale: a litmus test has both",
    ),
    "a text that acts": (
        lambda env: replace(env, step=talking),
        "acted: it called nothing, so set `talk`",
    ),
    "a score that is no number": (scoring(lambda score, _: replace(score, value=float("nan"))), "a finite number"),
    "a score that is not pure": (
        scoring(lambda score, _: replace(score, value=1 / (2 + next(NUMBERS)))),
        "the same facts gave",
    ),
    "a score that changes facts": (scoring(spoiling), "changed the facts in place"),
    "a metric of ours": (
        scoring(lambda score, _: replace(score, metrics={"solved": 1.0})),
        "'solved', which is evalkit's",
    ),
    "a metric that is no number": (scoring(lambda score, _: replace(score, metrics={"x": float("inf")})), "metrics: x"),
    "a generator whose instances depend on their number": (drawing_from_one_stream, "key each draw by its place"),
    "a generator with another seed each time": (
        lambda env: replace(env, generate=lambda p, n, _: env.generate(p, n, next(NUMBERS))),
        "the same seed gave different instances",
    ),
    "ids that are not unique": (
        lambda env: replace(env, generate=lambda _, count, seed: ({**LINE} for _ in range(count))),
        "ids must be unique",
    ),
    "a load that trusts its line": (lambda env: replace(env, load=GUESSING.load), "load, with .* raised KeyError"),
    "a description that is not complete": (
        lambda env: replace(env, describe=lambda one: {"id": "i0", "value": one.value}),
        "loading what describe gave raised UsageError",
    ),
    "a version that is none": (lambda env: replace(env, version=0), "version: must be at least 1"),
    "a name with capitals": (lambda env: replace(env, name="Guessing"), "a name has lower-case letters"),
    "a range upside down": (lambda env: replace(env, score_range=(1.0, 0.0)), "score_range"),
    "a default that is no choice": (
        lambda env: replace(env, parameters={"n": Parameter(kind=int, help="", default=3, choices=(1, 2))}),
        "parameters: n: the default 3",
    ),
    "texts that are not there": (
        lambda env: worded(env, standard="guessing_texts:none.toml"),
        "no such file",
    ),
    "texts that are not complete": (
        lambda env: worded(env, all={**env.texts.all, "user": frozenset()}),
        "guessing lacks user",
    ),
    "a report that is not there": (
        lambda env: shown(env, report="nowhere.report:EXTRAS"),
        "cannot be imported",
    ),
    "a share that is a column of ours": (
        lambda env: shown(env, shares={"episodes": ActionShare(title="E", about="all")}),
        "shares: 'episodes' is a column of evalkit's own",
    ),
    "a size that is a column of ours": (
        lambda env: shown(
            env, described=SuiteDescription(sizes=(InstanceSize(key="tools", title="T", of=lambda _: 1),))
        ),
        "sizes: 'tools' is a column of evalkit's own",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_wrong_is_found_and_said(good: Env, what: str) -> None:
    broken, words = BROKEN[what]
    with pytest.raises(AssertionError, match=words) as told:
        check_environment(broken(good), most_steps=30)
    assert str(told.value).lower().startswith("guessing")


def test_lines_alone_are_enough(good: Env) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("generated")

    check_environment(replace(good, generate=refuse), lines=[LINE], instances=0)
    with pytest.raises(AssertionError, match="nothing can be played"):
        check_environment(good, instances=0)


def test_a_line_of_another_environment_is_none(good: Env) -> None:
    with pytest.raises(AssertionError, match="`environment` must be the environment's name, got 'pricing'"):
        check_environment(good, lines=[{**LINE, "environment": "pricing"}], instances=0)
