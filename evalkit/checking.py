"""An environment, checked: its record and its instances by themselves, and its episodes, played by models that talk,
that call, and that do everything wrong; then replayed.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from evalkit.dialogue import Message, Reply, Request
from evalkit.envs.environment import Environment, Facts, Kit, Pack, Parameter, Score
from evalkit.envs.lines import canonical, instance_digest
from evalkit.envs.replay import Position, Turn, advance, begin
from evalkit.errors import UsageError
from evalkit.policy.any_tool import any_tool
from evalkit.policy.conversation import PolicyFn
from evalkit.policy.noisy import hostile
from evalkit.replies import encode_reply
from evalkit.report.extras import metric_flaws, record_flaws
from evalkit.seeds import Stream, derive
from evalkit.spec.packs import VARIANTS, standard_pack
from evalkit.wire.dialect import Dialect
from evalkit.wire.table import DIALECTS


@contextmanager
def trying(where: str, what: str) -> Iterator[None]:
    """Whatever is raised within, but a finding, becomes one. Raises AssertionError."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as flaw:  # another's code: it may raise anything
        raise AssertionError(f"{where}: {what} raised {type(flaw).__name__}: {flaw}") from flaw


_NAME = re.compile(r"[a-z][a-z0-9_]*")


def check_record(env: Environment[Any, Any]) -> None:
    """Raises AssertionError if a field is not as it must be."""
    where = str(env.name)
    bare = where.rpartition(":")[2]
    assert _NAME.fullmatch(bare), (
        f"{where}: a name has lower-case letters, digits and _ only, and starts with a letter."
    )
    assert type(env.version) is int, f"{where}: version: expected a whole number, got {env.version!r}."
    assert env.version >= 1, f"{where}: version: must be at least 1, got {env.version}."
    low, high = env.score_range
    assert low < high, f"{where}: score_range: the lower end must be first, got {env.score_range}."
    assert not math.isnan(low + high), f"{where}: score_range: got {env.score_range}."
    shown = env.presentation
    if shown.scale == "litmus":
        ends = low <= 0 and shown.zero_means and shown.one_means
        assert ends, f"{where}: scale: a litmus test has both ends in score_range, `zero_means` and `one_means`."
    assert high >= 1, (
        f"{where}: score_range: must contain 1, the score of the optimum or of one end, got {env.score_range}."
    )
    for key, parameter in env.parameters.items():
        check_default(where, key, parameter)
    unknown = env.texts.later.keys() - env.texts.all.keys()
    assert not unknown, f"{where}: texts.later: {min(unknown)!r} is not one of its texts."
    for dialect in DIALECTS.built_in.values():
        objections = dialect.objections(env.defaults, ())
        assert not objections, f"{where}: defaults: {dialect.name} cannot express them: {' '.join(objections)}"
    with trying(where, "reading what the record names"):
        packs_of(env)
        flaws = record_flaws(env)
    assert not flaws, f"{where}: {flaws[0]}"


def check_default(where: str, key: str, parameter: Parameter) -> None:
    """Raises AssertionError if a parameter's own default is not one of its values."""
    value: Any = parameter.default
    location = f"{where}: parameters: {key}"
    assert parameter.kind in (int, float, str, bool), f"{location}: the kind must be int, float, str or bool."
    if value is None:
        return
    assert type(value) is parameter.kind or (parameter.kind is float and type(value) is int), (
        f"{location}: the default {value!r} does not match its kind."
    )
    if parameter.choices:
        assert value in parameter.choices, f"{location}: the default {value!r} is not one of its choices."
    assert _in_range(parameter, value), f"{location}: the default {value!r} is out of range."


def _in_range(parameter: Parameter, value: Any) -> bool:
    over = parameter.least is None or parameter.least <= value
    return over and (parameter.most is None or value <= parameter.most)


def packs_of(env: Environment[Any, Any]) -> tuple[Pack, ...]:
    """Its standard texts: plain, and for each variant in which they differ. Raises UsageError."""
    by_digest = {pack.digest: pack for pack in (standard_pack(env, variant) for variant in ("", *VARIANTS))}
    return tuple(by_digest.values())


# An environment's instances: generated alike for ever, loaded from lines, described as lines.

_ODD: tuple[Any, ...] = (None, True, -1, 10**12, 0.5, float("nan"), "", "odd", [], [[]], {}, {"a": 1})


