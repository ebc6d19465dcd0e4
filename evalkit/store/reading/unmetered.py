"""Replies whose provider did not state their usage, or stated it twice over in figures that differ: how many there are,
and what is charged for them."""

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
    doubtful: int = 0
    """Other replies, whose figures of usage contradict each other."""
    doubtful_cost: int = 0


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
    doubtful: int = 0
    """Other replies, whose figures contradict each other."""
    doubtful_cost: int = 0
    """What they count: the larger reading that makes sense of all figures."""

    def __add__(self, other: "Unmetered") -> "Unmetered":
        return Unmetered(
            replies=self.replies + other.replies,
            cost=self.cost + other.cost,
            estimated=self.estimated + other.estimated,
            guess=self.guess + other.guess,
            doubtful=self.doubtful + other.doubtful,
            doubtful_cost=self.doubtful_cost + other.doubtful_cost,
        )

    def words(self) -> str:
        """The same in a sentence without its full stop; empty if there are none."""
        return "; ".join(filter(None, (self.unsaid(), self.doubts())))

    def doubts(self) -> str:
        """Of those whose figures contradict each other."""
        if not self.doubtful:
            return ""
        who = "1 reply has" if self.doubtful == 1 else f"{self.doubtful:,} replies have"
        return (
            f"{who} figures of usage that contradict each other (more cached tokens than the prompt, or a total beyond "
            f"its parts): the larger reading is charged, {show_usd(self.doubtful_cost)}"
        )

    def unsaid(self) -> str:
        """Of those without usage."""
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
            "doubtful_replies": self.doubtful,
            "doubtful_pico_usd": self.doubtful_cost,
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
        total += Unmetered(
            replies=unmetered.replies,
            cost=unmetered.cost,
            estimated=unmetered.estimated,
            guess=guess,
            doubtful=unmetered.doubtful,
            doubtful_cost=unmetered.doubtful_cost,
        )
    return total
