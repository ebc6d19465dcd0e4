"""`evalkit suites generate`: a suite of new instances, streamed to a file, each with its optimum or denominator; or the
instances of a text file as a Parquet file."""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any

import orjson

from evalkit.envs.environment import Parameter
from evalkit.envs.suite_rows import ENDING, MOST_LINES, encode_rows
from evalkit.envs.table import ENVIRONMENTS, OWN_ENVIRONMENTS
from evalkit.errors import UsageError, nearest
from evalkit.files import new_file
from evalkit.text import many

SHOW_EVERY_S = 5.0
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
KINDS = {int: "whole number", float: "number", str: "text", bool: "truth value (true or false)"}
SEED = "seed"
"""Parameters that differ per instance; they are derived from the suite's `--seed`."""


def generate(args: argparse.Namespace) -> int:
    """Write the suite; the file appears complete or not at all."""
    from evalkit.spec.suites import rows_of
    from evalkit.store.disk import make_directories, write_parts_durably

    progress = _Lines(count=args.instances)
    lines = progress.seen(_lines(args))
    as_rows = args.out.endswith(ENDING)
    out = new_file(args.out, ENDING if as_rows else ".jsonl", "a suite's file")
    if as_rows:
        parts = iter([encode_rows(rows_of(lines, args.environment)).data.to_pybytes()])
    else:
        parts = (orjson.dumps(dict(line)) + b"\n" for line in lines)
    first = next(parts)  # before a folder is made, so that a failure leaves nothing on disk
    make_directories(out.parent)
    write_parts_durably(out, chain([first], parts))
    if progress.unproven:
        print(f"The optimum is not proven for {len(progress.unproven)} of them: {', '.join(progress.unproven[:10])}.")
    if progress.weak:
        ids = ", ".join(progress.weak[:10]) + (", ..." if len(progress.weak) > 10 else "")
        weak = many(len(progress.weak), "instance")
        print(f"Replaced by the next seed, since next to nothing can be reached: {weak} ({ids}).")
    print(f'Wrote {many(progress.made, "instance")} to {out}. Use it with `name = "{out}"` in a [[suites]] table.')
    return 0


def _lines(args: argparse.Namespace) -> Iterator[Mapping[str, Any]]:
    """New lines, or those of a suite's file. Raises UsageError."""
    if args.environment.endswith((".jsonl", ENDING)):
        from evalkit.spec.suites import find_suite, read_lines

        if args.rest:
            raise UsageError(f"{args.rest[0]}: the instances of a file are taken as they are.")
        if not args.out.endswith(ENDING):
            raise UsageError(f"{args.out}: a suite's file becomes one whose name ends in {ENDING}.")
        return read_lines(find_suite(args.environment))
    if args.environment not in ENVIRONMENTS:
        raise UsageError(f"There is no environment {args.environment!r}.{nearest(args.environment, ENVIRONMENTS)}")
    env = ENVIRONMENTS[args.environment]
    if args.instances < 1:
        raise UsageError("--instances: must be at least 1.")
    if args.instances > MOST_LINES and not args.out.endswith(ENDING):
        name = Path(args.out).with_suffix(ENDING)
        raise UsageError(f"--out: more than {MOST_LINES:,} instances are written as Parquet. Call the file {name}.")
    return env.generate(parse_parameters(args.rest, env.parameters, args.environment), args.instances, args.seed)


@dataclass(slots=True)
class _Lines:
    """Counts lines on their way to the file and reports progress."""

    count: int
    made: int = 0
    unproven: list[str] = field(default_factory=list)
    """Ids of instances whose stored optimum could not be proven."""
    weak: Sequence[str] = ()
    """Ids of instances that others replace, since next to nothing can be reached in them."""

    def seen(self, lines: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """The lines; prints the progress from time to time."""
        shown = time.monotonic()
        for line in self._ended(lines):
            self.made += 1
            optimum = line.get("optimum")
            if isinstance(optimum, Mapping) and not optimum.get("proven", True):
                self.unproven.append(str(line["id"]))
            if time.monotonic() - shown >= SHOW_EVERY_S:
                shown = time.monotonic()
                print(f"{self.made:,} of {many(self.count, 'instance')}", file=sys.stderr, flush=True)
            yield line

    def _ended(self, lines: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        left = iter(lines)
        while True:
            try:
                line = next(left)
            except StopIteration as end:
                self.weak = end.value or ()
                return
            yield line


def add_options(parser: argparse.ArgumentParser, words: Sequence[str] = ()) -> None:
    """Add the environments to the command's help, with the parameters of the one that `words` name, else of
    evalkit's."""
    generated = {name: env for name, env in OWN_ENVIRONMENTS.items() if env.parameters}
    others = (
        "; or one of a plug-in, whose parameters its name and --help list; or a suite's file, to write it as Parquet"
    )
    parser.add_argument("environment", metavar="ENVIRONMENT", help=", ".join(generated) + others)
    width = min(100, get_terminal_size().columns - 1)
    lines: list[str] = []
    wanted = [word for word in words if word in ENVIRONMENTS] if {"-h", "--help"} & set(words) else []
    for name, env in {name: ENVIRONMENTS[name] for name in wanted[:1]}.items() or generated.items():
        lines.append(f"parameters of {name}:")
        for key, parameter in env.parameters.items():
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
