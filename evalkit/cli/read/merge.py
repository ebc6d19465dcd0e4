"""`evalkit merge`: several runs as one new run."""

import argparse
from itertools import islice
from pathlib import Path

from evalkit.api.specs import run_directory
from evalkit.errors import RunError, UsageError
from evalkit.store.manifest import Manifest
from evalkit.store.manifests import read_manifest


def merge(args: argparse.Namespace) -> int:
    """Write the new run; say what it is made of."""
    import msgspec

    from evalkit.money import show_usd
    from evalkit.spec.sweep import checked_name
    from evalkit.store.folder import refuse_existing
    from evalkit.store.recovery.merge import merge_runs

    if len(args.runs) == 1:
        raise UsageError("merge: name at least two runs.")
    runs, out = [run_directory(name) for name in args.runs], Path(args.out)
    refuse_existing(out)
    name = checked_name(out.absolute().name, "--out", "/:")
    manifest = msgspec.structs.replace(_manifest(runs), name=name)
    merged = merge_runs(runs, manifest, out, prefer_first=args.prefer == "first")
    print(f"Wrote {out}: {merged.episodes:,} episodes in {merged.rows:,} steps, of {len(runs)} runs.")
    if merged.shared:
        print(
            f"{merged.shared:,} episodes were in several of them; {merged.differing:,} differed: the first run's stand."
        )
    if merged.charged:
        print(f"{show_usd(merged.charged)} were paid for steps that are left out; the new ledger charges them.")
    print(f"Next: evalkit verify {out}")
    return 0


def _manifest(runs: list[Path]) -> Manifest:
    """Of all runs together. Raises RunError naming what conflicts."""
    from evalkit.engine.freezing.distinct import shared
    from evalkit.engine.freezing.freeze import MOST_SHARED, conflicts, united

    joined = read_manifest(runs[0])
    for run in runs[1:]:
        manifest = read_manifest(run)
        differing = conflicts(joined, manifest)
        if differing:
            raise RunError(
                f"{run} cannot be joined with {runs[0]}: {'; '.join(differing)}. Nothing was written. Runs that call "
                "different things by one name stay apart."
            )
        joined = united(joined, manifest)
        twice = list(islice(shared(joined), MOST_SHARED))
        if twice:
            raise RunError(
                f"{run} cannot be joined with {runs[0]}, since they call the same by different names: "
                f"{'; '.join(twice)}. Nothing was written."
            )
    return joined
