"""`evalkit archive`: a run and its numbers in one file, a zip that holds one folder.

The same run gives the same bytes: names are sorted, and no time is written. Parquet files are stored as they
are, texts are compressed.
"""

import hashlib
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import orjson

from evalkit import __version__
from evalkit.errors import RunError
from evalkit.report.archive.citation import FILE as CITATION
from evalkit.report.archive.citation import Citation, citation_file
from evalkit.report.archive.numbers import OPTIMA, REPORT, TABLES, number_files
from evalkit.report.report import Report, report
from evalkit.results.episodes import Environments
from evalkit.results.verify import verify
from evalkit.store import disk
from evalkit.store.copying import kept_files
from evalkit.store.folder import refuse_existing
from evalkit.store.lock import refuse_writer
from evalkit.store.manifests import read_manifest
from evalkit.text import visible

FORMAT = 1
RUN = "run"
README = "README.md"
VERSIONS = "versions.json"
CHECKSUMS = "checksums.sha256"

PACKED = (".parquet",)
"""Files that are compressed already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """What was written."""

    files: int
    size: int
    """Bytes."""
    sha256: str
    """Of the whole file, hex."""
    tables: int
    ended: int
    planned: int


def write_archive(run: Path, environments: Environments, out: Path, about: Citation) -> Archived:
    """Write the archive, completely or not at all; the run is only read.

    Raises UsageError if `out` exists, RunError if the run is being written or `verify` finds a flaw, CorruptLogError,
    StorageError.
    """
    refuse_existing(out)
    read_manifest(run)
    files = list(kept_files(run))
    refuse_writer(run, "Archive")
    findings = verify(run)
    if findings:
        raise RunError(
            f"{run} cannot be archived: {findings[0]}; {len(findings):,} findings in all. `evalkit verify {run}` lists "
            "them. Nothing was written."
        )
    tables = report(run)
    texts = {
        **number_files(run, environments),
        VERSIONS: _versions(tables),
        CITATION: citation_file(about, tables),
    }
    texts[README] = _readme(tables, texts)
    disk.make_directories(out.absolute().parent)
    aside = out.with_name(f".{out.name}{disk.ASIDE}")
    try:
        with disk.storage_errors(out), aside.open("wb") as file:
            _zip(file, tables.manifest.name, {f"{RUN}/{name}": run / name for name in files}, texts)
            _refuse_change(run, files)
            file.flush()
            os.fsync(file.fileno())
        refuse_existing(out)
        with disk.storage_errors(out):
            disk.rename(aside, out)
            disk.sync_directory(out.absolute().parent)
    finally:
        aside.unlink(missing_ok=True)
    return Archived(
        files=len(files) + len(texts) + 1,
        size=out.stat().st_size,
        sha256=sha256_of(out),
        tables=len(tables.tables),
        ended=tables.ended,
        planned=tables.planned,
    )


def sha256_of(path: Path) -> str:
    """The digest of a file's bytes, hex."""
    with disk.storage_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse_change(run: Path, before: Sequence[str]) -> None:
    """Raise RunError if the run is being written, or has other files than before."""
    refuse_writer(run, "Archive")
    if list(kept_files(run)) != before:
        raise RunError(f"{run} was written meanwhile. Nothing was archived; start the same command again.")


def _zip(file: IO[bytes], top: str, copied: Mapping[str, Path], texts: Mapping[str, bytes]) -> None:
    sums: dict[str, str] = {}
    with ZipFile(file, "w") as archive:
        for name in sorted({*copied, *texts}, key=_order):
            with archive.open(_entry(f"{top}/{name}"), "w", force_zip64=True) as member:
                if name in texts:
                    member.write(texts[name])
                    sums[name] = hashlib.sha256(texts[name]).hexdigest()
                else:
                    sums[name] = _copy(copied[name], member)
        listed = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))
        archive.writestr(_entry(f"{top}/{CHECKSUMS}"), listed)


def _order(name: str) -> tuple[bool, str]:
    """What people look at first comes first."""
    return name.startswith(f"{RUN}/"), name


def _entry(name: str) -> ZipInfo:
    entry = ZipInfo(name)  # of 1980, the first year that a zip knows
    entry.compress_type = ZIP_STORED if name.endswith(PACKED) else ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _copy(path: Path, member: IO[bytes]) -> str:
    with path.open("rb") as source:
        shutil.copyfileobj(source, member)
        source.seek(0)
        return hashlib.file_digest(source, "sha256").hexdigest()


def _versions(run: Report) -> bytes:
    """What computed the numbers."""
    from importlib.metadata import PackageNotFoundError, requires, version

    packages = {}
    with suppress(PackageNotFoundError):  # of a copy that was never installed nothing is known
        for line in requires("evalkit-econ") or ():
            if "extra ==" not in line:
                name = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]
                packages[name] = version(name)
    about = {
        "archive": FORMAT,
        "evalkit": __version__,
        "began_with": run.manifest.evalkit,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": packages,
        "plugins": [{"package": plugin.package, "version": plugin.version} for plugin in run.manifest.plugins],
    }
    return orjson.dumps(about, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _readme(run: Report, texts: Mapping[str, bytes]) -> bytes:
    return "".join(f"{line}\n" for line in _readme_lines(run, texts)).encode()


def _readme_lines(run: Report, texts: Mapping[str, bytes]) -> Iterator[str]:
    manifest = run.manifest
    yield f"# {visible(manifest.name)}"
    yield ""
    yield f"An evalkit run, archived by evalkit {__version__}: {run.ended:,} of {run.planned:,} episodes have ended."
    yield ""
    yield "To compute every number again from the replies of the models, and to compare it with the files below:"
    yield ""
    yield f"    pip install evalkit-econ=={__version__}"
    yield "    evalkit verify FILE.zip"
    yield ""
    yield "| path | what it holds |"
    yield "|---|---|"
    yield f"| `{RUN}/` | the run's directory: the log of all replies, the manifest, the suites, the sweep |"
    yield f"| `{REPORT}` | every table of the report, with full precision and the SQL that makes each |"
    yield f"| `{TABLES}/` | the same as CSV, and every episode and score: {_count(texts, TABLES)} files |"
    yield f"| `{OPTIMA}` | what the scores are measured against, for each instance |"
    yield f"| `{VERSIONS}` | the versions of evalkit, Python and libraries that computed the numbers |"
    yield f"| `{CITATION}` | how to cite it |"
    yield f"| `{CHECKSUMS}` | SHA-256 of each file: `sha256sum --check {CHECKSUMS}` |"
    yield ""
    yield f"After unpacking, `evalkit report {RUN}`, `evalkit view {RUN}` and `evalkit sql {RUN}` read it like any run."
    yield ""


def _count(texts: Mapping[str, bytes], folder: str) -> int:
    return sum(name.startswith(f"{folder}/") for name in texts)
