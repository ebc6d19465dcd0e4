"""What is kept for good of what commands say, whatever their words: exit codes, JSON keys, columns of views.

    python -m tests.snapshots.keep [exit_codes|json_keys|views ...]

writes the files in `kept/` again. `--snapshot-update` does not: who takes a key away, or changes an exit code, says so.
"""

from tests.snapshots.asking import Asking
from tests.snapshots.workspace import HERE
from tests.support.kept_values import write_kept

KEPT = HERE / "kept"

MAKERS = {
    "exit_codes": lambda folder: Asking(folder).exit_codes(),
    "json_keys": lambda folder: Asking(folder).json_keys(),
    "views": lambda folder: Asking(folder).views(),
}
"""What makes the lines of `kept/NAME.txt`."""

if __name__ == "__main__":
    write_kept(KEPT, MAKERS)
