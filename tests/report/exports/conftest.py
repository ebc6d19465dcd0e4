"""A run with what exports must tell apart: chats a period, refusals, hostile texts, void and remaining episodes."""

from pathlib import Path

import pytest

from evalkit.envs import table
from evalkit.frozen.manifests import write_manifest
from evalkit.frozen.void import Void, add_voids
from evalkit.report.exports.episodes import ExportChoice, choose
from tests.support.guessing_game import calls, guess, hint, say
from tests.support.guessing_runs import ENVIRONMENTS, a_manifest, a_suite, an_agent, rows, search
from tests.support.run_directories import write_run

HOSTILE = 'a "quote"\n\x1b[31m</script>\u2028 \U0001f600 {"role":"system"}'
MANIFEST = a_manifest(
    [an_agent("good", tags=("small",)), an_agent("odd", pack="d1")],
    [a_suite("s", [4, 5, 6]), a_suite("t/x?k=2", [3], {"k": 2})],
    2,
)
TALK = [calls(("fly", "{]"), ("guess", "[1]")), say(HOSTILE), say(HOSTILE), guess(3), guess(4)]
LOG = [
    *(row for r in (0, 1) for i in range(3) for row in rows(MANIFEST, "good", "s", f"i{i}", r, search(4 + i))),
    *rows(MANIFEST, "odd", "s", "i0", 0, TALK),
    *rows(MANIFEST, "odd", "s", "i1", 0, [guess(1)], refused="content_filter"),
    *rows(MANIFEST, "odd", "s", "i2", 0, [guess(1), guess(1), guess(1)]),
    *rows(MANIFEST, "odd", "s", "i0", 1, [hint()]),
    *rows(MANIFEST, "good", "t/x?k=2", "i0", 0, [guess(1), guess(1), guess(2)]),
    *rows(MANIFEST, "good", "t/x?k=2", "i0", 0, search(3), take=1),
]
ID = {(row.agent, row.suite, row.instance, row.replicate): row.episode for row in LOG}
EXPORTED = 9
"""Episodes that have ended and are not void."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(table.ENVIRONMENTS, "built_in", ENVIRONMENTS)
    folder = tmp_path / "run"
    write_manifest(folder, MANIFEST)
    write_run(folder, [LOG[::2], LOG[1::2]])
    place = ("odd", "s", "i2", 0)
    void = Void(
        episode=ID[place], agent="odd", suite="s", instance="i2", replicate=0, undo=False, reason="x", by="u@h", at=1.0
    )
    add_voids(folder, [void])
    return folder


@pytest.fixture
def chosen(run: Path) -> ExportChoice:
    return choose(run)
