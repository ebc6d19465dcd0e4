"""What the environments of EconAgentBench share, as records: the rules one of them adds to the loop, and the state.

`periods.py` moves the state, `calls.py` answers one tool call. An environment gives its `Rules` and its own immutable
`world`; everything about chats, queries, notes, histories and refusals is here once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec
from rpds import HashTrieMap

from evalkit.dialogue import Message, Tool, as_dataclass
from evalkit.envs.arguments import Refusal
from evalkit.envs.environment import Facts, Kit, Opening, Texts, fill
from evalkit.errors import UsageError

WorldT = TypeVar("WorldT")

WRITE_NOTES = "write_notes"
READ_NOTES = "read_notes"
ATTEMPT = "get_attempt_number"

STYLES = ("plain", "repr")
TEXT_CHOICES = {"results.style": STYLES}
"""How results are shown: bare, or as the reference does, as the repr of a one-key mapping."""


# Made for every reply, as states are: msgspec's frozen records cost a tenth of what dataclasses do.
class AcceptedAction(msgspec.Struct, Generic[WorldT], frozen=True, kw_only=True):
    """An action that was accepted: it ends the period."""

    world: WorldT
    facts: Facts
    history: str
    """What the history tool shows of it, appended to what it showed before."""
    ended: str = ""
    """Why the episode is over because of it; empty while it continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Getter(Generic[WorldT]):
    """A tool without arguments that shows something."""

    name: str
    key: str
    """Under which the style `repr` wraps the value; empty: it is shown bare in both styles."""
    read: "Callable[[PeriodsState[WorldT]], object]"
    once: bool = False
    """Whether a chat may read it once only."""

    @staticmethod
    def history(name: str, key: str) -> "Getter[Any]":
        """The tool that shows all earlier periods."""
        return Getter(name=name, key=key, read=_history, once=True)

    @staticmethod
    def attempt() -> "Getter[Any]":
        """The tool that shows the current period's index.

        Differs: the reference shows the number of accepted actions; the two part only where a period had none.
        """
        return Getter(name=ATTEMPT, key="attempt_number", read=lambda state: state.period)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(Generic[WorldT]):
    """What one environment adds to the loop."""

    getters: tuple[Getter[WorldT], ...]
    """In the order they are offered, before the notes tools and the action."""
    action: str
    """The tool that ends a period."""
    argument: str
    """Its only argument: a mapping, as text."""
    act: "Callable[[PeriodsState[WorldT], Any], AcceptedAction[WorldT] | Refusal]"
    """What the argument's mapping brings about."""
    refusals: Mapping[str, frozenset[str]]
    """The outcomes with which `act` may refuse, each with the fields that its text may use."""
    restarting: frozenset[str] = frozenset()
    """Those of them that restart the period where the reference's restarts are asked for."""
    told: "Mapping[str, Callable[[PeriodsState[WorldT]], object]]" = field(default_factory=dict)
    """Fields of the opening's text that say something of the state, beside `notes`."""
    last_opening: bool = True
    """Whether the last period opens with a text of its own, `opening_last`."""
    index: str = "attempt_number"
    """The argument of `read_notes`: which period's."""
    bare_number: str = ""
    """The outcome of a bare number in the mapping's place that lets the chat continue even where misuse restarts the
    period; empty: it is misuse like any other."""

    @property
    def tools(self) -> tuple[str, ...]:
        """All tools by name, in the order they are offered."""
        return (*(getter.name for getter in self.getters), WRITE_NOTES, READ_NOTES, self.action)

    def texts(self, own: Mapping[str, frozenset[str]], standard: str = "") -> Texts:
        """All texts: those that the loop shows under these rules, and the environment's `own`, which replace equal
        keys. `standard` is that of `Texts`. The texts that only one tool answers with may be left out: they are then
        empty."""
        later = {repeat_key(getter.name): "" for getter in self.getters if getter.once}
        if self.bare_number:
            later[f"results.{self.bare_number}"] = ""
        return Texts(all={**_loop_texts(self), **own}, later=later, choices=TEXT_CHOICES, standard=standard)

    def setting(self, kit: Kit, texts: Texts, *, periods: int, queries: int, restarts: bool) -> "Setting[WorldT]":
        """What stays the same in an episode. Raises UsageError if the kit's pack lacks one of the texts."""
        said = {**texts.later, **kit.pack.texts}
        missing = sorted(texts.all.keys() - said.keys())
        if missing:
            raise UsageError(f"The prompt pack {kit.pack.name!r} lacks {', '.join(missing)}.")
        if said["results.style"] not in STYLES:
            raise UsageError(f"The prompt pack {kit.pack.name!r}: results.style must be one of {', '.join(STYLES)}.")
        tools = _tools(self, said, kit.notes)
        return Setting(
            rules=self,
            texts=said,
            periods=periods,
            queries=queries,
            restarts=restarts,
            tools=tools,
            last_tools=tools[-1:],
            opening=_opening(said, "opening", kit.notes),
            last_opening=_opening(said, "opening_last" if self.last_opening else "opening", kit.notes),
            getters={getter.name: getter for getter in self.getters},
            offered=frozenset(tool.name for tool in tools),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Generic[WorldT]):
    """What stays the same in all states of an episode."""

    rules: Rules[WorldT]
    texts: Mapping[str, str]
    periods: int
    queries: int
    """Requests per period at most; the last offers only the action."""
    restarts: bool
    """Whether a period without action is restarted, as in the reference, instead of being recorded as `no_action`."""
    tools: tuple[Tool, ...]
    last_tools: tuple[Tool, ...]
    opening: Opening
    last_opening: Opening
    """Of the last period's chat."""
    getters: Mapping[str, Getter[WorldT]]
    """The rules' getters by name."""
    offered: frozenset[str]
    """The names of `tools`."""


