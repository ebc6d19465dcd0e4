"""`python -m evalkit.conform DIR`: the same as `evalkit conform DIR`."""

import argparse
import sys
from pathlib import Path

from evalkit.conform.command import run
from evalkit.errors import EvalkitError


def main() -> int:
    """Parse and delegate; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m evalkit.conform", description="Compare evalkit with golden files.")
    parser.add_argument("goldens", type=Path, metavar="DIR", help="a directory laid out like the golden data")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the reference's own data set")
    args = parser.parse_args()
    try:
        return run(args.goldens, args.data, out=sys.stdout)
    except EvalkitError as error:
        print(f"evalkit: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
