"""A player for whatever tools are offered: one of them at random, with arguments drawn from its schema.

It knows no environment. So it plays any, badly: it is what `random` does where it knows nothing better.
"""

import json
import math
from collections.abc import Mapping, Sequence

from evalkit.dialogue import Reply, Request
from evalkit.policy.conversation import calling
from evalkit.seeds import Stream

DEEPEST = 6
"""Levels of arguments within arguments; below, nothing more is given."""
MOST = 64
"""Properties of an object and entries of a list, at most."""
WIDTH = 10
"""How far numbers go where a schema names one end or none."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def any_tool(request: Request, draws: Stream) -> Reply:
    """One call of an offered tool, all of them equally likely; a text where none is offered."""
    if not request.tools:
        return Reply(text="There is no tool that I could call.")
    tool = request.tools[draws.below(len(request.tools))]
    arguments = _value(tool.parameters, draws, 0)
    return calling(request, [(tool.name, json.dumps(arguments if isinstance(arguments, dict) else {}))])


def _value(schema: object, draws: Stream, depth: int) -> object:
    """A value that a JSON schema allows as far as type, choices, ends and sizes say; None of what says nothing."""
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return None
    if "const" in schema:
        return schema["const"]
    for key in ("enum", "anyOf", "oneOf"):
        choices = schema.get(key)
        if isinstance(choices, Sequence) and not isinstance(choices, str) and choices:
            chosen = choices[draws.below(len(choices))]
            return chosen if key == "enum" else _value(chosen, draws, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "")
    if isinstance(kind, Sequence) and not isinstance(kind, str):
        kind = next((option for option in kind if option != "null"), "null")
    if kind == "object":
        properties = schema.get("properties")
        named = list(properties.items())[:MOST] if isinstance(properties, Mapping) else []
        return {str(name): _value(subschema, draws, depth + 1) for name, subschema in named}
    if kind == "array":
        least = min(MOST, max(0, _number(schema.get("minItems"), 1)))
        most = min(MOST, max(least, _number(schema.get("maxItems"), least + 2)))
        return [_value(schema.get("items"), draws, depth + 1) for _ in range(int(_between(least, most, draws)))]
    if kind == "boolean":
        return bool(draws.below(2))
    if kind in ("integer", "number"):
        return _drawn(schema, draws, whole=kind == "integer")
    return LETTERS[draws.below(len(LETTERS))] if kind == "string" else None


def _drawn(schema: Mapping[str, object], draws: Stream, *, whole: bool) -> float:
    low, high = schema.get("minimum"), schema.get("maximum")
    least = _number(low, _number(high, WIDTH) - WIDTH if high is not None else 0)
    most = max(least, _number(high, least + WIDTH))
    return _between(math.ceil(least), math.floor(most), draws) if whole else least + (most - least) * draws.uniform()


def _between(least: float, most: float, draws: Stream) -> int:
    """A whole number from `least` to `most`; `least` where there is none between."""
    return int(least) + draws.below(max(1, int(most) - int(least) + 1))


def _number(value: object, otherwise: float) -> float:
    """A schema's number; what is none, or is not finite, counts as not given."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    return otherwise
