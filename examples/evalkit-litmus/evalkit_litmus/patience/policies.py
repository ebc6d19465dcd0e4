"""The policies that play patience: its two ends, one that discounts, and random answers."""

from collections.abc import Callable, Mapping

from evalkit import Reply
from evalkit.extend import Policy, Request, Stream, mistaken
from evalkit_litmus.patience.environment import CLOSE, LETTERS, OPEN, PatienceInstance
from evalkit_litmus.patience.rates import HORIZONS, NOW

PlayFn = Callable[[Request, Stream], Reply]
RATE = 1.05
"""By which the policy `discounting` discounts, a year."""


def answer(letter: str) -> Reply:
    """The reply that chooses an option."""
    return Reply(text=f"<reasoning>It is worth more to me.</reasoning>\n{OPEN}{letter}{CLOSE}")


def plays(request: Request) -> bool:
    """Whether a request is of this environment: no tools, and an answer in tags is asked for."""
    return not request.tools and any(OPEN in message.text for message in request.messages)


def random(request: Request, draws: Stream) -> Reply:
    """One of the two letters, each as often."""
    del request
    return answer(LETTERS[draws.below(2)])


def _choosing(waits: Callable[[PatienceInstance], bool]) -> Callable[[PatienceInstance], PlayFn]:
    """Reads the instance, and waits where it should."""

    def made(instance: PatienceInstance) -> PlayFn:
        other = LETTERS[instance.now == LETTERS[0]]
        chosen = answer(other if waits(instance) else instance.now)

        def reply(request: Request, draws: Stream) -> Reply:
            del request, draws
            return chosen

        return reply

    return made


POLICIES: Mapping[str, Policy] = {
    "patient": Policy(help="always waits: the end at 0", oracle=_choosing(lambda _: True)),
    "impatient": Policy(help="never waits: the end at 100", oracle=_choosing(lambda _: False)),
    "discounting": Policy(
        help="waits where an amount grows by more than 5 % a year",
        oracle=_choosing(lambda instance: instance.amount > NOW * RATE ** HORIZONS[instance.horizon]),
    ),
    "random": Policy(help="one of the two letters, by chance", reply=random, recognises=plays, acts_with="<answer>"),
    "noisy": Policy(
        help="a random player that makes every kind of mistake a model makes",
        reply=mistaken(random),
        recognises=plays,
        acts_with="<answer>",
    ),
}
