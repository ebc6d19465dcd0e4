"""Modules of a user's copy of a reference, executed; only in the child process that `import_reference` starts.

Only the sources that are named are executed. Other modules of the copy, and libraries that are not loaded, are blank:
whatever is taken from them can be called, indexed and inherited from, and does nothing.
"""

import ast
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from traceback import extract_tb
from types import FrameType, ModuleType, TracebackType
from typing import Any

from evalkit.envs.table import ENVIRONMENTS, named
from evalkit.errors import EvalkitError, UsageError, nearest
from evalkit.text import visible

# What reads an environment's texts out of a user's copy of its reference: its record names it.

Texts = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptImport:
    """How the texts of one environment are found."""

    source: str
    """The file by which a copy of its reference is known, as a message says it."""
    tables: Callable[[Path, str], Iterator[str]]
    """(a copy, a wording or nothing) -> its tables of a pack's TOML text; none if it is a copy of something else.
    Raises UsageError for what must be there and is not."""
    wordings: tuple[str, ...] = ()
    """Other wordings that the reference compares with its plain one."""
    place: int = 100
    """Where its tables stand in the pack: lower ones first."""


def table_text(name: str, texts: Mapping[str, str]) -> str:
    """One table of a pack."""
    # JSON's escapes are TOML's, but for the one control character that JSON lets stand.
    lines = [
        f"{key} = {json.dumps(text, ensure_ascii=False)}".replace("\x7f", "\\u007f") for key, text in texts.items()
    ]
    return "\n".join([f"[{name}]", *lines, ""])


def absent_text(keys: Iterable[str]) -> str:
    """The comment on what a copy does not say."""
    return f"# Not found in the copy, hence in evalkit's wording: {', '.join(sorted(keys)) or 'nothing'}."


class Blank(ModuleType):
    """Stands in for a library, and for everything in it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> "Blank":
        if name.startswith("__"):
            raise AttributeError(name)
        return Blank(name)

    def __call__(self, *_: Any, **__: Any) -> "Blank":
        return self

    def __getitem__(self, key: Any) -> "Blank":
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()


class Copy:
    """A copy whose `sources` are executed, by dotted name: files below it. `given`: values of names, whatever the
    sources set them to."""

    def __init__(self, repo: Path, sources: Mapping[str, str], given: Mapping[str, Any] | None = None) -> None:
        self._repo, self._sources, self._given = repo, sources, given or {}

    def __enter__(self) -> "Copy":
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)
        for name, module in list(sys.modules.items()):
            if isinstance(module, Blank) or name in self._sources:
                del sys.modules[name]

    def module(self, name: str) -> Any:
        """A source, executed. Raises UsageError if it cannot be read."""
        return importlib.import_module(name)

    def text(self, file: str) -> str:
        """A file's text. Raises UsageError."""
        try:
            return (self._repo / file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as flaw:
            raise UsageError(f"{self._repo / file} cannot be read: {flaw}") from flaw

    def tree(self, name: str) -> ast.Module:
        """A source as a tree, without lines that only print something and that an older Python cannot read: the
        references have quotes of one kind within each other there, which is Python from 3.12 on."""
        lines = self.text(self._sources[name]).splitlines(keepends=True)
        while True:
            try:
                return ast.parse("".join(lines))
            except SyntaxError as flaw:
                line = lines[flaw.lineno - 1] if flaw.lineno and flaw.lineno <= len(lines) else ""
                if not line.lstrip().startswith("print("):
                    raise UsageError(f"{self._repo / self._sources[name]} is not Python source: {flaw}") from flaw
                lines[(flaw.lineno or 1) - 1] = line[: len(line) - len(line.lstrip())] + "pass\n"

    def flaw(self, name: str, what: str, why: object) -> UsageError:
        """What to raise where a source does not hold what it should."""
        place = self._repo / self._sources.get(name, name)
        return UsageError(f"{place}: {what} cannot be read: {why}. Is it the reference's original file?")

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """As the import system asks."""
        top = name.partition(".")[0]
        known = top in sys.stdlib_module_names or not isinstance(sys.modules.get(top, Blank(top)), Blank)
        return None if known and name not in self._sources else spec_from_loader(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """A blank, or None for a module as Python makes it."""
        return None if spec.name in self._sources else Blank(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Executes a source; a blank stays as it is."""
        name = module.__name__
        if name in self._sources:
            tree = self.tree(name)
            for node in ast.walk(tree):
                match node:
                    case ast.Assign(targets=[ast.Name(id=given)]) if given in self._given:
                        node.value = ast.parse(repr(self._given[given]), mode="eval").body
            place = str(self._repo / self._sources[name])
            module.__file__ = place
            exec(compile(ast.fix_missing_locations(tree), place, "exec"), module.__dict__)  # noqa: S102 - what it is for


def with_locals(function: Callable[..., Any], *values: Any) -> tuple[Any, dict[str, Any]]:
    """(what a function returns, its local names at the end)."""
    seen: dict[str, Any] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code is function.__code__:
            seen.update(frame.f_locals)

    sys.setprofile(watch)
    try:
        return function(*values), seen
    finally:
        sys.setprofile(None)


# A prompt pack from a user's copy of a reference repository, whose own code makes the texts.
#
# That code is executed: in a child process, which the user starts knowingly, without the environment's variables, for
# a bounded time, and with an answer of bounded size. Each environment's record names what finds its texts.

LONGEST_S = 120.0
MOST_BYTES = 16 << 20
MOST_SAID = 2000
"""Characters of what the copy's code says when it fails."""
INHERITED = ("PATH", "LD_LIBRARY_PATH")
"""What Python may need to start; the rest, such as keys, is not the copy's business."""
PACKAGES = Path(__file__).parents[3]
START = (
    "import os, sys; sys.path += sys.argv[1].split(os.pathsep); from evalkit.spec.importing import executed as own; "
)
START += "own.answer()"


def import_reference(*repositories: Path, wording: str = "") -> str:
    """A pack's TOML text. `wording`: one that a reference compares with its plain one, in some environments.

    Executes code of the copies. Raises UsageError if it fails or takes too long, if a file or a text that must be there
    is not, if there is no such wording, or if two copies are of one reference.
    """
    for repo in repositories:
        if not repo.is_dir():
            raise UsageError(f"{repo}: this is no folder.")
    packs = [_told(repo, wording) for repo in repositories]
    seen: dict[str, Path] = {}
    for repo, text in zip(repositories, packs, strict=True):
        tables = dict.fromkeys(tomllib.loads(text), repo)
        if twice := sorted(tables.keys() & seen.keys()):
            raise UsageError(f"{repo}: {twice[0]} is in {seen[twice[0]]} already. Name one copy of each reference.")
        seen |= tables
    return "\n".join(packs)


def _told(repo: Path, wording: str) -> str:
    """One copy's part of a pack."""
    # Packages that bring environments are found where this process finds them, but not in the current folder.
    paths = [str(PACKAGES), *(path for path in sys.path if path and Path(path).resolve() != Path.cwd())]
    command = [sys.executable, "-I", "-c", START, os.pathsep.join(paths), str(repo.resolve()), wording]
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
    print(visible(f"{at.filename}, line {at.lineno}: {kind.__name__}: {flaw}"), file=sys.stderr)


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
