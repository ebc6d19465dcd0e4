"""`evalkit tools plugins`: the installed plug-ins, and what is wrong with them."""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalkit.checking import check_record
from evalkit.cli.choosing import program
from evalkit.envs.table import ENVIRONMENTS, OWN_ENVIRONMENTS
from evalkit.errors import EvalkitError, UsageError, nearest
from evalkit.plugins import AT, GROUPS, Plugin, PluginTable, Unread, installed, plain_name, strangers, unread
from evalkit.policy.table import BROUGHT, find_policy, is_own
from evalkit.seats import code_of
from evalkit.spec.packs import packs, read_pack
from evalkit.spec.reading import parse_toml
from evalkit.spec.suites import TEXT, environment_of, read_lines, suite_folders, suites_in
from evalkit.text import visible
from evalkit.wire.table import DIALECTS

# What installed packages bring, entry by entry: what each offers, and what is wrong with it. Loads all of it.

NAMED = 4
"""Suites and parameters that are named; others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedEntry:
    """One entry, looked at."""

    plugin: Plugin
    offers: str
    """What it brings, in a line; empty if that cannot be said."""
    problems: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """group, name, value (`module:attribute`), package, version, offers, problems (list of texts)."""
        plugin = self.plugin
        return {
            "group": plugin.group,
            "name": plugin.name,
            "value": plugin.value,
            "package": plugin.package,
            "version": plugin.version,
            "offers": self.offers,
            "problems": list(self.problems),
        }


def inspect_plugins() -> list[InspectedEntry]:
    """All entries of all groups, those of groups that there are not last."""
    inspected = [_inspected(plugin) for group in GROUPS for plugin in installed(group)]
    for plugin in strangers():
        problem = f"There is no group evalkit.{plugin.group}.{nearest(plugin.group, GROUPS)}"
        inspected.append(InspectedEntry(plugin=plugin, offers="", problems=(problem,)))
    return inspected


def _inspected(plugin: Plugin) -> InspectedEntry:
    """An entry, loaded under the name that is its own even where another package claims it too."""
    problems = list(_name_problems(plugin))
    offers = ""
    try:
        offers, more = _LOOKS[plugin.group](plugin)
        problems += more
    except (EvalkitError, AssertionError) as flaw:
        problems.append(str(flaw))
    return InspectedEntry(plugin=plugin, offers=offers, problems=tuple(dict.fromkeys(problems)))


def _name_problems(plugin: Plugin) -> Iterator[str]:
    taken: Mapping[str, PluginTable[Any]] = {
        "environments": ENVIRONMENTS,
        "dialects": DIALECTS,
        "prompts": packs(),
        "suites": suite_folders(),
    }
    if plugin.group in taken and plugin.name in taken[plugin.group].built_in:
        yield f"The name {plugin.name!r} belongs to evalkit, so this plug-in cannot be found."
    count = Counter(other.name for other in installed(plugin.group))[plugin.name]
    if count > 1:
        others = [
            other.package
            for other in installed(plugin.group)
            if other.name == plugin.name and plain_name(other.package) != plain_name(plugin.package)
        ]
        yield f"{', '.join(others)} also uses this name: write '{plugin.package}:{plugin.name}', or uninstall one."


def _environment(plugin: Plugin) -> tuple[str, list[str]]:
    env = ENVIRONMENTS.read(plugin)
    words = [f"version {env.version}"]
    if env.parameters:
        words.append(f"parameters: {', '.join(env.parameters)}")
    if env.presentation.report:
        words.append("report")
    problems = []
    try:
        check_record(env)
    except AssertionError as flaw:
        problems.append(str(flaw))
    if plugin.name in OWN_ENVIRONMENTS or Counter(other.name for other in installed(plugin.group))[plugin.name] > 1:
        return "; ".join(words), problems
    if find_policy(env.stand_in, env.name) is None:
        problems.append(f"stand_in: no policy {env.stand_in!r} plays it.")
    return "; ".join(words), problems


def _policy(plugin: Plugin) -> tuple[str, list[str]]:
    policy = BROUGHT.read(plugin)
    name, sign, environment = plugin.name.partition(AT)
    problems = []
    ways = sum(way is not None for way in (policy.reply, policy.oracle, policy.script))
    if ways != 1:
        problems.append(f"Exactly one of `reply`, `oracle` and `script` must be set, not {ways}.")
    if is_own(name) and (not sign or environment in OWN_ENVIRONMENTS):
        problems.append(f"The name {name!r} belongs to a policy of evalkit, so this policy cannot be found.")
    elif sign and environment not in [env_name.rpartition(":")[2] for env_name in ENVIRONMENTS]:
        problems.append(f"It plays an unknown environment {environment!r}.{nearest(environment, ENVIRONMENTS)}")
    return policy.help, problems


def _dialect(plugin: Plugin) -> tuple[str, list[str]]:
    return f"requests go to {DIALECTS.read(plugin).path}", []


def _pack(plugin: Plugin) -> tuple[str, list[str]]:
    path: Path = packs().read(plugin)
    worded = list(parse_toml(path))
    problems = []
    for environment in worded:
        try:
            read_pack(str(path), environment)
        except UsageError as flaw:
            problems.append(str(flaw))
    return f"texts of {', '.join(worded)}", problems


def _suites(plugin: Plugin) -> tuple[str, list[str]]:
    folder: Path = suite_folders().read(plugin)
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder.")
    names, problems = suites_in(folder), []
    for name in names:
        path = folder / f"{name}{TEXT}"
        try:
            line = next(read_lines(path), None)
            if line is None:
                problems.append(f"{path}: the suite is empty.")
            else:
                environment_of(line, str(path)).load(line)
        except EvalkitError as flaw:
            problems.append(str(flaw))
    if not names:
        problems.append(f"{folder} has no suites: no file ends in {TEXT}.")
    shown = ", ".join(f"{plugin.name}/{name}" for name in names[:NAMED])
    return shown + (f" and {len(names) - NAMED} more" if len(names) > NAMED else ""), problems


def _agent(plugin: Plugin) -> tuple[str, list[str]]:
    code = code_of(plugin.load(), plugin.source)
    return f"version {code.version}; models: {', '.join(code.models)}; up to {code.parallel} requests in flight", []


_LOOKS: Mapping[str, Callable[[Plugin], tuple[str, list[str]]]] = {
    "environments": _environment,
    "policies": _policy,
    "agents": _agent,
    "dialects": _dialect,
    "prompts": _pack,
    "suites": _suites,
}
"""By group: what an entry offers, and what is wrong with it."""


SCHEMA, VERSION = "evalkit.plugins", 1
WRONG = 1


def plugins(args: argparse.Namespace) -> int:
    """List the plug-ins, and what could not be read; return 1 if something is wrong with a plug-in, else 0."""
    inspected, hidden = inspect_plugins(), unread()
    if args.json:
        import orjson

        plain = {
            "schema": SCHEMA,
            "version": VERSION,
            "plugins": [entry.to_json() for entry in inspected],
            "unread": [{"package": one.package, "problem": one.why} for one in hidden],
        }
        print(orjson.dumps(plain, option=orjson.OPT_INDENT_2).decode())
    else:
        _print(inspected, hidden)
    return WRONG if any(entry.problems for entry in inspected) or any(one.brings for one in hidden) else 0


def _print(inspected: list[InspectedEntry], hidden: Sequence[Unread]) -> None:
    if not inspected:
        print(f"No plug-in is installed. `{program()} new --plugin DIR` writes one to start from.")
    room = max((len(entry.plugin.name) for entry in inspected), default=0) + 2
    package_width = max((len(_package(entry)) for entry in inspected), default=0) + 2
    for group in dict.fromkeys(entry.plugin.group for entry in inspected):
        print(f"{group}:")
        for entry in inspected:
            if entry.plugin.group == group:
                print(
                    f"  {entry.plugin.name:<{room}}{_package(entry):<{package_width}}{visible(entry.offers)}".rstrip()
                )
                for problem in entry.problems:
                    print(f"    wrong: {visible(problem)}")
    for one in hidden:
        lost = "" if one.brings else " No entry for evalkit is legible in it."
        print(f"could not be read: {visible(one.package)}: {visible(one.why)}{lost}")


def _package(entry: InspectedEntry) -> str:
    return f"{entry.plugin.package} {entry.plugin.version}"
