"""How to cite an archive: `CITATION.cff`, version 1.2.0 of the Citation File Format (https://citation-file-format.github.io)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from evalkit import __version__
from evalkit.report.report import Report

FILE = "CITATION.cff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """What the command line says of it."""

    authors: tuple[str, ...] = ()
    """`Given Family`, or `Family, Given`."""
    title: str = ""
    license: str = ""
    """An identifier of SPDX, such as `CC-BY-4.0`."""


def citation_file(about: Citation, run: Report) -> bytes:
    """The file, as YAML."""
    manifest = run.manifest
    environments = sorted({suite.environment for suite in manifest.suites.values()})
    fields: dict[str, Any] = {
        "cff-version": "1.2.0",
        "type": "dataset",
        "message": "If you use these results, please cite them as below.",
        "title": about.title or f"Results of the evalkit run {manifest.name}",
        "authors": [_person(name) for name in about.authors] or [{"name": f"Authors of the run {manifest.name}"}],
        "date-released": datetime.fromtimestamp(manifest.created_at, UTC).strftime("%Y-%m-%d"),
        "abstract": (
            f"{run.ended:,} of {run.planned:,} episodes of {len(manifest.agents):,} agents on {len(manifest.suites):,} "
            f"suites ({', '.join(environments)}). `evalkit verify` computes every number again from the replies."
        ),
        "keywords": ["evaluation", "language models", "agents", *environments],
        "references": [{"type": "software", "title": "evalkit", "version": __version__, "authors": [EVALKIT]}],
    }
    if about.license:
        fields["license"] = about.license
    return "".join(_lines(fields, 0)).encode()


EVALKIT = {"name": "The authors of evalkit"}


def _person(name: str) -> dict[str, str]:
    family, comma, given = (part.strip() for part in name.partition(","))
    if not comma:
        given, _, family = name.strip().rpartition(" ")
    return {"family-names": family, **({"given-names": given} if given else {})}


def _lines(fields: Mapping[str, Any], depth: int) -> Sequence[str]:
    """A mapping as YAML; a text is written as JSON, which YAML reads as it is."""
    lines = []
    for key, value in fields.items():
        start = f"{'  ' * depth}{key}:"
        if not isinstance(value, list):
            lines.append(f"{start} {_text(value)}\n")
            continue
        lines.append(f"{start}\n")
        for entry in value:
            if isinstance(entry, str):
                lines.append(f"{'  ' * (depth + 1)}- {_text(entry)}\n")
            else:
                inner = list(_lines(entry, depth + 2))
                inner[0] = f"{'  ' * (depth + 1)}- {inner[0].lstrip()}"
                lines += inner
    return lines


def _text(value: str) -> str:
    return orjson.dumps(value).decode()
