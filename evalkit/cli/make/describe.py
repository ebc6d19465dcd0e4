"""`evalkit suites describe`: what a suite holds."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import orjson

from evalkit.envs.environment import Environment, Kit, Pack
from evalkit.errors import UsageError
from evalkit.report.tables import Column, Table, columns_of
from evalkit.text import many


def describe(args: argparse.Namespace) -> int:
    """Print the suite's tables."""
    from evalkit.spec.packs import read_pack
    from evalkit.spec.suites import environment_of, find_suite, read_lines

    path = find_suite(args.suite)
    lines = list(read_lines(path))
    if not lines:
        raise UsageError(f"{path} has no instances.")
    env = environment_of(lines[0], str(path))
    tables = describe_tables(args.suite, env, lines, read_pack("standard", env.name))
    if args.beside:
        from evalkit.report.published.papers import beside_tables

        beside = beside_tables(tables)
        if not beside:
            print("--beside paper: the papers have published nothing of such a suite.", file=sys.stderr)
        tables = beside or tables
    if args.json:
        document = {
            "suite": args.suite,
            "environment": env.name,
            "tables": {table.name: table.to_json() for table in tables},
        }
        print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        from evalkit.report.render.terminal import console, print_table

        to = console()
        for table in tables:
            print_table(table, to)
    return 0


# What a suite holds, as tables: its instances by stratum, how large they are, their optima, parameters and tools.
#
# Source: Tables 2, 3 and 5 of the CostBench paper, which have data, tools and parameters; Table 1 of EconAgentBench.

Line = Mapping[str, Any]
"""An instance as a suite's line."""

VALUES_SHOWN = 6


def describe_tables(name: str, env: Environment[Any, Any], lines: Iterable[Line], pack: Pack) -> tuple[Table, ...]:
    """The tables of a suite, in reading order. `pack`: whose words tools are shown in.

    Raises UsageError for a line that is not an instance, ValueError without lines.
    """
    described = [_whole_line(env, line) for line in lines]
    if not described:
        raise ValueError("a suite without instances")
    instances = [env.load(line) for line in described]
    strata = [env.stratum(instance) for instance in instances]
    return (
        _data(name, env, described, strata, pack),
        _sizes(env, instances, strata, pack),
        *([_optima(env, described, strata, pack)] if env.presentation.described.quantities else []),
        _parameters(env, described, pack),
        _tools(env, instances[0], described[0]["id"], pack),
    )


def _whole_line(env: Environment[Any, Any], line: Line) -> Line:
    """The line with what scores are measured against; solved for only if it is not stored. Raises UsageError."""
    stored = "digest" in line and ("optimum" in line or "expected" in line)
    return line if stored else env.describe(env.load(line))


def _groups(strata: Sequence[str]) -> dict[str, list[int]]:
    """Places by stratum, in order of first appearance; all together last, where there are several strata."""
    groups: dict[str, list[int]] = {}
    for i, stratum in enumerate(strata):
        groups.setdefault(stratum, []).append(i)
    if len(groups) > 1:
        groups["(all)"] = list(range(len(strata)))
    return groups


STRATUM = Column(key="stratum", title="Stratum")


def _data(name: str, env: Environment[Any, Any], lines: Sequence[Line], strata: Sequence[str], pack: Pack) -> Table:
    """As CostBench's Table 2: how many instances there are of each kind."""
    tallies = env.presentation.described.tallies
    rows = []
    for stratum, places in _groups(strata).items():
        row: dict[str, Any] = {"stratum": stratum, "instances": len(places), "share": 100 * len(places) / len(lines)}
        rows.append(row | {tally.key: tally.of([lines[i] for i in places]) for tally in tallies})
    tallies = tuple(tally for tally in tallies if rows[-1][tally.key])  # the last row is of all
    return Table(
        name="suite",
        title=f"Instances of {name}",
        columns=(
            STRATUM,
            *(Column(key=tally.key, title=tally.title, kind="count") for tally in tallies),
            Column(key="instances", title="Instances", kind="count"),
            Column(key="share", title="Share", kind="percent", unit="% of instances"),
        ),
        rows=tuple(rows),
        packs=(pack.name,),
        notes=(
            f"environment {env.name}, version {env.version}; strata are what order and intervals are balanced over",
            *(tally.about for tally in tallies if tally.about),
        ),
    )


