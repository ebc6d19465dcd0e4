"""An instance's line as a msgspec struct: names, defaults, bounds and what they mean are written once, in its types.

    class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        id: str = ""
        sellers: Annotated[int, Meta(ge=1, le=50, description="how many offers")] = 8

A field with a description is a parameter: `vary` and `suites generate` know it. `read_line` reads a line and says
what is wrong with one: the field, its value, and what it may be, in the words of a `title` where the type has none.
"""

import types
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Generator as Yields
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from evalkit.envs.environment import Parameter
from evalkit.errors import UsageError, WeakInstanceError, nearest
from evalkit.seeds import Stream

LineT = TypeVar("LineT", bound=msgspec.Struct)

NO_FIELD = "there is no such field"

MOST_SHOWN = 100
"""Characters of a wrong value in an error."""

_WORDS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a string",
    dict: "an object",
    list: "a list",
    tuple: "a list",
}

_SCALARS = frozenset({int, float, bool, str})

Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Periods = Annotated[int, Meta(ge=1, le=10**6)]
Queries = Annotated[int, Meta(ge=1, le=10**4, description="requests a period at most")]
Generator = Literal["reference", "native", "explicit"]
NoAction = Literal["keep", "restart"]


def read_line(line: Mapping[str, Any], kind: type[LineT], environment: str) -> LineT:
    """A suite's line. Raises UsageError naming the field that is wrong, its value, and what it may be."""
    record: LineT = read_part(line, kind, "", f"a {environment} instance has no such field")
    return record


def read_part(value: object, kind: Any, where: str, unknown: str = NO_FIELD) -> Any:
    """A part of a line, or one parameter, as a value of that type. Raises UsageError as `read_line` does."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as flaw:
        raise UsageError(_flaw(value, kind, where, unknown)) from flaw


def checked(parameters: Mapping[str, Parameter], name: str, value: Any) -> Any:
    """A parameter's value, of the right type; None if that is the default.

    Raises UsageError if it has another type, is out of range, or is not one of the choices.
    """
    parameter = parameters[name]
    kind: Any = Annotated[parameter.kind, Meta(ge=parameter.least, le=parameter.most)]
    value = read_part(value, kind | None if parameter.default is None else kind, name)
    if parameter.choices and value is not None and value not in parameter.choices:
        raise UsageError(f"{name}: there is no {value!r}.{nearest(str(value), parameter.choices)}")
    return value


def parameters_of(
    line: type[msgspec.Struct], **files: Callable[[Mapping[str, Any], str], object]
) -> dict[str, Parameter]:
    """The parameters of a line: its fields that have a description. `files`: by name, what checks a value that is given
    as a TOML file."""
    known = {}
    for field in msgspec.structs.fields(line):
        plain, meta = _unwrapped(field.type)
        if "description" in meta:
            choices = get_args(plain) if get_origin(plain) is Literal else ()
            known[field.encode_name] = Parameter(
                kind=str if choices else next(iter(get_args(plain)), plain),  # of several, the first
                help=meta["description"],
                default=field.default,
                least=meta.get("ge"),
                most=meta.get("le"),
                choices=choices,
                file=files.get(field.encode_name),
            )
    return known


def written(line: msgspec.Struct, names: Iterable[str], sparse: Container[str] = ()) -> dict[str, Any]:
    """Fields of a line as plain values, in this order. Those without a value are left out, and sparse ones at their
    default."""
    defaults = _defaults(type(line))
    values = ((name, getattr(line, name)) for name in names)
    return {
        name: value if type(value) in _SCALARS else msgspec.json.decode(msgspec.json.encode(value))
        for name, value in values
        if value is not None and not (name in sparse and value == defaults[name])
    }


@lru_cache(maxsize=64)
def _defaults(line: type[msgspec.Struct]) -> Mapping[str, Any]:
    return {field.name: field.default for field in msgspec.structs.fields(line)}


def _unwrapped(kind: Any) -> tuple[Any, dict[str, Any]]:
    """(type without None and annotations, what its annotations say)."""
    meta: dict[str, Any] = {}
    while True:
        if get_origin(kind) is Annotated:
            for note in kind.__metadata__:
                told = {name: getattr(note, name, None) for name in ("ge", "le", "title", "description")}
                meta |= {name: value for name, value in told.items() if value is not None}
            kind = kind.__origin__
        elif get_origin(kind) in (Union, types.UnionType):
            options = [option for option in get_args(kind) if option is not type(None)]
            if len(options) > 1:
                return kind, meta
            (kind,) = options
        else:
            return kind, meta


def _flaw(value: object, kind: Any, where: str, unknown: str) -> str:
    """What is wrong with a value, and where; empty if nothing is."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        plain, meta = _unwrapped(kind)
        inner = next(filter(None, _inner(value, plain, where, unknown)), "")
        return inner or f"{where}: {_wrong(value, plain, meta)}"
    return ""


