"""Form fields from the JSON schema of a tool's arguments, and arguments from what a person has filled in.

A field helps with what its schema says of type, choices, ends and sizes. What it cannot be filled in for, such as an
object of free keys, is written as JSON. A schema may come from anybody: whatever in it makes no sense is ignored.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalkit.envs.arguments import MOST_SHOWN, Refusal, clean, read_json

DEEPEST = 3
"""Objects within objects that have fields of their own; below, they are written as JSON."""

Given = Mapping[str, str]
"""What was filled in, by field name."""

Schema = Mapping[str, Any]

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_JSON_WORDS = {
    "too_large": "This is too long: at most {limit:,} bytes.",
    "too_deep": "Brackets are nested too deeply: at most {limit} levels.",
    "not_json": 'This is not JSON. Write texts in double quotes: ["a", "b"] or {{"a": 1}}.',
}


class _Absent:
    """Stands for an argument that is not given."""


ABSENT = _Absent()


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChoice:
    """One entry of a selection."""

    value: str
    """What the form sends: the place in the list; empty: nothing is chosen."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentField:
    """One argument, as a form asks for it."""

    name: str
    """In the form: the places of the argument and of the objects around it, so that no name can do harm."""
    label: str
    about: str
    """What the schema says of it."""
    kind: str
    """`text`, `number`, `choice`, `list`, `json` or `group`."""
    needed: bool
    hint: str
    """What may be filled in, in words."""
    value: str = ""
    """What was filled in."""
    flaw: str = ""
    """What is wrong with that; empty: nothing."""
    choices: Sequence[FieldChoice] = ()
    least: str = ""
    """Of a number; empty: no end."""
    most: str = ""
    step: str = ""
    length: int = 0
    """Most characters of a text; 0: the schema names none."""
    fields: Sequence["ArgumentField"] = ()
    """Of a group."""


def fields_of(schema: object, given: Given | None = None) -> tuple[list[ArgumentField], dict[str, Any]]:
    """(the fields of an object's schema, the arguments that were given). `given` None: nothing has been filled in yet.

    Whether the arguments are complete says `flaws_in`.
    """
    named = list(_fields(schema, "a", given, 0)) if isinstance(schema, Mapping) else []
    return [field for field, _, _ in named], {key: value for _, key, value in named if value is not ABSENT}


def flaws_in(fields: Sequence[ArgumentField]) -> bool:
    """Whether something is wrong in any field, or in a group's."""
    return any(field.flaw or flaws_in(field.fields) for field in fields)


def as_object(text: str) -> dict[str, Any] | str:
    """The arguments that are written as JSON, or what is wrong with them. No text at all is an object without keys."""
    value = _read(text) if text.strip() else {}
    if isinstance(value, Refusal):
        return _words(value)
    return value if isinstance(value, dict) else 'Arguments are an object: {"name": value, ...}.'


def _fields(schema: Schema, place: str, given: Given | None, depth: int) -> Iterator[tuple[ArgumentField, str, Any]]:
    """Each of an object's fields, with its key and its value."""
    properties, required = schema.get("properties"), schema.get("required")
    needed = set(filter(_is_text, required)) if isinstance(required, Sequence) and not _is_text(required) else set()
    for number, (key, inner) in enumerate(properties.items() if isinstance(properties, Mapping) else ()):
        told = inner if isinstance(inner, Mapping) else {}
        yield _field(told, f"{place}.{number}", str(key), key in needed, given, depth)


def _field(
    schema: Schema, name: str, label: str, needed: bool, given: Given | None, depth: int
) -> tuple[ArgumentField, str, Any]:
    about = schema.get("description")
    kind, choices = _kind(schema, depth), _choices(schema)
    least, most, step = _ends(schema) if kind == "number" else ("", "", "")
    inner = list(_fields(schema, name, given, depth + 1)) if kind == "group" else []
    text = "" if given is None else _written(given.get(name, ""))
    value, flaw = (ABSENT, "") if given is None else _value(schema, kind, text, needed)
    if kind == "group":
        found = {key: part for _, key, part in inner if part is not ABSENT}
        value, flaw = (found if found or needed else ABSENT), ""
        if value is ABSENT and not any(map(_filled, (field for field, _, _ in inner))):
            # An object that is left out owes nothing of what it would need.
            inner = [(_unasked(field), key, part) for field, key, part in inner]
    offered = [FieldChoice(value=str(place), text=_shown(choice)) for place, choice in enumerate(choices)]
    return (
        ArgumentField(
            name=name,
            label=label,
            about=about if isinstance(about, str) else "",
            kind=kind,
            needed=needed,
            hint=_hint(schema, kind, needed=needed),
            value=text,
            flaw=flaw,
            choices=[FieldChoice(value="", text="choose" if needed else "leave out"), *offered] if choices else (),
            least=least,
            most=most,
            step=step,
            length=_size(schema, "maxLength"),
            fields=[field for field, _, _ in inner],
        ),
        label,
        value,
    )


