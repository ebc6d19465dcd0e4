"""`evalkit verify`: replay every episode and compare it with the log; of an archive, every number too."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.api.runs import run_at
from evalkit.cli.choosing import run_of
from evalkit.cli.pipes import unread
from evalkit.text import many

if TYPE_CHECKING:
    from evalkit.results.verify import Finding

SHOWN = 50


def verify(args: argparse.Namespace) -> int:
    """Print what differs; return 0 if nothing does, else 1."""
    if args.run is not None and Path(args.run).is_file():
        return _verify_archive(args)
    directory = run_of(args.run)
    findings = check(directory)
    if findings:
        return _tell(args, findings, {}, [f"{directory}: the log is damaged."])
    run = run_at(directory, reason="")
    far = f"{run.ended:,} of {many(run.planned, 'episode')} {'has' if run.planned == 1 else 'have'} ended"
    lines = [f"{directory}: every episode replays to what the log holds; {far}."]
    return _tell(args, findings, {"episodes": run.planned, "ended": run.ended}, lines)


def check(directory: Path) -> "list[Finding]":
    """All findings of a run's directory."""
    from evalkit.results.verify import verify as check_log

    return [*check_log(directory), *_beside(directory)]


def _verify_archive(args: argparse.Namespace) -> int:
    from evalkit.report.exports.archive import verify_archive
    from evalkit.version import __version__

    done = verify_archive(Path(args.run), check)
    lines = [f"SHA-256: {done.sha256}"]
    if done.written_by not in ("", __version__):
        lines.append(f"evalkit {done.written_by} wrote it, and this is {__version__}: what it wrote was compared.")
    if done.rounded:
        differ = many(done.rounded, "number differs", "numbers differ")
        lines.append(f"{differ} in the last digits, by less than one part in a billion.")
    if done.findings:
        lines.append(f"{args.run}: the archive is not what its log gives.")
    else:
        lines.append(
            f"{args.run}: every episode replays to what the log holds; {done.numbers:,} numbers were computed again "
            "and are the same."
        )
    about = {name: getattr(done, name) for name in ("sha256", "written_by", "numbers", "rounded")}
    return _tell(args, done.findings, {"archive": about}, lines)


def _tell(
    args: argparse.Namespace, findings: "Sequence[Finding]", more: Mapping[str, object], lines: Sequence[str]
) -> int:
    """Print the findings and what they come to; the exit code."""
    shown = [*map(str, findings[:SHOWN])]
    if len(findings) > SHOWN:
        shown.append(f"... and {len(findings) - SHOWN:,} more.")
    text = "\n".join([*shown, *lines])
    if args.json:
        import orjson

        told = {"version": 1, "findings": findings, **more}
        text = orjson.dumps(told, option=orjson.OPT_INDENT_2).decode()
    with unread():
        print(text)
    return 1 if findings else 0


def _beside(run: Path) -> "Iterator[Finding]":
    """Findings in files next to the log, which other commands read or write."""
    from evalkit.envs.table import ENVIRONMENTS
    from evalkit.frozen import manifests
    from evalkit.results.frozen import frozen_flaws
    from evalkit.results.verify import Finding
    from evalkit.store import events, live, lock

    for flaw in frozen_flaws(manifests.read_manifest(run), ENVIRONMENTS):
        yield Finding(segment=manifests.manifest_name(run), problem=flaw)
    for name in (events.FILE, live.FILE, lock.FILE):
        if (run / name).exists() and not (run / name).is_file():
            yield Finding(segment=name, problem="is not a file: move it elsewhere")
