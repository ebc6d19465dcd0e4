"""Patience: one question, money now or more of it later; a text without tools answers it.

Source: the reference's litmus test of patience against impatience. Whatever is not exactly one of the two letters
between the first tags counts as an answer that waits, as in the reference; how many are is a metric.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from evalkit import Environment, Facts, Message, Reply, Score, UsageError
from evalkit.extend import (
    Kit,
    Observation,
    Opening,
    Presentation,
    Sampling,
    Texts,
    checked,
    fill,
    parameters_of,
    read_line,
)
from evalkit_litmus.patience.rates import HORIZONS, NOW

NAME: Literal["patience"] = "patience"
OPEN, CLOSE = "<answer>", "</answer>"
LETTERS = ("A", "B")
MOST_CALLS = 16
"""Calls of tools that there are not, which are recorded."""

Horizon = Literal["one_month", "six_months", "one_year", "five_years"]
Order = Literal["now_first", "later_first"]
ORDERS: tuple[Order, Order] = ("now_first", "later_first")

AMOUNTS: Mapping[str, tuple[float, ...]] = {
    "one_month": tuple(round(105 - 0.1 * i, 1) for i in range(50)),
    "six_months": tuple(115 - 0.5 * i for i in range(30)),
    "one_year": tuple(float(amount) for amount in range(120, 100, -1)),
    "five_years": tuple(float(amount) for amount in range(250, 110, -1)),
}
"""What is offered after each horizon."""
DECIMALS: Mapping[str, int] = {"one_month": 1, "six_months": 1, "one_year": 0, "five_years": 0}


class PatienceInstance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A suite's line."""

    id: str = ""
    environment: Literal["patience"] = NAME
    horizon: Annotated[Horizon, Meta(description="when the larger amount is paid")] = "one_year"
    amount: Annotated[float, Meta(ge=0.0, le=1e9)]
    """What is paid then."""
    order: Annotated[Order, Meta(description="which option is A")] = "now_first"

    @property
    def now(self) -> str:
        """The letter of the option that pays at once."""
        return LETTERS[self.order != ORDERS[0]]


PARAMETERS = parameters_of(PatienceInstance)

TEXTS: Mapping[str, frozenset[str]] = {
    "question": frozenset({"a", "b"}),
    "now": frozenset({"amount"}),
    "later": frozenset({"amount", "delay"}),
    **{f"delay.{horizon}": frozenset[str]() for horizon in HORIZONS},
    **{f"whole.{order}": frozenset({"amount", "delay"}) for order in ORDERS},
}
"""`whole.*`, where there is one, is the whole question in one order, in place of `question` and the two options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatienceState:
    """Before the one reply, or after it."""

    instance: PatienceInstance
    opening: Opening
    ended: str = ""


def load(line: Mapping[str, Any]) -> PatienceInstance:
    """A suite's line. Raises UsageError naming the field that is wrong, its value, and what it may be."""
    return read_line(line, PatienceInstance, NAME)


def start(target: PatienceInstance, kit: Kit) -> PatienceState:
    """The question, put. Raises UsageError if the pack lacks a text."""
    texts = kit.pack.texts
    missing = sorted(TEXTS.keys() - texts.keys())
    if missing:
        raise UsageError(f"The prompt pack {kit.pack.name!r} lacks {', '.join(missing)}.")
    later = f"{target.amount:.{DECIMALS[target.horizon]}f}"
    options = [
        fill(texts["now"], amount=NOW),
        fill(texts["later"], amount=later, delay=texts[f"delay.{target.horizon}"]),
    ]
    first, second = options if target.order == ORDERS[0] else reversed(options)
    whole = texts[f"whole.{target.order}"]
    question = fill(whole, amount=later, delay=texts[f"delay.{target.horizon}"])
    question = question or fill(texts["question"], a=first, b=second).strip()
    return PatienceState(instance=target, opening=Opening(messages=(Message(role="user", text=question),)))


def letter_in(text: str) -> str:
    """The letter between the first opening and the first closing tag, if there is exactly a letter; else nothing.

    As the reference reads it: a missing opening tag leaves the text from the eighth character on, a missing closing tag
    all but the text's last character, and a closing tag before the opening one leaves nothing.
    """
    answer = text[text.find(OPEN) + len(OPEN) : text.find(CLOSE)]
    return answer if answer in LETTERS else ""


def step(state: PatienceState, reply: Reply) -> tuple[PatienceState, Observation]:
    """The answer, read. Facts: `outcome` is `now`, `later` or `unreadable`; calls of tools come to nothing."""
    letter = letter_in(reply.text)
    outcome = ("now" if letter == state.instance.now else "later") if letter else "unreadable"
    ended = "answered" if letter else "unreadable"
    facts = {
        "calls": [{"tool": call.name[:64], "outcome": "unknown_tool"} for call in reply.calls[:MOST_CALLS]],
        "outcome": outcome,
        "ended": ended,
    }
    after = PatienceState(instance=state.instance, opening=state.opening, ended=ended)
    return after, Observation(messages=(), facts=facts, acted=bool(letter))


def score(instance: PatienceInstance, trajectory: Sequence[Facts]) -> Score:
    """1 for the money now, else 0. Metrics: `amount`, what was offered; `unreadable` and `said_a`, 0 or 1."""
    outcome = trajectory[0].get("outcome") if trajectory else ""
    metrics = {"amount": instance.amount, "unreadable": float(outcome == "unreadable")}
    if outcome in ("now", "later"):
        metrics["said_a"] = float((outcome == "now") == (instance.now == LETTERS[0]))
    return Score(value=float(outcome == "now"), solved=False, metrics=metrics)


def generate(parameters: Mapping[str, Any], count: int, seed: int) -> Iterator[Mapping[str, Any]]:
    """A horizon's questions, from the highest amount down, each in both orders unless one is asked for.

    Nothing is drawn: all seeds give the same. Raises UsageError for more than there are.
    """
    del seed
    known = {name: checked(PARAMETERS, name, value) for name, value in parameters.items()}
    horizon = known.get("horizon", "one_year")
    orders = [known["order"]] if "order" in known else ORDERS
    asked = [(amount, order) for amount in AMOUNTS[horizon] for order in orders]
    for amount, order in asked[:count]:
        name = f"{amount:.{DECIMALS[horizon]}f}-{order.replace('_', '-')}"
        line = {"id": name, "horizon": horizon, "amount": amount, "order": order}
        yield msgspec.to_builtins(load(line))
    if count > len(asked):
        raise UsageError(f"instances: {horizon} has {len(asked)} questions of this kind, not {count}.")


PATIENCE: Environment[PatienceInstance, PatienceState] = Environment(
    name=NAME,
    version=1,
    defaults=Sampling(temperature=1.0, max_tokens=8192, tool_choice="auto"),
    parameters=PARAMETERS,
    texts=Texts(all=TEXTS, standard="evalkit_litmus:texts.toml"),
    load=load,
    describe=msgspec.to_builtins,
    start=start,
    opening=lambda state: state.opening,
    tools=lambda _: (),
    step=step,
    period=lambda _: 0,
    ended=lambda state: state.ended,
    score=score,
    generate=generate,
    stratum=lambda instance: instance.horizon,
    offers=lambda _: 0,
    policies="evalkit_litmus.patience.policies:POLICIES",
    score_range=(0.0, 1.0),
    talk=True,
    presentation=Presentation(
        scale="litmus",
        zero_means="always waits",
        one_means="never waits",
        one_chat=True,
        report="evalkit_litmus.patience.report:EXTRAS",
        prompt_import="evalkit_litmus.imported:PATIENCE",
    ),
)
