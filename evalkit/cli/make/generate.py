"""`evalkit suites generate`: a suite of new instances, streamed to a file, each with its optimum or denominator."""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any

from evalkit.envs.environment import Parameter
from evalkit.envs.table import ENVIRONMENTS, OWN_ENVIRONMENTS
from evalkit.errors import UsageError, nearest
from evalkit.files import new_file

SHOW_EVERY_S = 5.0
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
KINDS = {int: "whole number", float: "number", str: "text", bool: "truth value (true or false)"}
SEED = "seed"
"""Parameters that differ per instance; they are derived from the suite's `--seed`."""


def generate(args: argparse.Namespace) -> int:
    """Write the suite; the file appears complete or not at all."""
    from evalkit.store.disk import make_directories, write_parts_durably

    if args.environment not in ENVIRONMENTS:
        raise UsageError(f"There is no environment {args.environment!r}.{nearest(args.environment, ENVIRONMENTS)}")
    env = ENVIRONMENTS[args.environment]
    out = new_file(args.out, ".jsonl", "a suite's file")
    if args.instances < 1:
        raise UsageError("--instances: must be at least 1.")
    parameters = parse_parameters(args.rest, env.parameters, args.environment)
    progress = _Lines(count=args.instances)
    parts = progress.parts(env.generate(parameters, args.instances, args.seed))
    first = next(parts)  # before a folder is made, so that a failure leaves nothing on disk
    make_directories(out.parent)
    write_parts_durably(out, chain([first], parts))
    if progress.unproven:
        print(f"The optimum is not proven for {len(progress.unproven)} of them: {', '.join(progress.unproven[:10])}.")
    print(f'Wrote {args.instances:,} instances to {out}. Use them with `name = "{out}"` in a [[suites]] table.')
    return 0


@dataclass(slots=True)
class _Lines:
    """Passes lines to the file and reports progress."""

    count: int
    made: int = 0
    unproven: list[str] = field(default_factory=list)
    """Ids of instances whose stored optimum could not be proven."""

    def parts(self, lines: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
        """Yield the file's lines, and print the progress from time to time."""
        import orjson

        shown = time.monotonic()
        for line in lines:
            self.made += 1
            optimum = line.get("optimum")
            if isinstance(optimum, Mapping) and not optimum.get("proven", True):
                self.unproven.append(str(line["id"]))
            if time.monotonic() - shown >= SHOW_EVERY_S:
                shown = time.monotonic()
                print(f"{self.made:,} of {self.count:,} instances", file=sys.stderr, flush=True)
            yield orjson.dumps(dict(line)) + b"\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the environments and their parameters to the command's help."""
    generated = [name for name, env in OWN_ENVIRONMENTS.items() if env.parameters]
    others = "; or one from a plug-in (`evalkit tools plugins`)"
    parser.add_argument("environment", metavar="ENVIRONMENT", help=", ".join(generated) + others)
    width = min(100, get_terminal_size().columns - 1)
    lines: list[str] = []
    for name in generated:
        lines.append(f"parameters of {name}:")
        for key, parameter in OWN_ENVIRONMENTS[name].parameters.items():
            if key != SEED:
                head = f"  --{key.replace('_', '-')} {parameter.kind.__name__.upper()}"
                lines += wrap(f"{head:<24}  {_help(parameter)}", width, subsequent_indent=" " * 26)
    parser.epilog = "\n".join([*lines, "", parser.epilog or ""])


def _help(parameter: Parameter) -> str:
    notes = [", ".join(map(str, parameter.choices))] if parameter.choices else []
    notes += [f"default: {parameter.default}"] if parameter.default is not None else []
    return f"{parameter.help} ({'; '.join(notes)})" if notes else parameter.help


def parse_parameters(words: list[str], known: Mapping[str, Parameter], environment: str) -> dict[str, Any]:
    """Read `--n 30 --k 3` as an environment's parameters. Raises UsageError naming the wrong option."""
    parameters: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, _, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not word.startswith("--") or name not in known:
            raise UsageError(f"{environment} has no parameter {word!r}.{nearest(name, known)}")
        if not value:
            if not rest:
                raise UsageError(f"--{name}: the value is missing.")
            value = rest.pop(0)
        check = known[name].file if value.endswith(".toml") else None
        parameters[name] = _own_file(value, check) if check else _value(name, value, known[name])
    return parameters


def _own_file(name: str, check: Callable[[Mapping[str, Any], str], object]) -> dict[str, Any]:
    """Read a file of the user's as checked values. Raises UsageError."""
    from evalkit.spec.reading import parse_toml

    path = Path(name).expanduser()
    plain = parse_toml(path)
    check(plain, str(path))
    return plain


def _value(name: str, text: str, parameter: Parameter) -> Any:
    try:
        value = TRUTH[text.lower()] if parameter.kind is bool else parameter.kind(text)
    except (KeyError, ValueError):
        raise UsageError(f"--{name}: {text!r} is not a {KINDS[parameter.kind]}.") from None
    if parameter.choices and value not in parameter.choices:
        raise UsageError(f"--{name}: {text!r} is not one of its values.{nearest(text, map(str, parameter.choices))}")
    least, most = parameter.least, parameter.most
    if (least is not None and value < least) or (most is not None and value > most):
        raise UsageError(f"--{name}: {text} is out of range ({least} to {'infinity' if most is None else most}).")
    return value
