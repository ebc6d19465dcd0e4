"""Names for packages that extend evalkit, beside those of `evalkit` itself: records, and the values in them.

    >>> from evalkit import Environment, Message, Score
    >>> from evalkit.extend import Observation, Opening, Texts
    >>> Opening(messages=(Message(role="user", text="Sell at what price?"),)).messages[0].role
    'user'

`evalkit new --plugin DIR` writes a project that uses most of them. docs/plugins.md says which values each group of
entry points takes. The public interface is `evalkit.__all__`, `evalkit.testing.__all__` and the names here; everything
else is private. A name is loaded when it is first used.

    environments    Texts, Presentation, Kit, Opening, Observation, fill
    suites' lines   read_line, parameters_of, checked
    periods         LOOP, Rules, Getter, AcceptedAction, Refusal, PeriodsState, listed
    chats           Request, Sampling
    policies        Policy, calling, offered, asking, results, mistaken
    dialects        Dialect, OPENAI_CHAT
    reports         Extras, RunData, Table, Column, Curve, Figure
    draws           Stream
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalkit.dialogue import Request, Sampling
    from evalkit.envs.arguments import Refusal, listed
    from evalkit.envs.environment import Kit, Observation, Opening, Presentation, Texts, fill
    from evalkit.envs.parameters import checked, parameters_of, read_line
    from evalkit.envs.periods import LOOP
    from evalkit.envs.rules import AcceptedAction, Getter, PeriodsState, Rules
    from evalkit.policy.conversation import Policy, asking, calling, offered, results
    from evalkit.policy.noisy import mistaken
    from evalkit.report.extras import Curve, Extras
    from evalkit.report.run_data import RunData
    from evalkit.report.tables import Column, Table
    from evalkit.report.vega import Figure
    from evalkit.seeds import Stream
    from evalkit.wire.dialect import Dialect
    from evalkit.wire.openai_chat import OPENAI_CHAT

__all__ = [
    "LOOP",
    "OPENAI_CHAT",
    "AcceptedAction",
    "Column",
    "Curve",
    "Dialect",
    "Extras",
    "Figure",
    "Getter",
    "Kit",
    "Observation",
    "Opening",
    "PeriodsState",
    "Policy",
    "Presentation",
    "Refusal",
    "Request",
    "Rules",
    "RunData",
    "Sampling",
    "Stream",
    "Table",
    "Texts",
    "asking",
    "calling",
    "checked",
    "fill",
    "listed",
    "mistaken",
    "offered",
    "parameters_of",
    "read_line",
    "results",
]

_PLACES = {
    "evalkit.dialogue": ("Request", "Sampling"),
    "evalkit.envs.arguments": ("Refusal", "listed"),
    "evalkit.envs.environment": ("Kit", "Observation", "Opening", "Presentation", "Texts", "fill"),
    "evalkit.envs.parameters": ("checked", "parameters_of", "read_line"),
    "evalkit.envs.periods": ("LOOP",),
    "evalkit.envs.rules": ("AcceptedAction", "Getter", "PeriodsState", "Rules"),
    "evalkit.policy.conversation": ("Policy", "asking", "calling", "offered", "results"),
    "evalkit.policy.noisy": ("mistaken",),
    "evalkit.report.extras": ("Curve", "Extras"),
    "evalkit.report.vega": ("Figure",),
    "evalkit.report.run_data": ("RunData",),
    "evalkit.report.tables": ("Column", "Table"),
    "evalkit.seeds": ("Stream",),
    "evalkit.wire.dialect": ("Dialect",),
    "evalkit.wire.openai_chat": ("OPENAI_CHAT",),
}
"""Module -> the names that it gives."""

if not TYPE_CHECKING:  # else a type checker would believe that every name is there

    def __getattr__(name):
        """Load a name when it is first used (PEP 562): an environment's package must not load the reports."""
        for module, names in _PLACES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(module), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__all__", "__doc__", "__file__", "__name__"]
