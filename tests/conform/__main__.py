"""`python -m tests.conform DIR --data DIR`, or `make conform GOLDENS=DIR DATA=DIR`: evalkit beside golden files.

Exit codes: 0 no unexplained difference, 1 at least one, 2 nothing to compare.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from evalkit.errors import EvalkitError
from tests.conform.compare.command import run


def main(argv: Sequence[str]) -> int:
    """Parse and delegate; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conform", description="Compare evalkit with golden files.")
    parser.add_argument("goldens", metavar="DIR", help="a directory laid out like the golden data")
    parser.add_argument("--data", metavar="DIR", help="the reference's own data set")
    args = parser.parse_args(argv)
    try:
        return run(Path(args.goldens), Path(args.data) if args.data else None, out=sys.stdout)
    except EvalkitError as error:
        print(f"conform: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
