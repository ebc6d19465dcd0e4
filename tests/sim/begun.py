"""Runs that were begun in the log's first format, as processes left them: a seed may go on from one of these.

Each file of `begun/` holds the run's files as they were when a simulated life had ended (`died` and the system lived
on, `power` was lost, `other`: refused or closed early, `complete`), and what the world knew then: the time, and the
provider's bill.
"""

import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson

FOLDER = Path(__file__).parent / "begun"
STATE, RUN = "state.json", "run/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """One of them."""

    name: str
    sweep: int
    budget: int | None
    """Pico-dollars."""
    bill: int
    """Of its providers, pico-dollars."""
    now: float
    """The loop's time, s, and the wall's beside it."""
    wall: float
    files: dict[str, bytes]
    """By their path within the run."""

    def lay(self, run: Path) -> None:
        """Write its files."""
        for name, data in self.files.items():
            path = run / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


@cache
def names() -> tuple[str, ...]:
    """All of them."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.zip")))


@cache
def begun(name: str) -> Begun:
    """The one of that name."""
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        state: dict[str, Any] = orjson.loads(archive.read(STATE))
        files = {one.removeprefix(RUN): archive.read(one) for one in archive.namelist() if one.startswith(RUN)}
    return Begun(
        name=name,
        sweep=state["sweep"],
        budget=state["budget"],
        bill=state["bill"],
        now=state["now"],
        wall=state["wall"],
        files=files,
    )
