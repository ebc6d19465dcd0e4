"""List a difference that is meant, with its reason; or show what differs.

    python -m tests.net.differences                               what differs and is not listed
    python -m tests.net.differences 'commands/*/report/*' --reason "reports say how an interval was made"

The pattern may be an id, or have `*` in it (one that takes every id below it too); of what it matches, that is listed
which differs today. The golden stays; what is said today is kept in `intended/`, also where it was listed
before (then the new reason joins the old ones). `--gone` drops entries that no longer differ. JSON keys keep their
names: where one is lost all the same, and that is meant, `--loses` says so, and the entry names the keys.
"""

import argparse
import fnmatch
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.net.checking import Made, lost
from tests.net.goldens import (
    DIFFERENCES,
    GOLDENS,
    GROUPS,
    REASONS,
    expected,
    group_of,
    ids,
    losses,
    read,
    reasons,
    write,
)

LEAST_WORDS = 3


def chosen(patterns: Iterable[str]) -> list[str]:
    """The groups that a pattern can match in."""
    heads = [pattern.split("*")[0] for pattern in patterns]
    return [group for group in GROUPS if any(f"{group}/".startswith(head) or head.startswith(group) for head in heads)]


def differing(made: Made, groups: Iterable[str]) -> list[str]:
    """Ids of these groups that say neither what their golden nor what their listed difference says."""
    listed = reasons()
    found = []
    for group in groups:
        today = made.group(group)
        known = {*ids(GOLDENS, group), *(one for one in listed if group_of(one) == group), *today}
        found += [one for one in sorted(known) if today.get(one) != expected(one, listed)]
    return found


def add(one: str, now: str | None, reason: str, *, loses: bool = False) -> None:
    """List an id, with what it says now; None: it says nothing any more. `loses`: JSON keys may be lost."""
    if now is None:
        (DIFFERENCES / f"{one}.txt").unlink(missing_ok=True)
    else:
        write(DIFFERENCES, one, now)
    keys = [key for key in lost(one, now) if loses and key not in losses().get(one, [])]
    if keys or reason not in reasons().get(one, []):
        entry = {"id": one, "reason": reason, **({"loses": keys} if keys else {})}
        with REASONS.open("a") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def drop(one: str) -> None:
    """Forget an entry."""
    (DIFFERENCES / f"{one}.txt").unlink(missing_ok=True)
    lines = [line for line in REASONS.read_text().splitlines() if json.loads(line)["id"] != one]
    REASONS.write_text("".join(f"{line}\n" for line in lines))


def main(words: list[str]) -> int:
    """0 where nothing is left unlisted."""
    parser = argparse.ArgumentParser(prog="python -m tests.net.differences", description=__doc__)
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("--reason", default="")
    parser.add_argument("--loses", action="store_true")
    parser.add_argument("--gone", action="store_true")
    args = parser.parse_args(words)
    if args.patterns and len(args.reason.split()) < LEAST_WORDS:
        print("Say why: --reason '...', a sentence that somebody else understands.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        made = Made(Path(folder))
        if args.gone:
            for one in reasons():
                if made.text(one) == read(GOLDENS, one):
                    drop(one)
                    print(f"no longer differs: {one}")
        found = differing(made, chosen(args.patterns or ["*"]))
        for one in found:
            mine = any(fnmatch.fnmatchcase(one, pattern) for pattern in args.patterns)
            if mine:
                add(one, made.text(one), args.reason, loses=args.loses)
            print(("listed: " if mine else "differs: ") + one)
    return 0 if all(any(fnmatch.fnmatchcase(one, each) for each in args.patterns) for one in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
