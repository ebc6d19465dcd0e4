"""An environment's record by itself: its fields, its texts, and what it names elsewhere."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from evalkit.envs.environment import Environment, Pack, Parameter
from evalkit.report.extras.record import record_flaws
from evalkit.spec.packs import VARIANTS, standard_pack
from evalkit.wire.table import DIALECTS

# Calling another's code, so that what it raises is told as a finding.


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
