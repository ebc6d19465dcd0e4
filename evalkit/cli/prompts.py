"""`evalkit prompts`: the packs there are, and a pack built from a copy of the reference."""

import argparse
from pathlib import Path

from evalkit.errors import UsageError
from evalkit.spec.packs import import_reference, pack_names


def list_packs(_: argparse.Namespace) -> int:
    """The packs that can be named, one a line."""
    print("\n".join(pack_names()))
    return 0


def import_pack(args: argparse.Namespace) -> int:
    """Build a pack from the reference's own texts; never over an existing file."""
    out = Path(args.out)
    if out.suffix != ".toml":
        raise UsageError(f"{out}: a prompt pack's file ends in .toml.")
    text = import_reference(Path(args.repository).expanduser())
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{out} exists already; nothing was written. Choose another name.") from None
    except OSError as flaw:
        raise UsageError(f"{out} cannot be written: {flaw.strerror or flaw}.") from flaw
    print(f'Wrote {out}. Use it with `prompts = "{out}"` in an agent\'s table.')
    return 0
