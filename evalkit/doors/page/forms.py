"""All ways to reply in one turn: a form for each tool, the same as JSON, and a text alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from evalkit.dialogue import Reply, Tool, ToolCall
from evalkit.doors.page.fields import ArgumentField, as_object, fields_of, flaws_in
from evalkit.envs.arguments import MOST_BYTES, clean, oversize

WAYS = ("fields", "json", "say")
"""How a reply was written: in a tool's fields, as JSON, as a text alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What a form has sent."""

    way: str
    """One of `WAYS`."""
    tool: str
    """Its name; empty for a text alone."""
    given: Mapping[str, str]
    """Of the fields by name; of JSON and of a text under `text`."""

    @property
    def text(self) -> str:
        """What was written as one text."""
        return clean(self.given.get("text", "").replace("\r\n", "\n"))

    @property
    def words(self) -> str:
        """All of it, to be shown where there is no form for it any more."""
        return self.text if self.way != "fields" else "\n".join(filter(None, self.given.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolForm:
    """One tool and its arguments."""

    name: str
    about: str
    fields: Sequence[ArgumentField]
    bare: bool
    """Whether there is nothing to fill in."""
    open: bool = False
    """Whether its form is unfolded: it was sent, and something is wrong with it."""
    json: str = ""
    """What was written as JSON."""
    flaw: str = ""
    """What is wrong with that, or with all fields together."""
    raw: bool = False
    """Whether it was written as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnForms:
    """What a person can fill in."""

    tools: Sequence[ToolForm]
    said: str = ""
    said_flaw: str = ""
    reply: Reply | None = field(default=None, repr=False)
    """What was sent, if nothing is wrong with it."""


def empty_forms(tools: Sequence[Tool]) -> TurnForms:
    """The forms of a turn, before anything was filled in."""
    return TurnForms(tools=[_form(tool) for tool in tools])


def filled_forms(tools: Sequence[Tool], sent: Sent, step: int) -> TurnForms:
    """The forms with what was sent, and what is wrong with it, or the reply that it makes."""
    forms = empty_forms(tools)
    if sent.way == "say":
        flaw = "" if sent.text.strip() else "Write something first."
        return replace(forms, said=sent.text, said_flaw=flaw, reply=None if flaw else Reply(text=sent.text))
    chosen = next((place for place, tool in enumerate(tools) if tool.name == sent.tool), None)
    if chosen is None:
        return forms
    form, arguments = _filled(tools[chosen], sent)
    shown = [form if place == chosen else other for place, other in enumerate(forms.tools)]
    if arguments is None:
        return replace(forms, tools=shown)
    call = ToolCall(id=f"call_{step}", name=sent.tool, arguments=arguments)
    return replace(forms, tools=shown, reply=Reply(calls=(call,), finish="tool_calls"))


def _form(tool: Tool) -> ToolForm:
    bare = tool.parameters.get("properties") == {} and not tool.parameters.get("additionalProperties")
    return ToolForm(name=tool.name, about=tool.description, fields=fields_of(tool.parameters)[0], bare=bare)


def _filled(tool: Tool, sent: Sent) -> tuple[ToolForm, str | None]:
    """(the form as it was sent, the arguments as JSON; None where something is wrong)."""
    form = replace(_form(tool), open=True)
    if sent.way == "json":
        written = as_object(sent.text)
        if isinstance(written, str):
            return replace(form, raw=True, json=sent.text, flaw=written), None
        return replace(form, raw=True, json=sent.text), sent.text.strip() or "{}"
    fields, found = fields_of(tool.parameters, sent.given)
    form, arguments = replace(form, fields=fields), json.dumps(found, ensure_ascii=False)
    if flaws_in(fields):
        return form, None
    if oversize(arguments):
        return replace(form, flaw=f"The arguments together are too long: at most {MOST_BYTES:,} bytes."), None
    return form, arguments
