"""How the episodes of a run ended, from its log alone."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evalkit.store.files.record import REFUSED, UNSCORED
from evalkit.text import wording


def ended_rows(run: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The last row of each episode that has ended, in the order of their ids; `columns` with `ending` among them."""
    from pyarrow import compute

    from evalkit.store.reading.reader import scan

    log = scan(run, columns)
    rows: list[dict[str, Any]] = log.filter(compute.not_equal(log.column("ending"), "")).to_pylist()
    return [row for row in rows if row["ending"] not in UNSCORED]


class RefusedEpisode(NamedTuple):
    """An episode that remains because the provider refused its last request."""

    id: str
    agent: str
    suite: str
    said: str
    """What the provider said."""


def refused_episodes(run: Path) -> list[RefusedEpisode]:
    """Those of a run, in the order of their ids."""
    from pyarrow import compute

    from evalkit.store.reading.reader import scan

    log = scan(run, ("episode", "agent", "suite", "ending", "attempts", "raw"))
    rows = log.filter(compute.equal(log.column("ending"), REFUSED)).to_pylist()
    said = [(row["raw"] or row["attempts"].encode()).decode("utf-8", "replace") for row in rows]
    return [
        RefusedEpisode(row["episode"], row["agent"], row["suite"], words) for row, words in zip(rows, said, strict=True)
    ]


def most_said(words: Iterable[str]) -> str:
    """What was said most often, ids and numbers aside, as it was said first."""
    several = list(words)
    counts = Counter(map(wording, several))
    return max(several, key=lambda said: counts[wording(said)], default="")
