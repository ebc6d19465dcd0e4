"""The commands of the command line, called within this process."""

import argparse
import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from evalkit.errors import CorruptLogError, RunError
from evalkit.store.reading.index import read_index

QUERY = "select agent, count(*) from steps group by agent"


def called(line: Sequence[str], where: Path = Path()) -> tuple[int, str]:
    """(exit code, what it printed; of one that failed also what it said on standard error)."""
    from evalkit.cli.main import main

    out, errors = io.StringIO(), io.StringIO()
    with contextlib.chdir(where), contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = main(list(line))
    return code, out.getvalue() + (errors.getvalue() if code else "")


def findings(run: Path) -> str:
    """What `evalkit verify` finds; empty: nothing. Called behind the parser of command lines, which takes longest."""
    from evalkit.cli.read.verify import verify

    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            code = verify(argparse.Namespace(run=str(run), json=False))
    except (CorruptLogError, RunError) as flaw:
        return str(flaw)
    return out.getvalue()[:300] if code else ""


def lines_for(run: Path, folder: Path, spec: Path) -> Iterator[list[str]]:
    """Command lines that read a run. `folder`: where an export may go."""
    name = str(run)
    yield ["verify", name]
    yield ["status", name]
    yield ["status", name, "--money"]
    yield ["report", name]
    yield ["sql", name, QUERY]
    yield ["plan", str(spec)]
    episodes = read_index(run).episodes
    begun = [episode for episode, one in episodes.items() if one.steps]
    if begun:
        yield ["show", name, min(begun)]
    if any(one.ending for one in episodes.values()):
        yield ["plan", str(spec), "--dir", name]
        yield ["export", name, "--format", "jsonl", "--out", str(folder / f"export-{len(list(folder.iterdir()))}")]
