"""Replies whose provider did not say what they used: how many, and what they are charged."""

from dataclasses import dataclass

from evalkit.money import show_usd


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
        """The same in a sentence without its full stop; empty where there are none."""
        if not self.replies:
            return ""
        who = "1 reply" if self.replies == 1 else f"{self.replies:,} replies"
        said = f"{who} came without usage: {show_usd(self.cost)} at worst case"
        if self.estimated:
            which = "" if self.estimated == self.replies else f"{self.estimated:,} of them "
            said += f", {which}about {show_usd(self.guess)} as estimated from the text"
        return said

    def advice(self) -> str:
        """The sentence, and what can be done; empty where there are none."""
        words = self.words()
        return (
            words and f"{words}; `evalkit budget reconcile RUN` gives back what the provider's account shows unspent."
        )