def _inner(value: object, kind: Any, where: str, unknown: str) -> Iterator[str]:
    """The flaws of a value's parts."""
    arguments = get_args(kind)
    if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        known = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        for key in value:
            if key not in known:
                yield f"{_under(where, key)}: {unknown}.{nearest(str(key), known)}"
        for name, field in known.items():
            if name in value:
                yield _flaw(value[name], field.type, _under(where, name), NO_FIELD)
            elif field.required:
                yield f"{_under(where, name)}: is missing."
    elif isinstance(value, Mapping) and get_origin(kind) is dict:
        for key, part in value.items():
            yield _flaw(part, arguments[1], _under(where, key), NO_FIELD)
    elif isinstance(value, list | tuple) and get_origin(kind) in (list, tuple):
        if len(arguments) == 1 or arguments[-1] is Ellipsis:
            arguments = (arguments[0],) * len(value)
        if len(arguments) == len(value):
            yield from (_flaw(part, arguments[i], f"{where}[{i}]", NO_FIELD) for i, part in enumerate(value))


def _under(where: str, key: object) -> str:
    return f"{where}.{key}" if where else str(key)


def _wrong(value: Any, kind: Any, meta: Mapping[str, Any]) -> str:
    """What is wrong with a value whose parts are right."""
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    if len(choices) > 1 and isinstance(value, str):
        return f"there is no {value!r}.{nearest(value, choices)}"
    if type(value) is kind in (int, float) or (kind is float and type(value) is int):
        return f"{_shown(value)} is out of range ({meta.get('ge', 'any')} to {meta.get('le', 'any')})."
    plain = str if choices else get_origin(kind) or kind
    wanted = repr(choices[0]) if len(choices) == 1 else meta.get("title") or _WORDS.get(plain, "an object")
    return f"expected {wanted}, got {_shown(value)}."


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


MOST_WEAK = 1000
"""Seeds in a row of which nothing comes, before the parameters are taken to allow nothing."""


def generated(
    environment: str,
    known: Mapping[str, Parameter],
    parameters: Mapping[str, Any],
    count: int,
    seed: int,
    described: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    families: Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
    """The lines of a suite's instances, lazily: seeds keyed by place, families in turn unless one is asked for; with
    the reference's generator the seeds from `seed` on. An instance that `described` calls weak is replaced by that of
    the next seed; the iterator returns the ids of those that were.

    Raises UsageError for unknown parameters, and for instances that are written out and not generated.
    """
    check_names(environment, known, parameters)
    if parameters.get("generator") == "explicit":
        raise UsageError("generator: explicit instances are written, not generated; use 'native' or 'reference'.")
    return _strong(environment, parameters, count, seed, described, families)


def _strong(
    environment: str,
    parameters: Mapping[str, Any],
    count: int,
    seed: int,
    described: Callable[[dict[str, Any]], dict[str, Any]],
    families: Sequence[str],
) -> Yields[dict[str, Any], None, list[str]]:
    weak: list[str] = []
    for index in range(count):
        for again in range(MOST_WEAK):
            line = _line(environment, parameters, index, seed, families, again, len(weak))
            try:
                yield described(line)
                break
            except WeakInstanceError:
                if again + 1 == MOST_WEAK:
                    raise
                weak.append(line["id"])
    return weak


def check_names(environment: str, known: Mapping[str, Parameter], parameters: Mapping[str, Any]) -> None:
    """Raises UsageError for a parameter that there is not."""
    for name in parameters:
        if name not in known:
            raise UsageError(f"{name}: {environment} has no such parameter.{nearest(name, known)}")


def _line(
    environment: str,
    parameters: Mapping[str, Any],
    index: int,
    seed: int,
    families: Sequence[str],
    again: int,
    skipped: int,
) -> dict[str, Any]:
    """The line of a place; `again`: how often that place was found weak; `skipped`: how many places were, in all."""
    line = {name: value for name, value in parameters.items() if value is not None}
    if line.get("generator") == "reference":
        own = seed + index + skipped
        return line | {"id": f"seed-{own}", "seed": own}
    stem = line.setdefault("family", families[index % len(families)]) if families else "native"
    name, key = f"{stem}-{index}", (index, again) if again else (index,)
    return line | {
        "id": f"{name}-{again}" if again else name,
        "seed": Stream(seed, environment, "instance", *key).word() >> 1,
    }


def check_explicit(line: Mapping[str, Any], names: Iterable[str], generator: str) -> None:
    """Raises UsageError if a line writes an instance out and says otherwise, or the other way round."""
    explicit = generator == "explicit"
    for name in names:
        if explicit != (name in line):
            flaw = "is missing" if explicit else f"needs generator 'explicit', not {generator!r}"
            raise UsageError(f"{name}: {flaw}.")


def check_digest(
    line: str, stored: str, made: str, *, of: str = "the market made from this line has", beside: str = "optimum"
) -> None:
    """Raises UsageError if a line's digest is not that of what was made from it; empty: the line says none.

    line     its id
    of       what was made, in words
    beside   the field that follows from the same
    """
    if stored and stored != made:
        raise UsageError(
            f"{line}: digest: {of} digest {made}, the line says {stored}. "
            f"Leave `digest` and `{beside}` out if the line was changed on purpose."
        )


def check_most(line: object, most: Mapping[str, float]) -> None:
    """Raises UsageError for a number that is too large for the reference's generator."""
    for name, largest in most.items():
        value = getattr(line, name)
        if value > largest:
            raise UsageError(f"{name}: {value} is out of range for the reference's generator (at most {largest}).")