@as_dataclass
class PeriodsState(msgspec.Struct, Generic[WorldT], frozen=True, kw_only=True):
    """Where an episode stands. Small; what it collects is shared between states, not copied."""

    setting: Setting[WorldT]
    world: WorldT
    period: int = 0
    turn: int = 0
    """Requests answered in the current chat."""
    tries: int = 0
    """Chats of this period that were thrown away."""
    idle: int = 0
    """Periods in a row that ended without an action."""
    history: str = ""
    """What the history tool shows, rendered once and only appended to."""
    notes: "HashTrieMap[int, str]" = msgspec.field(default_factory=HashTrieMap)
    """The agent's notes by period."""
    read: frozenset[str] = frozenset()
    """Tools that this chat may not read again."""
    ended: str = ""


def _history(state: PeriodsState[Any]) -> str:
    return state.history or state.setting.texts["results.history_empty"]


_LOOP_TEXTS: Mapping[str, tuple[str, ...]] = {
    "system": ("notes",),
    "opening": ("notes",),
    "opening_last": ("notes",),
    "reply": (),
    "notes.system": (),
    "notes.opening": (),
    f"tools.{WRITE_NOTES}.notes": (),
    "results.style": (),
    "results.history_empty": (),
    "results.history_no_action": ("attempt",),
    "results.notes_written": (),
    "results.notes_empty": ("attempt",),
    "results.future_notes": ("attempt",),
    "results.negative_notes": ("attempt",),
    "results.notes_full": ("limit",),
    "results.repeat_access": ("tool",),
    "results.unknown_tool": ("tool",),
    "results.not_offered": ("tool", "action"),
    "results.too_many_calls": ("limit",),
    "results.too_large": ("limit",),
    "results.too_deep": ("limit",),
    "results.not_json": (),
    "results.not_object": (),
    "results.missing": ("argument",),
    "results.wrong_type": ("argument", "type"),
    "results.unparseable": ("argument",),
    "results.unhashable": ("argument",),
    "results.not_mapping": ("argument",),
}


def repeat_key(tool: str) -> str:
    """The key of the text that one tool alone answers with when a chat asks it again."""
    return f"results.repeat_{tool}"


def _loop_texts(rules: Rules[Any]) -> dict[str, frozenset[str]]:
    texts = {key: frozenset(fields) for key, fields in _LOOP_TEXTS.items()}
    if not rules.last_opening:
        del texts["opening_last"]
    texts |= {key: texts[key] | rules.told.keys() for key in ("opening", "opening_last") if key in texts}
    texts |= {f"tools.{name}.description": frozenset() for name in rules.tools}
    texts |= {f"tools.{READ_NOTES}.{rules.index}": frozenset(), f"tools.{rules.action}.{rules.argument}": frozenset()}
    texts |= {repeat_key(getter.name): texts["results.repeat_access"] for getter in rules.getters if getter.once}
    if rules.bare_number:
        texts[f"results.{rules.bare_number}"] = texts["results.wrong_type"]
    return texts | {f"results.{outcome}": fields for outcome, fields in rules.refusals.items()}


def _opening(texts: Mapping[str, str], key: str, notes: bool) -> Opening:
    system = fill(texts["system"], notes=texts["notes.system"] if notes else "")
    user = fill(texts[key], notes=texts["notes.opening"] if notes else "")
    return Opening(messages=(Message(role="system", text=system), Message(role="user", text=user)))


_Drawn = tuple[tuple[str, str, tuple[tuple[str, str, str], ...]], ...]


def _tools(rules: Rules[Any], texts: Mapping[str, str], notes: bool) -> tuple[Tool, ...]:
    arguments = {
        WRITE_NOTES: (("notes", "string"),),
        READ_NOTES: ((rules.index, "integer"),),
        rules.action: ((rules.argument, "string"),),
    }
    return _made_tools(
        tuple(
            (
                name,
                texts[f"tools.{name}.description"],
                tuple(
                    (argument, kind, texts[f"tools.{name}.{argument}"]) for argument, kind in arguments.get(name, ())
                ),
            )
            for name in rules.tools
            if notes or name not in (WRITE_NOTES, READ_NOTES)
        )
    )


@lru_cache(maxsize=64)
def _made_tools(drawn: _Drawn) -> tuple[Tool, ...]:
    """One tuple for all episodes that offer the same tools."""
    return tuple(Tool(name=name, description=text, parameters=_schema(arguments)) for name, text, arguments in drawn)


def _schema(arguments: tuple[tuple[str, str, str], ...]) -> dict[str, object]:
    properties = {name: {"type": kind, "description": text} for name, kind, text in arguments}
    schema: dict[str, object] = {"type": "object", "properties": properties}
    return {**schema, "required": list(properties)} if properties else schema