def _sizes(env: Environment[Any, Any], instances: Sequence[Any], strata: Sequence[str], pack: Pack) -> Table:
    """As CostBench's Table 3: how many tools an instance has."""
    sizes = env.presentation.described.sizes
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for instance, stratum in zip(instances, strata, strict=True):
        counts: dict[str, Any] = {"tools": env.offers(instance)}
        counts |= {size.key: size.of(instance) for size in sizes}
        key = (stratum, *counts.values())
        rows.setdefault(key, {"stratum": stratum, **counts, "instances": 0})["instances"] += 1
    return Table(
        name="suite_tool_counts",
        title="Tools of an instance",
        columns=(
            STRATUM,
            *(Column(key=size.key, title=size.title, kind="count", unit=size.unit) for size in sizes),
            *columns_of("count", tools="Tools", instances="Instances"),
        ),
        rows=tuple(rows.values()),
        packs=(pack.name,),
        notes=("tools: those that a request offers at most",),
    )


def _optima(env: Environment[Any, Any], lines: Sequence[Line], strata: Sequence[str], pack: Pack) -> Table:
    rows = []
    for quantity in env.presentation.described.quantities:
        for stratum, places in _groups(strata).items():
            values = [quantity.of(lines[i]) for i in places]
            rows.append(
                {
                    "quantity": f"{quantity.title} ({quantity.unit})",
                    "stratum": stratum,
                    "least": min(values),
                    "median": median(values),
                    "most": max(values),
                    "instances": len(values),
                }
            )
    return Table(
        name="suite_optima",
        title="What scores are measured against",
        columns=(
            Column(key="quantity", title="Quantity", group=True),
            STRATUM,
            *columns_of("number", least="Least", median="Median", most="Most"),
            Column(key="instances", title="Instances", kind="count"),
        ),
        rows=tuple(rows),
        packs=(pack.name,),
    )


def _parameters(env: Environment[Any, Any], lines: Sequence[Line], pack: Pack) -> Table:
    """As CostBench's Table 5: each parameter's values in the suite."""
    return Table(
        name="suite_parameters",
        title="Parameters",
        columns=(*columns_of(parameter="Parameter", values="In this suite", default="Default", help="Meaning"),),
        rows=tuple(
            {
                "parameter": name,
                "values": shown_values([line.get(name, parameter.default) for line in lines]),
                "default": shown_values([parameter.default]),
                "help": parameter.help,
            }
            for name, parameter in env.parameters.items()
        ),
        packs=(pack.name,),
    )


def shown_values(values: Iterable[Any]) -> str:
    """The different values of a parameter: one, a few, or from which to which with their number."""
    plain = {str(value.get("name", "in the line")) if isinstance(value, Mapping) else value for value in values}
    distinct = sorted(plain, key=lambda value: (value is None, str(type(value)), value))
    if len(distinct) <= VALUES_SHOWN:
        return ", ".join(map(_shown, distinct))
    return f"{_shown(distinct[0])} to {_shown(distinct[-1])} ({many(len(distinct), 'value')})"


def _shown(value: Any) -> str:
    if value is None:
        return "by rule"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _tools(env: Environment[Any, Any], instance: Any, name: str, pack: Pack) -> Table:
    """The tools that the first instance's first request offers, as an agent reads of them."""
    tools = env.tools(env.start(instance, Kit(pack=pack)))
    rows = []
    for tool in tools:
        properties = tool.parameters.get("properties")
        names = properties if isinstance(properties, Mapping) else {}
        rows.append({"tool": tool.name, "arguments": ", ".join(names), "description": tool.description})
    return Table(
        name="suite_tools",
        title=f"Tools of {name}",
        columns=(*columns_of(tool="Tool", arguments="Arguments", description="What it says of itself"),),
        rows=tuple(rows),
        packs=(pack.name,),
        notes=("of the suite's first instance, in its first request",),
    )
