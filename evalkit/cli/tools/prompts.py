"""`evalkit tools prompts`: list the packs, or build one from a copy of the reference."""

import argparse
from pathlib import Path

from evalkit.files import new_file, write_new
from evalkit.spec.importing.executed import import_reference
from evalkit.spec.packs import pack_names


def list_packs(_: argparse.Namespace) -> int:
    """Print the packs that can be named, one per line."""
    print("\n".join(pack_names()))
    return 0


def import_pack(args: argparse.Namespace) -> int:
    """Build a pack from the reference's own texts by executing its code; never overwrite an existing file."""
    out = new_file(args.out, ".toml", "a prompt pack's file", "To add to it, import all copies in one command, anew.")
    repositories = [Path(name).expanduser() for name in args.repositories]
    write_new(out, import_reference(*repositories, wording=args.wording or ""))
    names = " and of ".join(map(str, repositories))
    print(f'Executed the code of {names}, and wrote {out}. Use it with `prompts = "{out}"` in an agent\'s table.')
    return 0
