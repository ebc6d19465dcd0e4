"""`evalkit report`: a run's tables on the terminal, as Markdown, LaTeX, CSV or JSON; its figures; or one page."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from evalkit.api.specs import run_directory
from evalkit.cli.choosing import write_csv
from evalkit.errors import UsageError
from evalkit.report.report import Report
from evalkit.report.report import report as build
from evalkit.report.tables import Table, markdown


def report(args: argparse.Namespace) -> int:
    """Print the tables."""
    directory = run_directory(args.run)
    if args.html:
        return _write_page(directory, Path(args.html))
    full = build(directory, judged=_judged(directory, args.judged), half_width=_half_width(args.half_width))
    run = _chosen(args, directory, full)
    if args.json:
        print(orjson.dumps(run.to_json(), option=orjson.OPT_INDENT_2).decode())
    elif args.markdown:
        print("\n\n".join(markdown(table) for table in run.tables))
    elif args.latex:
        from evalkit.report.render.latex import latex

        print("\n".join(latex(table) for table in run.tables), end="")
    elif args.csv:
        write_csv(Path(args.csv), run.tables)
    elif args.figures:
        _write_figures(directory, full, Path(args.figures))
    else:
        from evalkit.report.render.terminal import print_report

        print_report(run)
    return 0


def _write_page(directory: Path, file: Path) -> int:
    from evalkit.view.offline import write_page

    size, trajectories = write_page(directory, file)
    print(
        f"Wrote {file}: {size / 1e6:.1f} MB, every table and figure, {trajectories:,} trajectories. It opens offline."
    )
    return 0


def _write_figures(directory: Path, run: Report, folder: Path) -> None:
    from evalkit.report.figures.build import run_figures
    from evalkit.report.figures.draw import write_figures

    figures = run_figures(directory, run)
    if not figures:
        print("There is nothing to plot yet: no episode that counts for a score has ended.")
        return
    try:
        write_figures(folder, run.manifest.name, figures)
    except OSError as flaw:
        raise UsageError(f"--figures: {folder} cannot be written: {flaw}") from flaw
    print(f"Wrote {len(figures)} figures to {folder}; {folder / 'index.html'} shows all of them.")


def _chosen(args: argparse.Namespace, directory: Path, run: Report) -> Report:
    """The report with the requested tables instead of the standard ones; unchanged if none were requested."""
    tables: list[Table] = []
    if args.beside:
        from evalkit.report.published.papers import beside_tables

        beside = beside_tables(run.tables)
        if not beside:
            raise UsageError("--beside paper: no published table is like one of this run's.")
        tables += beside
    if args.by:
        from evalkit.report.tags import grouped_tables

        tables += grouped_tables(run.manifest, run.tables, args.by)
    if args.quotes:
        from evalkit.report.quotes import quotes_table, run_quotes

        quotes = run_quotes(directory, run.manifest, run.cells)
        tables.append(quotes_table(quotes, run.cells, args.run))
    return replace(run, tables=tuple(tables)) if tables else run


def _half_width(wanted: float | None) -> float | None:
    if wanted is not None and not wanted > 0:
        raise UsageError(f"--half-width: must be above 0 (0.05 is 5 points), not {wanted:g}.")
    return wanted


def _judged(directory: Path, names: Sequence[str] | None) -> dict[str, dict[str, int]]:
    """What judges' runs counted in this run's texts, by kind of count and by episode.

    Prints to standard error how many texts have no count. Raises UsageError if two runs counted the same.
    """
    counts: dict[str, dict[str, int]] = {}
    for name in names or ():
        from evalkit.tasks.answers import judged_paths

        kind, by_episode, unread = judged_paths(directory, run_directory(name))
        if kind in counts:
            raise UsageError(f"--judged: {name} counted the same as the one before ({kind}): name one of them.")
        counts[kind] = by_episode
        if unread:
            texts = f"{unread:,} of {len(by_episode) + unread:,} texts"
            print(f"judged: {texts} were not judged, or have no readable count.", file=sys.stderr)
    return counts
