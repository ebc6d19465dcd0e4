"""How the episodes of a run ended, from its log alone."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evalkit.store.events import read_events
from evalkit.store.files.record import REFUSED, UNSCORED
from evalkit.text import many, visible, wording


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


class DeferredEpisodes(NamedTuple):
    """Episodes of an agent that remain because they were left in one way."""

    episodes: int = 0
    last: str = ""
    """Why the last of them was, in a line."""

    def and_another(self, detail: str) -> "DeferredEpisodes":
        """With one more; of a traceback the last line is kept."""
        return DeferredEpisodes(self.episodes + 1, detail.strip().rpartition("\n")[2])


def deferred_episodes(run: Path) -> dict[tuple[str, str, str], DeferredEpisodes]:
    """What the last session has left, by agent, suite and way (`agent_error`, `unavailable`, ...)."""
    found: dict[tuple[str, str, str], DeferredEpisodes] = {}
    for event in read_events(run, "started", "deferred"):
        if event["kind"] == "started":
            found = {}
            continue
        place = str(event.get("agent")), str(event.get("suite")), str(event.get("why"))
        found[place] = found.get(place, DeferredEpisodes()).and_another(str(event.get("detail")))
    return found


def deferred_words(agent: str, why: str, deferred: DeferredEpisodes) -> str:
    """What was not played, and why, where it is the doing of an agent's own code; empty where it is not."""
    if why not in CODE_FAILED:
        return ""
    what, remedy = CODE_FAILED[why]
    return (
        f"agent {agent}: its code {what} {many(deferred.episodes, 'episode')}, not scored; the last: "
        f"{visible(deferred.last)} (events.jsonl says more). {remedy}"
    )


CODE_FAILED = {
    "agent_error": ("failed in", "Once the code is mended, the same command plays on."),
    "diverged": ("did not repeat the log in", "Mend it, or play them anew with `--retry diverged`."),
}
"""By way of leaving an episode: what an agent's own code did, and what to do."""


def most_said(words: Iterable[str]) -> str:
    """What was said most often, ids and numbers aside, as it was said first."""
    several = list(words)
    counts = Counter(map(wording, several))
    return max(several, key=lambda said: counts[wording(said)], default="")
