"""How many episodes may start in a lane: as many as its window allows, and few while nothing shows that the model can
act.

A lane that starts as a trial plays `TRIAL_EPISODES` at once until one of its episodes has made a valid action. So a
model whose tool calls never arrive is not paid for hundreds of times.
"""

from evalkit.client.lanes.servers import JointWindow
from evalkit.client.lanes.window import Window
from evalkit.waiting import WaitQueue

TRIAL_EPISODES = 4
BARREN_EPISODES = 8
"""After this many episodes without a valid action the user is told, once."""


class SlowStart:
    """The players of one lane: those with an episode, and those that wait for one."""

    __slots__ = ("_barren", "_waiting", "open", "players", "trial", "window")

    def __init__(self, window: Window | JointWindow, *, trial: bool) -> None:
        self.window = window
        """What the lane may have in flight."""
        self.trial = trial
        """Whether it is still unknown that the lane's episodes can act."""
        self.open = False
        """Whether everybody is admitted: the lane has ended, and they must learn of it."""
        self.players = 0
        self._barren = 0
        self._waiting = WaitQueue[None, None](left=self._never_let_in)

    def __len__(self) -> int:
        """Players that have no episode yet."""
        return len(self._waiting)

    async def join(self) -> None:
        """Wait until there is room for one more episode; `part` follows in any case."""
        if self._waiting or not self._room():
            await self._waiting.wait(None)
        else:
            self.players += 1

    def part(self) -> None:
        """An episode has left."""
        self.players -= 1
        self.usher()

    def usher(self) -> None:
        """Admit those that have room."""
        while self._room() and (first := self._waiting.head()) is not None:
            self.players += 1
            self._waiting.grant(first, None)

    def acted(self) -> None:
        """A valid action was made: every episode may start."""
        if self.trial:
            self.trial = False
            self.usher()

    def ended_idle(self) -> bool:
        """An episode ended without a valid action. Returns whether the user should be told now."""
        self._barren += self.trial
        return self.trial and self._barren == BARREN_EPISODES

    def _never_let_in(self, _: None) -> None:
        """A player was cancelled while it waited: what `part` takes off is put on first."""
        self.players += 1

    def _room(self) -> bool:
        """Whether one more episode may begin. A window at its bound can be kept full only if some wait."""
        window = self.window
        if self.open:
            return True
        if self.trial:
            return self.players < TRIAL_EPISODES
        return self.players < int(window.size) or window.size >= window.most
