"""`evalkit generate`: a suite of fresh instances, streamed to a file, each with its optimum or denominator."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from evalkit.env.environment import Parameter
from evalkit.env.table import ENVIRONMENTS
from evalkit.errors import UsageError, nearest

SHOW_EVERY = 50


def generate(args: argparse.Namespace) -> int:
    """Write the suite; the file appears whole or not at all."""
    from evalkit.store.disk import write_durably

    if args.environment not in ENVIRONMENTS:
        raise UsageError(f"There is no environment {args.environment!r}.{nearest(args.environment, ENVIRONMENTS)}")
    env = ENVIRONMENTS[args.environment]
    out = Path(args.out)
    if out.suffix != ".jsonl":
        raise UsageError(f"{out}: a suite's file ends in .jsonl.")
    if out.exists():
        raise UsageError(f"{out} exists already; a suite is frozen once made. Choose another name.")
    if args.instances < 1:
        raise UsageError("--instances: must be at least 1.")
    parameters = parse_parameters(args.rest, env.parameters, args.environment)
    lines = bytearray()
    for made, line in enumerate(env.generate(parameters, args.instances, args.seed), 1):
        lines += orjson.dumps(dict(line)) + b"\n"
        if made % SHOW_EVERY == 0 or made == args.instances:
            print(f"\r{made} of {args.instances} instances", end="", flush=True)
    print()
    out.parent.mkdir(parents=True, exist_ok=True)
    write_durably(out, bytes(lines))
    print(f'Wrote {out}. Use it with `name = "{out}"` in a sweep\'s [[suites]] table.')
    return 0


def parse_parameters(words: list[str], known: Mapping[str, Parameter], environment: str) -> dict[str, Any]:
    """`--n 30 --k 3` against an environment's parameters. Raises UsageError naming the word that is wrong."""
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, _, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not word.startswith("--") or name not in known:
            raise UsageError(f"{environment} has no parameter {word!r}.{nearest(name, known)}")
        if not value:
            if not rest:
                raise UsageError(f"--{name}: a value is missing.")
            value = rest.pop(0)
        found[name] = _value(name, value, known[name])
    return found


def _value(name: str, text: str, parameter: Parameter) -> Any:
    try:
        value = text.lower() in ("true", "yes", "1") if parameter.kind is bool else parameter.kind(text)
    except ValueError:
        raise UsageError(f"--{name}: {text!r} is no {parameter.kind.__name__}.") from None
    if parameter.choices and value not in parameter.choices:
        raise UsageError(f"--{name}: {text!r} is none of its values.{nearest(text, map(str, parameter.choices))}")
    least, most = parameter.least, parameter.most
    if (least is not None and value < least) or (most is not None and value > most):
        raise UsageError(f"--{name}: {text} is out of range ({least} to {'any' if most is None else most}).")
    return value
