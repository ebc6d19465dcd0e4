"""Replies whose provider did not state their usage: how many there are, and what is charged for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evalkit.money import FREE, Price, show_usd

if TYPE_CHECKING:
    from evalkit.store.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmeteredRows:
    """One agent's replies without usage, as the log has them."""

    replies: int
    cost: int
    """In pico-dollars."""
    estimated: int
    """Of the replies, those whose tokens are estimated from their text; they have the next two."""
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmetered:
    """Replies without usage, or with figures of it that are none. Sums add up."""

    replies: int = 0
    cost: int = 0
    """What they count against the budget, in pico-dollars: what is missing at its bound."""
    estimated: int = 0
    """Of the replies, those whose tokens are estimated from their text."""
    guess: int = 0
    """What those would cost by the estimate, in pico-dollars."""

    def __add__(self, other: "Unmetered") -> "Unmetered":
        return Unmetered(
            replies=self.replies + other.replies,
            cost=self.cost + other.cost,
            estimated=self.estimated + other.estimated,
            guess=self.guess + other.guess,
        )

    def words(self) -> str:
        """The same in a sentence without its full stop; empty if there are none."""
        if not self.replies:
            return ""
        who = "1 reply" if self.replies == 1 else f"{self.replies:,} replies"
        text = f"{who} came without usage: {show_usd(self.cost)} at worst case"
        if self.estimated:
            which = "" if self.estimated == self.replies else f"{self.estimated:,} of them "
            text += f", {which}about {show_usd(self.guess)} as estimated from the text"
        return text

    def advice(self) -> str:
        """The sentence, and what can be done; empty if there are none."""
        words = self.words()
        return words and f"{words}; `evalkit tools reconcile RUN` gives back what the provider's account shows unspent."

    def to_json(self) -> dict[str, int]:
        """The same as plain values: replies, and whole pico-dollars."""
        return {
            "unmetered_replies": self.replies,
            "unmetered_pico_usd": self.cost,
            "estimated_replies": self.estimated,
            "estimated_pico_usd": self.guess,
        }


def together(rows: Mapping[str, UnmeteredRows], manifest: "Manifest") -> Unmetered:
    """Those of all agents of a run; estimated tokens count at the frozen rates of short prompts."""
    total = Unmetered()
    for agent, unmetered in rows.items():
        known = manifest.agents[agent].price if agent in manifest.agents else None
        price = FREE if known is None else Price(**known)
        guess = (
            unmetered.tokens_in * price.input
            + unmetered.tokens_out * price.output
            + unmetered.estimated * price.request
        )
        total += Unmetered(replies=unmetered.replies, cost=unmetered.cost, estimated=unmetered.estimated, guess=guess)
    return total
