"""A suite line's values checked against an environment's parameters."""

from collections.abc import Mapping
from typing import Any

from evalkit.env.environment import Parameter
from evalkit.errors import UsageError, nearest


def checked(parameters: Mapping[str, Parameter], name: str, value: Any) -> Any:
    """A parameter's value, of the right type; None where that is the default.

    Raises UsageError where it is of another type, out of range or no choice.
    """
    parameter = parameters[name]
    kind: Any = parameter.kind
    if value is None and parameter.default is None:
        return None
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise UsageError(f"{name}: expected {kind.__name__}, got {value!r}.")
    if parameter.choices and value not in parameter.choices:
        raise UsageError(f"{name}: there is no {value!r}.{nearest(str(value), parameter.choices)}")
    least, most = parameter.least, parameter.most
    # Asked in this way round, so that NaN is out of range.
    if not ((least is None or least <= value) and (most is None or value <= most)):
        raise UsageError(f"{name}: {value} is out of range ({least} to {'any' if most is None else most}).")
    return value
