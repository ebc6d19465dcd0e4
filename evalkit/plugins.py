"""Extensions from other packages, found by name through their entry points. The contract of each group:
`docs/plugins.md`.

Each table of evalkit's own (environments, policies, ...) is a literal and is read first. Entry points are read only for
a name that is not in it, because reading them takes a tenth of a second. Only the entry that was named is imported. A
package cannot take a name of evalkit's own. A name that two packages claim must be written as `PACKAGE:NAME`.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from evalkit.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

ValueT = TypeVar("ValueT")

PREFIX = "evalkit."
GROUPS: Mapping[str, str] = {
    "environments": "environment",
    "policies": "policy",
    "agents": "agent",
    "dialects": "dialect",
    "prompts": "prompt pack",
    "suites": "folder of suites",
}
"""Groups of entry points, without `PREFIX`, and what an entry of each is. Each is a promise: none is added lightly."""

DAMAGE = (OSError, ValueError, LookupError, TypeError)
"""What reading a package's metadata may raise where they are not as installers write them."""

AT = "@"
"""Between a policy of evalkit's and an environment: `random@offers` is that environment's player of `random`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """One entry of an installed package. Nothing of it is imported until `load`."""

    group: str
    """A key of `GROUPS`."""
    name: str
    value: str
    """`module:attribute`."""
    package: str
    version: str

    @property
    def entry(self) -> str:
        """`evalkit.environments:offers`."""
        return f"{PREFIX}{self.group}:{self.name}"

    @property
    def source(self) -> str:
        """Where it comes from, for messages."""
        return f"{self.package} {self.version} ({self.entry} = {self.value})"

    def load(self) -> Any:
        """Import what the entry names. Raises UsageError with package, version, entry and cause."""
        from importlib.metadata import EntryPoint

        with importing(self.source):
            return EntryPoint(name=self.name, value=self.value, group=PREFIX + self.group).load()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A package of which not everything could be read that says what it brings."""

    package: str
    why: str
    brings: bool
    """Whether it has entries for evalkit; else nothing is lost."""


@contextmanager
def importing(what: str) -> Iterator[None]:
    """Code of another package: whatever it raises, `SystemExit` included, is told as its fault. Raises UsageError."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as flaw:
        raise UsageError(f"{what} cannot be imported: {type(flaw).__name__}: {flaw}") from flaw


def installed(group: str) -> tuple[Plugin, ...]:
    """All entries of a group, by name and package; nothing is imported. Takes 0.1 CPU s, once in a process."""
    return tuple(plugin for plugin in _scanned(tuple(sys.path))[0] if plugin.group == group)


def strangers() -> tuple[Plugin, ...]:
    """Entries of groups that begin as evalkit's do, and that this evalkit does not know."""
    return tuple(plugin for plugin in _scanned(tuple(sys.path))[0] if plugin.group not in GROUPS)


def unread() -> tuple[Unread, ...]:
    """What could not be read of the packages that are there."""
    return _scanned(tuple(sys.path))[1]


@lru_cache(maxsize=8)
def _scanned(path: tuple[str, ...]) -> tuple[tuple[Plugin, ...], tuple[Unread, ...]]:
    """Entries of all packages on this path: what is added to it later is found too; and what could not be read.

    Read as text, line by line: a damaged file of one package hides neither others nor what is legible in it.
    """
    del path
    from importlib.metadata import distributions  # slow to import, and most calls do not need it

    by_package: dict[str, list[Plugin]] = {}
    hidden: list[Unread] = []
    for package in distributions():
        text, why = _text(package)
        brings = f"[{PREFIX}" in text
        if not why and not brings:
            continue
        name, version, nameless = _about(package)
        if plain_name(name) in by_package:  # as imports do, the first on the path wins
            continue
        entries, broken = _entries(text)
        by_package[plain_name(name)] = [
            Plugin(group=group, name=entry, value=value, package=name, version=version)
            for group, entry, value in entries
        ]
        flaws = [why, nameless, *broken] if brings else [why]
        hidden += [Unread(package=name, why=flaw, brings=brings) for flaw in flaws if flaw]
    plugins = {plugin for plugins in by_package.values() for plugin in plugins}
    return tuple(sorted(plugins, key=lambda plugin: (plugin.group, plugin.name, plugin.package))), tuple(hidden)


def _text(package: "Distribution") -> tuple[str, str]:
    """(what a package says that it brings, why not all of it can be read)"""
    try:
        return package.read_text("entry_points.txt") or "", ""
    except DAMAGE as flaw:
        legible = flaw.object.decode(errors="replace") if isinstance(flaw, UnicodeDecodeError) else ""
        return legible, f"entry_points.txt: {flaw}."