def check_generator(env: Environment[Any, Any], count: int, seed: int) -> list[Mapping[str, Any]]:
    """The first lines that it generates. Raises AssertionError if they are not the same however they are made."""
    if not count:
        return []
    where = f"{env.name}: generate"

    def made(many: int, number: int) -> list[dict[str, Any]]:
        with trying(where, f"({{}}, {many}, {number})"):
            return [dict(line) for line in env.generate({}, many, number)]

    lines = made(count, seed)
    assert len(lines) == count, f"{where}: asked for {count} instances, made {len(lines)}."
    for line in lines:
        named = isinstance(line.get("id"), str)
        assert named, f"{where}: every line needs a string `id`, got {line.get('id')!r}."
    ids = [line["id"] for line in lines]
    assert len(set(ids)) == count, f"{where}: ids must be unique, got {ids}."
    assert _json(where, lines) == _json(where, made(count, seed)), f"{where}: the same seed gave different instances."
    more = made(count + 2, seed)[:count]
    flaw = "gave different instances when asked for more: key each draw by its place"
    assert _json(where, lines) == _json(where, more), f"{where}: {flaw}."
    with trying(where, "taking one of a million"):
        first = [dict(line) for line in islice(env.generate({}, 10**6, seed), 1)]
    assert _json(where, first) == _json(where, lines[:1]), f"{where}: {flaw}."
    return list(lines)


def _json(where: str, value: Any) -> bytes:
    with trying(where, "writing its lines as JSON"):
        return canonical(value)


def check_line(env: Environment[Any, Any], line: Mapping[str, Any]) -> Any:
    """The instance of a line. Raises AssertionError if loading or describing it is not as it must be."""
    where = f"{env.name}: line {line.get('id')!r}"
    named = str(line.get("environment")).rpartition(":")[2] == env.name.rpartition(":")[2]
    assert named, f"{where}: `environment` must be the environment's name, got {line.get('environment')!r}."
    before = _json(where, line)
    with trying(where, "load"):
        instance = env.load(line)
    with trying(where, "describe"):
        described = dict(env.describe(instance))
    text = _json(where, described)
    with trying(where, "loading what describe gave"):
        again = env.load(orjson.loads(text))
        twice = _json(where, dict(env.describe(again)))
    assert text == twice, f"{where}: it is described differently after it was described and loaded."
    assert _json(where, line) == before, f"{where}: `load` or `describe` changed the line in place."
    _check_properties(env, instance, described, where)
    _check_damaged(env, described, where)
    return instance


def _check_properties(env: Environment[Any, Any], instance: Any, line: Mapping[str, Any], where: str) -> None:
    with trying(where, "stratum or offers"):
        stratum, most = env.stratum(instance), env.offers(instance)
    assert isinstance(stratum, str), f"{where}: stratum: expected a string, got {stratum!r}."
    assert type(most) is int, f"{where}: offers: expected a whole number, got {most!r}."
    with trying(where, "what describes its suites"):
        numbers = [quantity.of(line) for quantity in env.presentation.described.quantities]
        numbers += [tally.of([line]) for tally in env.presentation.described.tallies]
        numbers += [size.of(instance) for size in env.presentation.described.sizes]
    for value in numbers:
        assert isinstance(value, int | float), f"{where}: the values that describe it must be numbers, got {value!r}."


def _check_damaged(env: Environment[Any, Any], line: Mapping[str, Any], where: str) -> None:
    """Each field in turn left out, and set to odd values: a line is loaded, or refused by UsageError."""
    for damaged, words in _damaged(line):
        with trying(where, f"load, with {words},"):
            loaded = _loaded(env, damaged)
        if loaded is not None:
            with trying(where, f"describe, of a line with {words} that load accepted,"):
                instance_digest(env.name, dict(env.describe(loaded)))


def _loaded(env: Environment[Any, Any], line: Mapping[str, Any]) -> Any:
    """The instance; None of a line that is refused as it must be."""
    try:
        return env.load(line)
    except UsageError:
        return None


