"""What environments with parameters share: a line's values checked, a suite's lines made."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evalkit.envs.environment import Parameter
from evalkit.errors import UsageError, nearest
from evalkit.seeds import Stream


def checked(parameters: Mapping[str, Parameter], name: str, value: Any) -> Any:
    """A parameter's value, of the right type; None where that is the default.

    Raises UsageError where it is of another type, out of range or no choice.
    """
    parameter = parameters[name]
    kind: Any = parameter.kind
    if value is None and parameter.default is None:
        return None
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise UsageError(f"{name}: expected {kind.__name__}, got {value!r}.")
    if parameter.choices and value not in parameter.choices:
        raise UsageError(f"{name}: there is no {value!r}.{nearest(str(value), parameter.choices)}")
    least, most = parameter.least, parameter.most
    # Asked in this way round, so that NaN is out of range.
    if not ((least is None or least <= value) and (most is None or value <= most)):
        raise UsageError(f"{name}: {value} is out of range ({least} to {'any' if most is None else most}).")
    try:
        return kind(value)
    except OverflowError:  # a whole number that no float holds, where there is no bound
        raise UsageError(f"{name}: {str(value)[:20]}... is out of range.") from None


def generated(
    environment: str,
    known: Mapping[str, Parameter],
    parameters: Mapping[str, Any],
    count: int,
    seed: int,
    *,
    families: Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
    """The lines of a suite's instances, lazily, not yet described: seeds keyed by place, families in turn unless one is
    asked for; with the reference's generator the seeds from `seed` on.

    Raises UsageError for unknown parameters, and for instances that are written out and not generated.
    """
    for name in parameters:
        if name not in known:
            raise UsageError(f"{name}: {environment} has no such parameter.{nearest(name, known)}")
    if parameters.get("generator") == "explicit":
        raise UsageError("generator: explicit instances are written, not generated; use 'native' or 'reference'.")
    return (_line(environment, parameters, index, seed, families) for index in range(count))


def _line(
    environment: str, parameters: Mapping[str, Any], index: int, seed: int, families: Sequence[str]
) -> dict[str, Any]:
    line = {name: value for name, value in parameters.items() if value is not None}
    if line.get("generator") == "reference":
        return line | {"id": f"seed-{seed + index}", "seed": seed + index}
    stem = line.setdefault("family", families[index % len(families)]) if families else "native"
    return line | {"id": f"{stem}-{index}", "seed": Stream(seed, environment, "instance", index).word() >> 1}


def check_explicit(line: Mapping[str, Any], names: Iterable[str], generator: str) -> None:
    """Raises UsageError where a line writes an instance out and says otherwise, or the other way round."""
    explicit = generator == "explicit"
    for name in names:
        if explicit != (name in line):
            flaw = "is missing" if explicit else f"needs generator 'explicit', not {generator!r}"
            raise UsageError(f"{name}: {flaw}.")


def text_field(line: Mapping[str, Any], name: str) -> str:
    """A text of a line; empty where it is not there. Raises UsageError."""
    value = line.get(name, "")
    if not isinstance(value, str):
        raise UsageError(f"{name}: expected a text, got {value!r}.")
    return value