def _filled(field: ArgumentField) -> bool:
    return bool(field.value.strip()) or any(map(_filled, field.fields))


def _unasked(field: ArgumentField) -> ArgumentField:
    """A field of an object that is left out: the browser does not ask for it either."""
    return replace(field, needed=False, flaw="", fields=[_unasked(inner) for inner in field.fields])


def _kind(schema: Schema, depth: int) -> str:
    if _choices(schema):
        return "choice"
    match _type(schema):
        case "string":
            return "text"
        case "integer" | "number":
            return "number"
        case "array" if _scalar(schema.get("items")):
            return "list"
        case "object" if isinstance(schema.get("properties"), Mapping) and schema["properties"] and depth < DEEPEST:
            return "group"
    return "json"


def _type(schema: Schema) -> str:
    """The one type that a schema allows; empty: it names none, or several."""
    kind = schema.get("type", "object" if "properties" in schema else "")
    if isinstance(kind, Sequence) and not _is_text(kind):
        named = [one for one in kind if one != "null"]
        kind = named[0] if len(named) == 1 else ""
    return kind if isinstance(kind, str) else ""


def _scalar(schema: object) -> bool:
    return isinstance(schema, Mapping) and (bool(_choices(schema)) or _type(schema) in ("string", "integer", "number"))


def _choices(schema: Schema) -> list[Any]:
    if "const" in schema:
        return [schema["const"]]
    enum = schema.get("enum")
    if isinstance(enum, Sequence) and not _is_text(enum):
        return list(enum)
    return [True, False] if _type(schema) == "boolean" else []


def _ends(schema: Schema) -> tuple[str, str, str]:
    """(least, most, step) of a number field. A browser counts steps from the least value, so that of whole numbers is
    whole."""
    low, high = _number(schema.get("minimum")), _number(schema.get("maximum"))
    if _type(schema) == "integer":
        low, high = low if low is None else math.ceil(low), high if high is None else math.floor(high)
    return _plain(low), _plain(high), "1" if _type(schema) == "integer" else "any"


def _hint(schema: Schema, kind: str, *, needed: bool) -> str:
    said = []
    if kind == "number":
        least, most, step = _ends(schema)
        said.append("whole number" if step == "1" else "number")
        if least or most:
            said.append(f"{least} to {most}" if least and most else f"{least} or more" if least else f"at most {most}")
    elif kind == "list":
        said += ["one a line", *_sizes(schema, "minItems", "maxItems", "entries")]
    elif kind == "text":
        said += _sizes(schema, "minLength", "maxLength", "characters")
    elif kind == "json":
        said.append({"array": "a list, as JSON", "object": "an object, as JSON"}.get(_type(schema), "JSON"))
    return ", ".join([*said, *([] if needed else ["may be left out"])])


def _sizes(schema: Schema, low: str, high: str, what: str) -> list[str]:
    least, most = _size(schema, low), _size(schema, high)
    if least and most:
        return [f"{least:,} to {most:,} {what}"]
    return [f"at least {least:,} {what}"] if least else [f"at most {most:,} {what}"] if most else []


def _value(schema: Schema, kind: str, text: str, needed: bool) -> tuple[Any, str]:
    """(the argument, what is wrong with it)."""
    if not text.strip():
        return ABSENT, "This argument is needed." if needed and kind != "group" else ""
    if kind == "list":
        return _listed(schema, text)
    if kind == "json":
        value = _read(text)
        return (ABSENT, _words(value)) if isinstance(value, Refusal) else _of_type(value, _type(schema))
    if kind == "choice":
        choices = _choices(schema)
        chosen = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else len(choices)
        return (choices[chosen], "") if chosen < len(choices) else (ABSENT, "Choose one of these.")
    return _plain_value(schema, text)


