"""`evalkit tools completion`: a script by which a shell completes commands, options, and names of runs, sweeps, agents
and suites. `shtab` writes it from the parser; names are asked for while one types.
"""

import argparse
import importlib
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evalkit.cli.commands import COMMANDS, OWN_OPTIONS, TOOLS, module_of
from evalkit.errors import EvalkitError

KINDS: dict[Any, str] = {
    **dict.fromkeys(("RUN", "A", "B", "OLD"), "runs"),
    **dict.fromkeys(("WHAT", "PART"), "parts"),
    "SPEC": "sweeps",
    "SUITE": "suites",
    "NEW=OLD": "agents",
    ("X", "Y"): "agents",
}
"""By metavar: what stands there. `parts`: `agent=NAME` and `suite=NAME`."""
FILES = {"FILE": "FILE", "DIR": "DIRECTORY", "PATH": "FILE"}
"""By metavar: what of shtab completes it."""

PREAMBLES = {
    "bash": """
COMP_WORDBREAKS="${{COMP_WORDBREAKS//=}}"  # agent=NAME is one word
_evalkit_names() {{
  compgen -W "$(evalkit tools completion --names "$1 ${{COMP_WORDS[*]}}" 2>/dev/null)" -- "$2"
}}
{functions}
""",
    "zsh": """
_evalkit_names() {{ compadd -- $(evalkit tools completion --names "$1 ${{words[*]}}" 2>/dev/null) }}
{functions}
""",
}
FUNCTION = {"bash": '_evalkit_{0}() {{ _evalkit_names {0} "$1"; }}', "zsh": "_evalkit_{0}() {{ _evalkit_names {0} }}"}


def completion(args: argparse.Namespace) -> int:
    """Print the script, or the names of a kind."""
    if args.names is not None:
        try:
            kind, *words = args.names.split()
            print("\n".join(dict.fromkeys(names(kind, words))))
        except (EvalkitError, OSError, ValueError):
            return 2  # nothing is completed, and nothing is said in the middle of a line
        return 0
    import shtab

    kinds = dict.fromkeys(KINDS.values())
    functions = "\n".join(FUNCTION[args.shell].format(kind) for kind in kinds)
    preamble: Any = {args.shell: PREAMBLES[args.shell].format(functions=functions)}  # shtab says it is a str
    print(shtab.complete(_nested(), args.shell, preamble=preamble))
    return 0


def _nested() -> argparse.ArgumentParser:
    """The parser of all commands, in which a command of two words is one within another, as a shell splits words."""
    from evalkit.cli.main import parser
    from evalkit.cli.options import Help

    _, every = parser()
    top = argparse.ArgumentParser(prog="evalkit", formatter_class=Help)
    top.add_argument("--version", action="version", version="")
    commands = top.add_subparsers(metavar="COMMAND")
    inner: dict[str, Any] = {}
    for name in OWN_OPTIONS:
        importlib.import_module(f"evalkit.cli.{module_of(name)}").add_options(every[name])
    for name, sub in every.items():
        first, _, second = name.partition(" ")
        if second and first not in inner:
            group = commands.choices[first] if first in commands.choices else commands.add_parser(first, help=TOOLS)
            inner[first] = group.add_subparsers(metavar="NAME")
        place, word = (inner[first], second) if second else (commands, name)
        _completed(sub)
        place.add_parser(word, help=COMMANDS[name].summary, parents=[sub], add_help=False)
    return top


def _completed(sub: argparse.ArgumentParser) -> None:
    """Say of each option what completes it."""
    import shtab

    for action in sub._actions:
        key = tuple(action.metavar) if isinstance(action.metavar, tuple | list) else action.metavar
        if key in KINDS:
            action.complete = dict.fromkeys(FUNCTION, f"_evalkit_{KINDS[key]}")  # type: ignore[attr-defined]
        elif key in FILES:
            action.complete = getattr(shtab, FILES[key])  # type: ignore[attr-defined]
        elif isinstance(action, argparse._SubParsersAction):
            for part in action.choices.values():
                _completed(part)


def names(kind: str, words: Sequence[str]) -> Iterator[str]:
    """The names of a kind; `words`: the command line so far, whose run or sweep says which agents there are."""
    if kind == "runs":
        from evalkit.frozen.manifests import runs_in

        yield from (run.name for run in runs_in(Path("runs")))
        yield from map(str, Path().glob("*.zip"))
    elif kind == "sweeps":
        from evalkit.shipped import folders

        yield from (str(file) for folder in ("", "runs") for file in Path(folder).glob("*.toml"))
        for folder in folders("runs"):
            yield from (file.relative_to(folder).with_suffix("").as_posix() for file in folder.rglob("*.toml"))
    elif kind == "suites":
        from evalkit.shipped import folders
        from evalkit.spec.suites import suites_in

        for folder in folders("instances"):
            yield from suites_in(folder)
        yield from map(str, Path().glob("*.jsonl"))
    else:
        agents, suites = _parts(words)
        yield from (f"agent={name}" for name in agents) if kind == "parts" else agents
        yield from (f"suite={name}" for name in suites) if kind == "parts" else ()


def _parts(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Agents and suites of the first word that is a sweep or a run; of the newest run where none is."""
    from evalkit.frozen.manifests import read_manifest
    from evalkit.playing.specs import newest_run, run_directory
    from evalkit.spec.sweep import find_sweep

    for word in words[2:]:
        for find in (run_directory, find_sweep):
            try:
                found = find(word)
            except EvalkitError:
                continue
            if found.is_dir():
                manifest = read_manifest(found)
                return list(manifest.agents), list(manifest.suites)
            tables = tomllib.loads(found.read_text(encoding="utf-8"))
            agents = [str(one.get("name") or one.get("policy") or one.get("model")) for one in tables["agents"]]
            return agents, [str(one["name"]) for one in tables["suites"]]
    manifest = read_manifest(newest_run())
    return list(manifest.agents), list(manifest.suites)
