"""`python -m tests.conform [DIR] [--data DIR]`, or `make conform GOLDENS=DIR DATA=DIR`: evalkit beside golden files.

Without a directory it takes the golden data beside the project, or else the sample that is part of it, and says which.
The packages in `examples/` are installed for it into a temporary folder: they bring kinds of golden files of their own.
Exit codes: 0 no unexplained difference, 1 at least one, 2 nothing to compare.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from evalkit.errors import EvalkitError
from tests.conform.compare.command import run
from tests.conform.compare.sample import SAMPLE, unpack
from tests.support.plugin_projects import EXAMPLES, copies_of, pip_flaw

PROJECT = Path(__file__).resolve().parent.parent.parent
BESIDE = PROJECT.parent / "shared"
"""Where the golden data and the reference's data set lie, if anywhere."""


def main(argv: Sequence[str]) -> int:
    """Parse and delegate; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conform", description="Compare evalkit with golden files.")
    parser.add_argument("goldens", metavar="DIR", nargs="?", help="a directory laid out like the golden data")
    parser.add_argument("--data", metavar="DIR", help="the reference's own data set")
    args = parser.parse_args(argv)
    try:
        goldens, data = Path(args.goldens or BESIDE / "goldens"), Path(args.data or BESIDE / "data")
        if not args.goldens and not goldens.is_dir():
            return _of_sample()
        if not args.goldens:
            print(f"golden files: {goldens}\n")
        return run(goldens, data if data.is_dir() else None, out=sys.stdout)
    except EvalkitError as error:
        print(f"conform: {error}", file=sys.stderr)
        return 2


def _of_sample() -> int:
    print(f"golden files: the sample {SAMPLE.relative_to(PROJECT)} (for others: make conform GOLDENS=dir DATA=dir)\n")
    with tempfile.TemporaryDirectory() as folder:
        goldens, data = unpack(Path(folder))
        return run(goldens, data, out=sys.stdout)


def _with_examples(argv: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as name:
        (copies := Path(name) / "projects").mkdir()
        flaw = pip_flaw(copies_of(EXAMPLES, copies), site := Path(name) / "site")
        if flaw:
            print(f"the packages in examples/ could not be installed: {flaw}", file=sys.stderr)
        sys.path.append(str(site))
        return main(argv)


if __name__ == "__main__":
    sys.exit(_with_examples(sys.argv[1:]))