def _damaged(line: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    yield {}, "nothing in it"
    for key in line:
        yield {name: value for name, value in line.items() if name != key}, f"{key!r} left out"
        yield from (({**line, key: odd}, f"{key!r} = {odd!r}") for odd in _ODD)


PATIENCE = 10
"""Times as many steps as an episode has at most, within which one that only talks must end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeCheck:
    """One episode to be played."""

    env: Environment[Any, Any]
    instance: Any
    name: str
    """The instance's id."""
    kit: Kit
    number: int
    """Among the instance's episodes: who plays."""
    seed: int
    most: int
    """Steps."""

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.env.name}: instance {self.name!r}, episode {self.number} (seed {self.seed})"

    @property
    def talks(self) -> bool:
        """Whether the model calls nothing."""
        return self.number == 0

    def reply(self, position: Position) -> Reply:
        """What the model says next."""
        if self.talks:
            return Reply(text="Let me think about it.")
        sampling = self.env.defaults
        seed = derive("check", self.seed, self.name, self.number, position.step)
        request = Request(messages=tuple(position.messages), tools=position.tools, sampling=sampling, seed=seed)
        play: PolicyFn = any_tool if self.number == 1 else hostile
        return play(request, Stream(seed, "check"))


def check_episode(check: EpisodeCheck) -> None:
    """Play it and replay it. Raises AssertionError at the first thing that is not as it must be."""
    with trying(check.where, "start, opening or tools"):
        position = begin(check.env, check.instance, check.kit)
    turns, replies = list[Turn](), list[Reply]()
    _check_shown(check, position, position.messages, "opening")
    _check_opening(check, position.messages)
    while not position.ending and len(turns) < check.most * (PATIENCE if check.talks else 1):
        replies.append(check.reply(position))
        turns.append(_step(check, position, replies[-1]))
    ended = bool(position.ending) or not check.talks
    assert ended, f"{check.where}: the episode has not ended after {len(turns)} replies without a tool call."
    _check_replay(check, turns, replies)
    _check_score(check, [turn.facts_bytes for turn in turns])


def _step(check: EpisodeCheck, position: Position, reply: Reply) -> Turn:
    """One reply: the engine's step, and around it what must hold of it."""
    where = f"{check.where}, step {position.step}"
    action = f"step, after the reply {reply!r:.300},"
    before, chat = position.state, len(position.messages)
    with trying(where, action):
        first = check.env.step(before, reply)[1]
        turn = advance(check.env, position, reply, encode_reply(reply))
        again = check.env.step(before, reply)[1]
    same = orjson.dumps(first.facts, option=orjson.OPT_SORT_KEYS) == turn.facts_bytes
    assert same, f"{where}: the same state and reply gave different facts: {first.facts!r}, then {turn.facts!r}."
    same = first == again
    assert same, f"{where}: a step changed the state in place: the same reply then gave {again!r:.300}."
    _check_facts(where, reply, turn)
    assert turn.acted in (True, False), f"{where}: acted: expected true or false, got {turn.acted!r}."
    silent = turn.acted and not reply.calls and not check.env.talk
    assert not silent, f"{where}: acted: it called nothing, so set `talk` if a text alone can be a valid action."
    assert isinstance(position.ending, str), f"{where}: ended: expected a string, got {position.ending!r}."
    _check_shown(check, position, turn.messages, f"step {turn.step}")
    if position.ending:
        return turn
    if turn.new_chat:
        _check_opening(check, position.messages)
    else:
        answered = [message.call_id for message in turn.messages if message.role == "tool"]
        wanted = [call.id for call in reply.calls]
        assert answered == wanted, f"{where}: calls {wanted} got answers for {answered}: answer each call, in order."
        assert len(position.messages) == chat + 1 + len(turn.messages), f"{where}: it changed the chat in place."
    fresh = check.env.tools(position.state)
    kept = fresh is position.tools or fresh != position.tools
    assert kept, f"{where}: tools: return the same tuple object as long as the tools do not change."
    return turn


def _check_facts(where: str, reply: Reply, turn: Turn) -> None:
    facts = turn.facts
    plain = orjson.loads(turn.facts_bytes)
    assert plain == facts, f"{where}: facts must be JSON values, but are different when read back: {facts!r:.300}."
    calls = plain.get("calls", [])
    assert isinstance(calls, list), f"{where}: facts: calls: expected a list, got {calls!r:.200}."
    for call in calls:
        typed = isinstance(call, dict) and isinstance(call.get("tool"), str) and isinstance(call.get("outcome"), str)
        assert typed, f"{where}: facts: calls: each needs a `tool` and an `outcome` as strings, got {call!r:.200}."
    bound = f"{where}: facts grow with the model's text ({len(turn.facts_bytes):,} bytes): shorten it."
    assert len(turn.facts_bytes) < 100_000 + 2_000 * len(reply.calls), bound