def _plain_value(schema: Schema, text: str) -> tuple[Any, str]:
    """A text or a number. Of a list's entries also a choice, by what it is called."""
    choices = _choices(schema)
    if choices:
        named = {_shown(choice): choice for choice in choices}
        return (named[text], "") if text in named else (ABSENT, f"One of: {', '.join(named)}.")
    if _type(schema) == "string":
        least, most = _size(schema, "minLength"), _size(schema, "maxLength")
        if least > len(text) or 0 < most < len(text):
            wanted = _sizes(schema, "minLength", "maxLength", "are wanted")
            return ABSENT, f"This has {len(text):,} characters: {wanted[0]}."
        return text, ""
    whole, stripped = _type(schema) == "integer", text.strip()
    pattern, what = (_INTEGER, "a whole number, such as 12") if whole else (_NUMBER, "a number, such as 12.5")
    if len(stripped) > MOST_SHOWN or not pattern.fullmatch(stripped):
        return ABSENT, f"Write {what}."
    number: float = int(stripped) if _INTEGER.fullmatch(stripped) else float(stripped)
    return (number, "") if math.isfinite(number) and not _outside(schema, number) else (ABSENT, _outside_words(schema))


def _outside(schema: Schema, number: float) -> bool:
    ends: tuple[tuple[str, Callable[[float], bool]], ...] = (
        ("minimum", lambda end: number < end),
        ("maximum", lambda end: number > end),
        ("exclusiveMinimum", lambda end: number <= end),
        ("exclusiveMaximum", lambda end: number >= end),
    )
    return any((end := _number(schema.get(key))) is not None and beyond(end) for key, beyond in ends)


def _outside_words(schema: Schema) -> str:
    words = (
        ("minimum", "at least"),
        ("exclusiveMinimum", "more than"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "less than"),
    )
    said = [f"{word} {_plain(end)}" for key, word in words if (end := _number(schema.get(key))) is not None]
    return f"This must be {' and '.join(said)}." if said else "This number is too large."


def _listed(schema: Schema, text: str) -> tuple[Any, str]:
    """A list: one entry a line, or all of it as JSON."""
    if text.lstrip().startswith("["):
        value = _read(text)
        return (ABSENT, _words(value)) if isinstance(value, Refusal) else _of_size(schema, value)
    found: list[Any] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        entry, flaw = _plain_value(schema["items"], line.strip())
        if flaw:
            return ABSENT, f"Line {number}: {flaw}"
        found.append(entry)
    return _of_size(schema, found)


def _of_size(schema: Schema, found: list[Any]) -> tuple[Any, str]:
    least, most = _size(schema, "minItems"), _size(schema, "maxItems")
    if len(found) < least or 0 < most < len(found):
        return ABSENT, f"This has {len(found):,} entries: {_sizes(schema, 'minItems', 'maxItems', 'are wanted')[0]}."
    twice = [entry for place, entry in enumerate(found) if entry in found[:place]]
    if schema.get("uniqueItems") is True and twice:
        return ABSENT, f"{_shown(twice[0])} is there twice."
    return found, ""


def _of_type(value: Any, kind: str) -> tuple[Any, str]:
    wrong = {"array": list, "object": dict}.get(kind, object)
    words = {"array": 'a list: ["a", "b"]', "object": 'an object: {"a": 1}'}.get(kind, "")
    return (value, "") if isinstance(value, wrong) else (ABSENT, f"This must be {words}.")


def _read(text: str) -> Any:
    value = read_json(text)
    return value if isinstance(value, Refusal) else value.value


def _words(refusal: Refusal) -> str:
    return _JSON_WORDS[refusal.outcome].format_map(refusal.values)


def _written(text: str) -> str:
    """What a browser sends of a text: its line breaks are two characters each."""
    return clean(text.replace("\r\n", "\n").replace("\r", "\n"))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _number(value: object) -> float | None:
    """A schema's number; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 2**63 else None


def _plain(number: float | None) -> str:
    return "" if number is None else repr(number)


def _size(schema: Schema, key: str) -> int:
    """A schema's size; 0 for what is none."""
    value = schema.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else 0
