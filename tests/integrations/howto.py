"""The commands of an integration's page, which need the integration's library: other tests leave these blocks out."""

import contextlib
import io
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.document_blocks import SKIP, Block, blocks_of


def door_blocks(page: str) -> Iterator[Block]:
    """Blocks of shell and Python that are marked to be skipped elsewhere."""
    return (block for block in blocks_of(page) if block.language in ("sh", "python") and SKIP in block.words)


def follow(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, instead: Mapping[str, str]) -> list[str]:
    """What the page's blocks print, run in order in a folder, with these texts in place of others."""
    monkeypatch.chdir(folder)
    printed = []
    for block in door_blocks(page):
        text = block.text
        for old, new in instead.items():
            text = text.replace(old, new)
        if block.language == "sh":
            done = subprocess.run(
                ["bash", "-ec", text], capture_output=True, text=True, check=False, env=os.environ, timeout=600
            )
            assert done.returncode == 0, f"{block.place}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
            printed.append(done.stdout)
        else:
            with contextlib.redirect_stdout(io.StringIO()) as said:
                exec(compile(text, block.place, "exec"), {"__name__": "page"})
            printed.append(said.getvalue())
    return printed
