"""`evalkit tools schema`: the JSON schema of a kind of TOML file, by which editors complete and check."""

import argparse
import json
from pathlib import Path

from evalkit.errors import UsageError
from evalkit.files import write_whole

FOLDER = Path(__file__).resolve().parents[2] / "schemas"
HELP = Path(".evalkit")
"""The folder beside a file in which its schema lies, so that both can move together."""


def schema(args: argparse.Namespace) -> int:
    """Print it."""
    print(json.dumps(json.loads((FOLDER / f"{args.kind}.json").read_bytes()), indent=1, ensure_ascii=False))
    return 0


def schema_line(kind: str) -> str:
    """The first line of a file, by which editors find the schema beside it."""
    return f"#:schema ./{HELP}/{kind}.json\n"


def put_schema(folder: Path, kind: str) -> None:
    """Write the schema where the files of a folder look for it, in place of an older one. Raises UsageError."""
    place = folder / HELP / f"{kind}.json"
    try:
        place.parent.mkdir(exist_ok=True)
        write_whole(place, (FOLDER / f"{kind}.json").read_bytes())
    except OSError as flaw:
        raise UsageError(f"{place} cannot be written: {flaw.strerror or flaw}.") from flaw