def _check_opening(check: EpisodeCheck, messages: Sequence[Message]) -> None:
    roles = [message.role for message in messages]
    assert roles, f"{check.where}: the opening has no messages."
    assert roles[-1] == "user", f"{check.where}: the opening must end with a user message, got {roles}."
    assert "assistant" not in roles, f"{check.where}: the opening must not contain replies, got {roles}."
    for key, fields in check.env.texts.all.items():
        for field in fields & _unfilled(messages):
            raise AssertionError(f"{check.where}: the opening still contains {{{field}}}, a field of the text {key!r}.")


def _unfilled(messages: Sequence[Message]) -> set[str]:
    return {part.partition("}")[0] for message in messages for part in message.text.split("{")[1:] if "}" in part}


def _check_shown(check: EpisodeCheck, position: Position, messages: Sequence[Message], what: str) -> None:
    """What the model is shown and offered can be said in every dialect."""
    where = f"{check.where}, {what}"
    assert type(position.period) is int, f"{where}: period: expected a whole number, got {position.period!r}."
    for message in messages:
        typed = isinstance(message, Message) and isinstance(message.text, str)
        assert typed, f"{where}: expected messages, got {message!r:.200}."
    if position.ending:
        return
    most, count = check.env.offers(check.instance), len(position.tools)
    assert count <= most, f"{where}: {count} tools are offered, but `offers` allows at most {most}."
    for dialect in DIALECTS.built_in.values():
        _check_dialect(check, dialect, position, messages, where)


def _check_dialect(
    check: EpisodeCheck, dialect: Dialect, position: Position, messages: Sequence[Message], where: str
) -> None:
    objections = dialect.objections(check.env.defaults, position.tools)
    assert not objections, f"{where}: {dialect.name} cannot express its tools: {' '.join(objections)}"
    with trying(where, f"writing it in {dialect.name}"):
        dialect.encode_tools(position.tools)
        dialect.join([], messages)


def _check_replay(check: EpisodeCheck, turns: Sequence[Turn], replies: Sequence[Reply]) -> None:
    with trying(check.where, "replaying it"):
        position = begin(check.env, check.instance, check.kit)
        for turn, reply in zip(turns, replies, strict=True):
            again = advance(check.env, position, reply, encode_reply(reply))
            where = f"{check.where}, step {turn.step}"
            for name in ("facts_bytes", "observation_digest", "request_digest", "step_digest", "ending"):
                same = getattr(again, name) == getattr(turn, name)
                assert same, (
                    f"{where}: a replay from the start gave a different {name}: something other than the "
                    "replies decides it."
                )


def _check_score(check: EpisodeCheck, logged: Sequence[bytes]) -> None:
    """Of the whole episode, and of some of its beginnings, for an episode may end there."""
    for many in dict.fromkeys((0, 1, len(logged) // 2, len(logged))):
        where = f"{check.where}, score of its first {many} replies"
        facts: list[Facts] = [orjson.loads(text) for text in logged[:many]]
        with trying(where, "score"):
            score = check.env.score(check.instance, facts)
            again = check.env.score(check.instance, [orjson.loads(text) for text in logged[:many]])
        same = [orjson.dumps(fact, option=orjson.OPT_SORT_KEYS) for fact in facts] == list(logged[:many])
        assert same, f"{where}: score changed the facts in place."
        _check_values(check, score, where)
        assert score == again, f"{where}: the same facts gave {score!r}, then {again!r}."


def _check_values(check: EpisodeCheck, score: Score, where: str) -> None:
    low, high = check.env.score_range
    value = score.value
    number = isinstance(value, int | float) and math.isfinite(value)
    assert number, f"{where}: expected a finite number, got {value!r}."
    assert low <= value <= high, f"{where}: {value} is outside score_range, {low} to {high}."
    assert score.solved in (True, False), f"{where}: solved: expected true or false, got {score.solved!r}."
    solved = score.solved and check.env.presentation.scale == "litmus"
    assert not solved, f"{where}: solved: a litmus test claims no optimum, so it is false."
    for name, metric in score.metrics.items():
        finite = isinstance(metric, int | float) and math.isfinite(metric)
        assert finite, (
            f"{where}: metrics: {name}: expected a finite number, got {metric!r}. Leave out an undefined one."
        )
    flaws = metric_flaws(score.metrics)
    assert not flaws, f"{where}: {flaws[0]}"
