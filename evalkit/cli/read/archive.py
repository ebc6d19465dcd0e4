"""`evalkit archive`: a run and its numbers in one file, which `evalkit verify` computes again."""

import argparse
import shlex
from pathlib import Path

from evalkit.api.specs import run_directory
from evalkit.cli.choosing import program


def archive(args: argparse.Namespace) -> int:
    """Write the archive; say what it contains and how to check it."""
    from evalkit.envs.table import ENVIRONMENTS
    from evalkit.report.archive.citation import Citation
    from evalkit.report.archive.write import write_archive
    from evalkit.store.copying import on_disk
    from evalkit.store.manifests import read_manifest
    from evalkit.store.spec_file import read_spec

    directory = run_directory(args.run)
    out = Path(args.out) if args.out else Path(f"{read_manifest(directory).name}.zip")
    about = Citation(authors=tuple(args.author), title=args.title, license=args.license)
    with on_disk(directory) as folder:
        done = write_archive(folder, ENVIRONMENTS, out, about)
    print(f"Wrote {out}: {done.size / 1e6:.1f} MB, {done.files:,} files, {done.tables:,} tables.")
    print(f"SHA-256: {done.sha256}")
    if done.ended < done.planned:
        print(f"The run is not complete: {done.ended:,} of {done.planned:,} episodes have ended.")
    if read_spec(directory) is None:
        print("The sweep's text is not in it: the run has none. The manifest says what was played.")
    if not about.authors:
        print("CITATION.cff names no author: name them by `--author`, once for each.")
    print("The log names the machines that played the run, and `events.jsonl` their folders.")
    print(f"Next, here or elsewhere: {program()} verify {shlex.quote(str(out))}")
    return 0
