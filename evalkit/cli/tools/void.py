"""`evalkit tools void`: exclude episodes from all results, or let them count again."""

import argparse
import getpass
import socket
import time

from evalkit.cli.choosing import only_of
from evalkit.errors import UsageError
from evalkit.playing.specs import run_directory
from evalkit.text import many


def void(args: argparse.Namespace) -> int:
    """Record the decision; the log does not change."""
    from evalkit.frozen.manifests import read_manifest
    from evalkit.frozen.void import FILE, Void, add_voids, read_voids
    from evalkit.results.voided import EpisodeChoice, choose
    from evalkit.store.files.record import UNSCORED
    from evalkit.store.lock import hold_run

    directory = run_directory(args.run)
    names = only_of(args.only, kinds=("agent", "suite", "instance"))
    several = next((kind for kind, chosen in names.items() if len(chosen) > 1), None)
    if several is not None:
        raise UsageError(f"--only: one {several} at a time; call `evalkit tools void` for each.")
    wanted = EpisodeChoice(**{kind: chosen[0] for kind, chosen in names.items()}, episode=args.episode)
    if wanted == EpisodeChoice():
        raise UsageError("tools void: choose episodes by --only or --episode.")
    reason = _reason(args.reason)
    read_manifest(directory)
    with hold_run(directory):
        void_now = read_voids(directory)
        episodes = choose(directory, wanted)
        ended = [episode for episode in episodes if episode.ending and episode.ending not in UNSCORED]
        changed = [episode for episode in ended if (episode.id in void_now) == args.undo]
        decisions = [
            Void(
                episode=episode.id,
                agent=episode.agent,
                suite=episode.suite,
                instance=episode.instance,
                replicate=episode.replicate,
                undo=args.undo,
                reason=reason,
                by=f"{_user()}@{socket.gethostname()}",
                at=time.time(),
            )
            for episode in changed
        ]
        if decisions:
            add_voids(directory, decisions)
    one, several = ("counts", "count") if args.undo else ("is", "are")
    done = "again" if args.undo else "void: kept in the log, excluded from all results"
    print(f"{directory}: {len(changed):,} of {many(len(episodes), f'episode {one}', f'episodes {several}')} {done}.")
    if len(episodes) > len(ended):
        print(
            f"{len(episodes) - len(ended):,} have not ended, so no result uses them yet: void them after "
            "they have ended."
        )
    if len(ended) > len(changed):
        print(f"{len(ended) - len(changed):,} {'were not void' if args.undo else 'were void already'}.")
    if decisions:
        print(f"Written to {directory / FILE}.")
    return 0


def _reason(text: str) -> str:
    from evalkit.frozen.void import MOST_REASON

    reason = text.encode("utf-8", "replace").decode().strip()
    if not reason or len(reason) > MOST_REASON:
        raise UsageError(f"--reason: say why, in 1 to {MOST_REASON:,} characters.")
    return reason


def _user() -> str:
    """The user's name, or the user's id in a container without names."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        import os

        return str(os.getuid())
