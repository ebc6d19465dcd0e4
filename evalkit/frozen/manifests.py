"""The files of a manifest: `manifest/000000.json`, `000001.json`, ... Each is created once; the highest number applies.

A run extended by agents, suites or replicates gets the next number. Each file says which format it has, and which
evalkit wrote it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import orjson

from evalkit.errors import CorruptLogError, RunError, StorageError
from evalkit.frozen.instances import ManifestInstance, laid
from evalkit.frozen.manifest import REMEDY, Manifest, ManifestSuite, flaws_of
from evalkit.frozen.suite_file import Description, StoredInstances, stored, write_suite
from evalkit.store import disk
from evalkit.store.folder import next_numbered, numbered
from evalkit.store.json_text import decode, other_format
from evalkit.version import __version__

FOLDER = "manifest"
FORMAT = 1
"""Number of a manifest's format, and of the suites' files that it names."""


def manifest_file(run: Path) -> Path | None:
    """The file that holds a run's manifest; None if there is none. Raises StorageError."""
    files = numbered(run / FOLDER)
    return files[-1] if files else None


def is_run(directory: Path) -> bool:
    """Whether a directory holds a run. Raises StorageError."""
    return manifest_file(directory) is not None


def runs_in(folder: Path) -> list[Path]:
    """The runs in a folder, in no order."""
    return list({path.parent.parent: None for path in folder.glob(f"*/{FOLDER}/*.json")})


def manifest_name(run: Path) -> str:
    """The file that holds a run's manifest, seen from its directory."""
    path = manifest_file(run)
    return FOLDER if path is None else path.relative_to(run).as_posix()


def manifest_digest(run: Path) -> str:
    """SHA-256 of the file that holds a run's manifest; empty if there is none. Raises StorageError."""
    path = manifest_file(run)
    data = None if path is None else disk.read_whole(path)
    return "" if data is None else hashlib.sha256(data).hexdigest()


def read_manifest(run: Path) -> Manifest:
    """The manifest of a run directory. Raises RunError if it is none, CorruptLogError if the file is damaged."""
    path = manifest_file(run)
    raw = None if path is None else disk.read_whole(path)
    if path is None or raw is None:
        raise RunError(f"{run} is no run directory: it has no {FOLDER}/. Start one with `evalkit run SPEC`.")
    plain: dict[str, Any] = decode(raw, dict[str, Any], str(path), REMEDY)
    number = plain.get("format")
    if isinstance(number, int) and number != FORMAT:
        raise RunError(other_format(path, "manifest format", number, plain.get("written_by"), FORMAT))
    manifest = _as_read(run, plain, path)
    flaw = next(flaws_of(manifest), "")
    if flaw:
        raise CorruptLogError(f"{path} is damaged: {flaw}. {REMEDY}")
    return manifest


def manifest_if_run(directory: Path) -> Manifest | None:
    """The manifest of a directory; None if that holds no run. Raises as `read_manifest` does."""
    return read_manifest(directory) if is_run(directory) else None


def _as_read(run: Path, plain: dict[str, Any], path: Path) -> Manifest:
    """The manifest in a file, with access to its suites' instances."""
    try:
        msgspec.convert(plain, _ManifestHead)
        suites = plain.get("suites")
        if not isinstance(suites, dict) or not all(isinstance(suite, dict) for suite in suites.values()):
            raise msgspec.ValidationError("Expected `object` - at `$.suites`")
        descriptions = {
            name: msgspec.convert(suite.get("instances"), Description, strict=True) for name, suite in suites.items()
        }
        listed = {name: {**suite, "instances": []} for name, suite in suites.items()}
        manifest = msgspec.convert({**plain, "suites": listed}, Manifest)
    except msgspec.ValidationError as flaw:
        raise CorruptLogError(f"{path} is damaged: {flaw}. {REMEDY}") from flaw
    return _with_instances(manifest, {name: stored(run, description) for name, description in descriptions.items()})


