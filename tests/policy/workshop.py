"""A little world of typed tools, in words that no pack of evalkit's uses: what the policies read must be in them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from evalkit.dialogue import Message, Reply, Request, Sampling, Tool
from evalkit.policy.conversation import PolicyFn, answer
from evalkit.seeds import derive

VALUES: Mapping[str, tuple[str, ...]] = {"Finish": ("rough_and_plain", "polished_and_bright", "painted")}
SYSTEM = "You run a workshop. What counts in the end is a `Chair`; a `Stool` is of no use."
ASKED = "For <Date0007> at <PlaceNumber0012>: something polished, that is bright, please."


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One tool."""

    name: str
    inputs: tuple[str, ...]
    output: str
    cents: int
    parts: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Workshop:
    """Where an episode stands, and what is wrong with the machines."""

    machines: tuple[Machine, ...]
    held: set[str]
    goal: str = "Chair"
    named_parts: bool = True
    """Whether descriptions name components."""
    broken: set[str] = field(default_factory=set)
    """Machines that never work."""
    failing: dict[str, int] = field(default_factory=dict)
    """Machine -> how often it will still fail."""
    number: int = 31
    """In all ids that machines give."""
    happens: Mapping[int, Callable[["Workshop"], str]] = field(default_factory=dict)
    """Turn -> what happens behind it, which gives the user's words, or nothing."""
    called: list[tuple[str, bool]] = field(default_factory=list)
    """Every first call: machine, and whether it worked."""
    given: list[dict[str, str]] = field(default_factory=list)
    """Arguments of the calls that worked."""

    def tools(self) -> tuple[Tool, ...]:
        """What is offered."""
        return tuple(self._tool(machine) for machine in self.machines)

    def _tool(self, machine: Machine) -> Tool:
        made = f" Made of {' and '.join(machine.parts)}." if machine.parts and self.named_parts else ""
        text = f"Judges cost-effectiveness, 3 times.{made} You pay (cost: {machine.cents / 100} coins).\n"
        properties = {
            name: {"type": "string", **({"enum": list(VALUES[name])} if name in VALUES else {})}
            for name in machine.inputs
        }
        return Tool(
            name=machine.name,
            description=f"{text}Output type of the tool: `{machine.output}`, nothing else.",
            parameters={"type": "object", "properties": properties, "required": list(machine.inputs)},
        )

    def answer(self, reply: Reply) -> list[Message]:
        """The results of a reply's calls."""
        found = []
        for i, call in enumerate(reply.calls):
            text = "[ERROR] One at a time." if i else self._work(call.name, call.arguments)
            found.append(Message(role="tool", call_id=call.id, text=text))
        return found

    def _work(self, name: str, arguments: str) -> str:
        machine = next((one for one in self.machines if one.name == name), None)
        given = json.loads(arguments) if arguments.startswith("{") and arguments.endswith("}") else {}
        works = machine is not None and set(machine.inputs) <= self.held & given.keys()
        if name in self.broken or self.failing.get(name, 0):
            works = False
            self.failing[name] = self.failing.get(name, 1) - 1
        self.called.append((name, works))
        if machine is None or not works:
            return f"[ERROR] {name} did nothing to <Date0007>. It costs 3."
        self.held.add(machine.output)
        self.given.append(given)
        return f"From <Date0007> the machine made <Box{self.number:04d}>. Cost: {machine.cents / 100}"


def play(shop: Workshop, policy: PolicyFn, *, name: str = "policy", seed: int = 0, most: int = 20) -> list[Reply]:
    """The replies of one episode, which ends with the first that calls nothing."""
    messages = [Message(role="system", text=SYSTEM), Message(role="user", text=ASKED)]
    replies: list[Reply] = []
    start = set(shop.held)
    for turn in range(1, most + 1):
        request = Request(
            messages=tuple(messages), tools=shop.tools(), sampling=Sampling(), seed=derive(seed, "shop", turn)
        )
        reply = answer(name, policy, request)
        replies.append(reply)
        if not reply.calls:
            break
        messages += [reply.message(), *shop.answer(reply)]
        said = shop.happens[turn](shop) if turn in shop.happens else ""
        if said:
            shop.held = set(start)
            messages.append(Message(role="user", text=said))
    return replies


def chain(*spans: tuple[int, int, int], length: int) -> tuple[Machine, ...]:
    """Machines from (first position, last position, cents): each also needs a date, the first ones a finish."""
    outputs = [f"Part{i}" for i in range(length - 1)] + ["Chair"]
    found = []
    for first, last, cents in spans:
        before = (outputs[first - 1],) if first else ("Finish", "Place")
        parts = tuple(f"make_{i}_{i}" for i in range(first, last + 1)) if last > first else ()
        found.append(
            Machine(
                name=f"make_{first}_{last}", inputs=(*before, "Date"), output=outputs[last], cents=cents, parts=parts
            )
        )
    return tuple(found)


def shop(*spans: tuple[int, int, int], length: int = 4) -> Workshop:
    """A workshop whose machines are a chain."""
    return Workshop(machines=chain(*spans, length=length), held={"Finish", "Place", "Date"})


def repriced(machines: Sequence[Machine], **cents: int) -> tuple[Machine, ...]:
    """The machines with other costs for some."""
    return tuple(replace(one, cents=cents.get(one.name, one.cents)) for one in machines)
