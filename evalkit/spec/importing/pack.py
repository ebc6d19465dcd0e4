"""A prompt pack from a user's copy of a reference repository, whose own code makes the texts.

That code is executed: in a child process, which the user starts knowingly, without the environment's variables, for a
bounded time, and with an answer of bounded size. Each environment's record names what finds its texts.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from traceback import extract_tb
from types import TracebackType

from evalkit.envs.table import ENVIRONMENTS, named
from evalkit.errors import EvalkitError, UsageError, nearest
from evalkit.spec.importing.record import PromptImport

LONGEST_S = 120.0
MOST_BYTES = 16 << 20
MOST_SAID = 2000
"""Characters of what the copy's code says when it fails."""
INHERITED = ("PATH", "LD_LIBRARY_PATH")
"""What Python may need to start; the rest, such as keys, is not the copy's business."""
PACKAGES = Path(__file__).parents[3]
START = "import sys; sys.path.insert(0, sys.argv[1]); from evalkit.spec.importing.pack import answer; answer()"


def import_reference(repo: Path, wording: str = "") -> str:
    """A pack's TOML text. `wording`: one that a reference compares with its plain one, in some environments.

    Executes code of the copy. Raises UsageError if it fails or takes too long, if a file or a text that must be there
    is not, or if there is no such wording.
    """
    if not repo.is_dir():
        raise UsageError(f"{repo}: this is no folder.")
    command = [sys.executable, "-I", "-c", START, str(PACKAGES), str(repo.resolve()), wording]
    env = {name: os.environ[name] for name in INHERITED if name in os.environ}
    with TemporaryDirectory(prefix="evalkit-") as room, TemporaryFile() as log:
        child = subprocess.Popen(  # noqa: S603 - our own command; what it executes the user has named
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=room,
            env=env,
            start_new_session=True,
        )
        late = threading.Timer(LONGEST_S, _end, (child.pid,))
        late.start()
        try:
            said = child.stdout.read(MOST_BYTES + 1) if child.stdout is not None else b""
        finally:
            late.cancel()
            _end(child.pid)
            child.communicate()
        log.seek(max(0, log.seek(0, os.SEEK_END) - MOST_SAID))
        words = log.read().decode("utf-8", "replace").strip()
    try:
        told = json.loads(said)
    except ValueError as flaw:
        why = "says more than it may" if len(said) > MOST_BYTES else f"fails, or takes longer than {LONGEST_S:.0f} s"
        raise UsageError(
            f"{repo}: the code of this copy {why}. {words}. Is it the reference's original code?"
        ) from flaw
    if "flaw" in told:
        raise UsageError(told["flaw"])
    return str(told["text"])


def _end(group: int) -> None:
    """End a child and what it has started."""
    with suppress(ProcessLookupError, PermissionError):  # it has ended; macOS says the latter
        os.killpg(group, signal.SIGKILL)


def answer() -> None:
    """In the child: execute what a copy's texts need, and say the pack or what is wrong."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the copy prints is no answer
    repo = Path(sys.argv[2])
    sys.excepthook = lambda kind, flaw, trace: _tell(repo, kind, flaw, trace)
    try:
        told = {"text": _read(repo, sys.argv[3])}
    except EvalkitError as flaw:
        told = {"flaw": str(flaw)}
    with out:
        json.dump(told, out)


def _tell(repo: Path, kind: type[BaseException], flaw: BaseException, trace: TracebackType | None) -> None:
    """Say where in the copy its code has failed."""
    frames = extract_tb(trace)
    at = next((frame for frame in reversed(frames) if repo in Path(frame.filename).parents), frames[-1])
    print(f"{at.filename}, line {at.lineno}: {kind.__name__}: {flaw}", file=sys.stderr)


def _read(repo: Path, wording: str) -> str:
    available = (
        named(name, "prompt_import", env.presentation.prompt_import, PromptImport)
        for name, env in ENVIRONMENTS.items()
        if env.presentation.prompt_import
    )
    imports = sorted(available, key=lambda entry: entry.place)
    wordings = list(dict.fromkeys(known for entry in imports for known in entry.wordings))
    if wording and wording not in wordings:
        raise UsageError(f"The reference has no wording {wording!r}.{nearest(wording, wordings)}")
    tables = [table for entry in imports for table in entry.tables(repo, wording)]
    if not tables:
        *others, last = (entry.source for entry in imports)
        wanted = f"{', '.join(others)}, nor {last}" if others else last
        raise UsageError(f"{repo}: this is not a copy of a reference repository: it has none of {wanted}.")
    head = f"# The wording{f' {wording!r}' if wording else ''} of a copy of the reference repository."
    return "\n".join([head, "", *tables])