def _with_instances(manifest: Manifest, instances: Mapping[str, Sequence[ManifestInstance]]) -> Manifest:
    suites = {
        name: msgspec.structs.replace(suite, instances=instances[name]) for name, suite in manifest.suites.items()
    }
    return msgspec.structs.replace(manifest, suites=suites)


def write_manifest(run: Path, manifest: Manifest) -> Manifest:
    """Make this the run directory's manifest, completely or not at all; the directory is created if necessary.

    The suites' files come first, those that are not there already. Returns the manifest as it will be read: its
    instances are those of the files. Raises StorageError.
    """
    disk.make_directories(run / FOLDER)
    disk.remove_leftovers(run / FOLDER)
    manifest = _with_instances(manifest, {name: _kept(run, suite) for name, suite in manifest.suites.items()})
    path = next_numbered(run / FOLDER)
    with disk.storage_errors(run):
        disk.sync_directory(run)  # a process that was stopped may have made the folders, and not waited for their names
    try:
        disk.create_durably(path, encode_manifest(manifest))
    except FileExistsError:
        raise RunError(
            f"{path} exists already: another process has extended the run. Start the same command again."
        ) from None
    return manifest


def _kept(run: Path, suite: ManifestSuite) -> StoredInstances:
    """The suite's instances in a file of the run."""
    instances = suite.instances
    if isinstance(instances, StoredInstances) and instances.lies_in(run) and instances.path.exists():
        return instances
    return write_suite(run, laid(instances))


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as indented JSON in the spec's order, so that two of them can be compared by eye.

    Its suites' instances must lie in files.
    """
    by_suite = {name: suite.instances for name, suite in manifest.suites.items()}
    plain = msgspec.to_builtins(_with_instances(manifest, dict.fromkeys(by_suite, ())))
    for name, instances in by_suite.items():
        if not isinstance(instances, StoredInstances):
            raise TypeError(f"the instances of {name!r} are not in a file")
        plain["suites"][name]["instances"] = msgspec.to_builtins(instances.description)
    written = msgspec.to_builtins(_ManifestHead(format=FORMAT, written_by=__version__))
    return msgspec.json.format(msgspec.json.encode({**written, **plain}), indent=2) + b"\n"


class _ManifestHead(msgspec.Struct, frozen=True, kw_only=True):
    """What every manifest begins with, and manifests of later formats are to begin with: so that this evalkit can
    refuse them, and say which one reads them."""

    format: int
    written_by: str
    """The version of evalkit."""


# `spec/000000.json`, `000001.json`, ...: the sweep as it was written when a session began, for people and archives.
#
# The manifest says what was frozen, and replay needs nothing else. This says what was asked for: limits, budget and
# deadline too. A session whose sweep differs from the newest file adds the next one; none is ever changed.

SPEC_FOLDER = "spec"


class KeptSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One file."""

    source: str
    """The name of the file that the sweep was read from, without its folders; `spec` for a mapping."""
    settings: tuple[str, ...] = msgspec.field(name="set", default=())
    """What the command line replaced in it: `agents.gpt.effort=high`."""
    spec: dict[str, Any]
    """What it says with that, as plain values."""


def keep_spec(run: Path, spec: Mapping[str, Any], source: str, settings: tuple[str, ...] = ()) -> None:
    """Keep what a session was asked for, unless the newest file says the same. The caller has locked the run.

    Nothing depends on it: it is not synced, and a disk that refuses it is no error.
    """
    kept = KeptSpec(source=Path(source).name, settings=settings, spec=dict(spec))
    data = orjson.dumps(msgspec.to_builtins(kept), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    folder = run / SPEC_FOLDER
    files = numbered(folder)
    with suppress(StorageError):
        if files and disk.read_whole(files[-1]) == data:
            return
    disk.put(next_numbered(folder), data)


def read_spec(run: Path) -> KeptSpec | None:
    """The newest; None for a run that has none. Raises CorruptLogError, StorageError."""
    files = numbered(run / SPEC_FOLDER)
    data = disk.read_whole(files[-1]) if files else None
    return None if data is None else decode(data, KeptSpec, str(files[-1]), _SPEC_REMEDY)


_SPEC_REMEDY = "Delete the file: no other file depends on it."
