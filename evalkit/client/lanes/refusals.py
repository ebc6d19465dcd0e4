"""When a lane's refusals are no longer those of single episodes: pure counts, which `lane.py` keeps.

A wrong setting, a spent account or a model that is gone refuses every request. Nothing is scored by that, but a run
should not go through all its episodes to find out.
"""

from evalkit.text import wording

FIRST = 5
"""A lane ends when so many episodes were refused and none of its requests was ever answered."""
ALIKE = 10
"""A lane that was answered before ends when so many episodes in a row were refused in one wording."""


class RefusalCount:
    """The refusals of a lane since its last answer."""

    __slots__ = ("_alike", "_answered", "_episodes", "_wording")

    def __init__(self) -> None:
        self._answered = False
        self._episodes: set[str] = set()
        self._alike: set[str] = set()
        self._wording = ""

    def answered(self) -> None:
        """A reply came."""
        self._answered = True
        if self._episodes:
            self._episodes.clear()
            self._alike.clear()

    def refused(self, episode: str, words: str) -> str:
        """An episode's request was refused. Returns what shows that the lane should end, in words; empty: nothing."""
        said = wording(words)
        if said != self._wording:
            self._wording = said
            self._alike.clear()
        self._alike.add(episode)
        self._episodes.add(episode)
        if not self._answered and len(self._episodes) >= FIRST:
            return f"its first {FIRST} episodes were refused, and none of their requests was answered"
        if len(self._alike) >= ALIKE:
            return f"{ALIKE} episodes in a row were refused in the same words, after others had been answered"
        return ""