def _about(package: "Distribution") -> tuple[str, str, str]:
    """(a package's name, its version, what is wrong with what it says of them)"""
    try:
        name, version = package.name, package.version
    except DAMAGE:
        name = version = ""
    if name and version:
        return name, version, ""
    folder = Path(str(getattr(package, "_path", ""))).name.removesuffix(".dist-info")
    stem, _, number = folder.partition("-")
    return name or stem or "?", version or number, "METADATA states no name, or no version."


def _entries(text: str) -> tuple[list[tuple[str, str, str]], list[str]]:
    """((group, name, value) of each entry for evalkit, what is wrong with lines among them)"""
    entries, flaws, group = list[tuple[str, str, str]](), list[str](), ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("["):
            group = line.strip("[]")
        elif group.startswith(PREFIX) and not line.startswith("#"):
            name, sign, value = (part.strip() for part in line.partition("="))
            if sign:
                entries.append((group.removeprefix(PREFIX), name, value))
            else:
                flaws.append(f"entry_points.txt: [{group}]: {line!r:.80} is not `name = module:attribute`.")
    return entries, flaws


def find(group: str, name: str) -> Plugin | None:
    """The entry of that name, which may be written `PACKAGE:NAME`; None if there is none.

    Raises UsageError if several packages claim it.
    """
    package, _, bare = name.rpartition(":")
    claims = [
        claim
        for claim in installed(group)
        if claim.name == bare and (not package or plain_name(claim.package) == plain_name(package))
    ]
    if len(claims) < 2:
        return next(iter(claims), None)
    sources = ", ".join(claim.source for claim in claims)
    ways = " or ".join(repr(f"{claim.package}:{bare}") for claim in claims)
    raise UsageError(
        f"The {GROUPS[group]} {bare!r} is in {len(claims)} packages: {sources}. Write {ways}, or uninstall all but one."
    )


def plain_name(package: str) -> str:
    """A package's name as installers compare it."""
    return re.sub(r"[-_.]+", "-", package).lower()


def is_plain(word: str) -> bool:
    """Whether it can be the name or the version of a package, which is quoted in commands for a reader's shell."""
    return _PLAIN.fullmatch(word) is not None


_PLAIN = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+!_-]{0,99}")


def install_line(package: str, version: str = "") -> str:
    """The command that installs a package."""
    return f"pip install {package}{version and f'=={version}'}"


class PluginTable(Mapping[str, ValueT], Generic[ValueT]):
    """A table of evalkit's own, followed by the entries of packages. Reading a name imports that entry alone."""

    def __init__(self, group: str, built_in: Mapping[str, ValueT], kind: type[ValueT]) -> None:
        """`kind`: what a value must be; where that is a record with a name, the name must be the entry's."""
        self.group, self.built_in, self._kind = group, built_in, kind
        self._read: dict[tuple[str, Plugin], ValueT] = {}

    def __getitem__(self, name: str) -> ValueT:
        """The value. Raises KeyError if there is none, UsageError where its package is at fault or several claim
        it."""
        if name in self.built_in:
            return self.built_in[name]
        plugin = self.plugin(name)
        if plugin is None:
            raise KeyError(name)
        if (name, plugin) not in self._read:
            self._read[name, plugin] = self.read(plugin, name)
        return self._read[name, plugin]

    def __contains__(self, name: object) -> bool:
        return name in self.built_in or (isinstance(name, str) and self.plugin(name) is not None)

    def __iter__(self) -> Iterator[str]:
        """Own names, then those of packages; a name that several claim comes once for each, as it is to be written."""
        yield from self.built_in
        yield from names(self.group, self.built_in)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def plugin(self, name: str) -> Plugin | None:
        """The entry that a name stands for; None of evalkit's own, and where there is none."""
        if not name or name in self.built_in or name.rpartition(":")[2] in self.built_in:
            return None
        return find(self.group, name)

    def read(self, plugin: Plugin, name: str = "") -> ValueT:
        """The value of an entry, under the name that was requested. Raises UsageError if it is not of the right
        kind."""
        value = plugin.load()
        if not isinstance(value, self._kind):
            raise UsageError(f"{plugin.source}: expected a value of {self._kind.__name__}, got {value!r:.80}.")
        own = getattr(value, "name", None) if is_dataclass(self._kind) else None
        if own not in (None, plugin.name):
            raise UsageError(f"{plugin.source}: its record is named {own!r}; it must have the entry's name.")
        changed: Any = value
        return value if own is None or name in ("", own) else cast(ValueT, replace(changed, name=name))


def names(group: str, taken: Iterable[str] = ()) -> list[str]:
    """The names by which a group's entries can be asked for, without those that are `taken`."""
    used = set(taken)
    claims = [plugin for plugin in installed(group) if plugin.name not in used]
    count: dict[str, int] = {}
    for claim in claims:
        count[claim.name] = count.get(claim.name, 0) + 1
    return [claim.name if count[claim.name] == 1 else f"{claim.package}:{claim.name}" for claim in claims]
