"""Replies whose provider did not state their usage, or stated it twice over in figures that differ: how many there are,
and what is charged for them."""

from dataclasses import dataclass

from evalkit.money import show_usd
from evalkit.text import many


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmeteredReplies:
    """Replies without usage, or with figures of it that are none. Sums add up."""

    replies: int = 0
    cost: int = 0
    """What they count against the budget, in pico-dollars: what is missing at its bound."""
    doubtful: int = 0
    """Other replies, whose figures contradict each other."""
    doubtful_cost: int = 0
    """What they count: the larger reading that makes sense of all figures."""

    def __add__(self, other: "UnmeteredReplies") -> "UnmeteredReplies":
        return UnmeteredReplies(
            replies=self.replies + other.replies,
            cost=self.cost + other.cost,
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
        who = many(self.doubtful, "reply has", "replies have")
        return (
            f"{who} figures of usage that contradict each other (more cached tokens than the prompt, or a total beyond "
            f"its parts): the larger reading is charged, {show_usd(self.doubtful_cost)}"
        )

    def unsaid(self) -> str:
        """Of those without usage."""
        if not self.replies:
            return ""
        who = many(self.replies, "reply", "replies")
        return f"{who} came without usage: {show_usd(self.cost)} at worst case"

    def advice(self) -> str:
        """The sentence, and what can be done; empty if there are none."""
        words = self.words()
        return words and f"{words}; `evalkit tools reconcile RUN` gives back what the provider's account shows unspent."

    def to_json(self) -> dict[str, int]:
        """The same as plain values: replies, and whole pico-dollars."""
        return {
            "unmetered_replies": self.replies,
            "unmetered_pico_usd": self.cost,
            "doubtful_replies": self.doubtful,
            "doubtful_pico_usd": self.doubtful_cost,
        }
