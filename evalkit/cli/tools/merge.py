"""`evalkit tools merge`: merge several runs into a new one."""

import argparse
from itertools import islice
from pathlib import Path

from evalkit.api.specs import run_directory
from evalkit.errors import RunError, UsageError
from evalkit.store.manifest import Manifest
from evalkit.store.manifests import read_manifest


def merge(args: argparse.Namespace) -> int:
    """Write the new run; say what it contains."""
    import msgspec

    from evalkit.money import show_usd
    from evalkit.spec.sweep import checked_name
    from evalkit.store.folder import refuse_existing
    from evalkit.store.recovery.merge import merge_runs

    if len(args.runs) == 1:
        raise UsageError("merge: name at least two runs.")
    runs, out = [run_directory(name) for name in args.runs], Path(args.out)
    refuse_existing(out)
    name = checked_name(out.absolute().name, "--out", "/:=")
    manifest = msgspec.structs.replace(_manifest(runs), name=name)
    merged = merge_runs(runs, manifest, out, prefer_first=args.prefer == "first")
    print(f"Wrote {out}: {merged.episodes:,} episodes in {merged.rows:,} steps, from {len(runs)} runs.")
    if merged.shared:
        print(
            f"{merged.shared:,} episodes were in several runs; {merged.differing:,} differed, and the "
            "first run's were taken."
        )
    if merged.charged:
        print(f"{show_usd(merged.charged)} were paid for steps that are not in the new run; its ledger charges them.")
    print(f"Next: evalkit verify {out}")
    return 0


def _manifest(runs: list[Path]) -> Manifest:
    """The manifest of the merged run. Raises RunError naming what conflicts."""
    from evalkit.engine.freezing.distinct import shared
    from evalkit.engine.freezing.freeze import MOST_SHARED, conflicts, united

    joined = read_manifest(runs[0])
    for run in runs[1:]:
        manifest = read_manifest(run)
        differing = conflicts(joined, manifest)
        if differing:
            raise RunError(
                f"{run} cannot be merged with {runs[0]}: {'; '.join(differing)}. Nothing was written. Runs "
                "that use one name for different things cannot be merged."
            )
        joined = united(joined, manifest)
        twice = list(islice(shared(joined), MOST_SHARED))
        if twice:
            raise RunError(
                f"{run} cannot be merged with {runs[0]}, since they use different names for the same thing: "
                f"{'; '.join(twice)}. Nothing was written."
            )
    return joined
