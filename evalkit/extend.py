"""Names for packages that extend evalkit: records, and the values in them.

    >>> from evalkit.extend import Environment, Observation, Opening, Parameter, Score
    >>> Parameter(kind=int, help="how many offers", default=3, least=1).default
    3

`evalkit new --plugin DIR` writes a project that uses most of them. docs/plugins.md says which values each group of
entry points takes. The public interface is `evalkit.__all__`, `evalkit.testing.__all__` and the names here; everything
else is private. A name is loaded when it is first used.

    environments    Environment, Parameter, Kit, Opening, Observation, Facts, Score, fill
    suites' lines   read_line, parameters_of, checked
    periods         LOOP, Rules, Getter, Accepted, Refusal, PeriodsState, make_setting, loop_texts, optional_texts,
                    history_getter, attempt_getter, listed
    chats           Message, Tool, ToolCall, Reply, Request, Sampling
    policies        Policy, PolicyFn, calling, offered, asking, results, ids_in, action_arguments, noisy, ANYWHERE
    dialects        Dialect, OPENAI_CHAT
    exporters       Exporter, Chosen, stream, ENVIRONMENTS, new_folder
    reports         Extras, RunData, Table, Column, Curve, Figure, Cell, Manifest
    draws, errors   Stream, RandomStateStream, UsageError
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalkit.dialogue import Message, Reply, Request, Sampling, Tool, ToolCall
    from evalkit.envs.arguments import Refusal, listed
    from evalkit.envs.environment import Environment, Facts, Kit, Observation, Opening, Parameter, Score, fill
    from evalkit.envs.numpy_random_state import RandomStateStream
    from evalkit.envs.parameters import checked, parameters_of, read_line
    from evalkit.envs.periods import LOOP
    from evalkit.envs.rules import (
        Accepted,
        Getter,
        PeriodsState,
        Rules,
        attempt_getter,
        history_getter,
        loop_texts,
        make_setting,
        optional_texts,
    )
    from evalkit.envs.table import ENVIRONMENTS
    from evalkit.errors import UsageError
    from evalkit.policy.conversation import PolicyFn, action_arguments, asking, calling, ids_in, offered, results
    from evalkit.policy.noisy.anywhere import ANYWHERE
    from evalkit.policy.noisy.mistakes import noisy
    from evalkit.policy.record import Policy
    from evalkit.report.exports.episodes import Chosen, stream
    from evalkit.report.exports.exporter import Exporter
    from evalkit.report.extras.record import Curve, Extras
    from evalkit.report.run_data import RunData
    from evalkit.report.tables import Column, Table
    from evalkit.report.vega import Figure
    from evalkit.results.cells import Cell
    from evalkit.seeds import Stream
    from evalkit.store.folder import new_folder
    from evalkit.store.manifest import Manifest
    from evalkit.wire.dialect import Dialect
    from evalkit.wire.openai_chat import OPENAI_CHAT

__all__ = [
    "ANYWHERE",
    "ENVIRONMENTS",
    "LOOP",
    "OPENAI_CHAT",
    "Accepted",
    "Cell",
    "Chosen",
    "Column",
    "Curve",
    "Dialect",
    "Environment",
    "Exporter",
    "Extras",
    "Facts",
    "Figure",
    "Getter",
    "Kit",
    "Manifest",
    "Message",
    "Observation",
    "Opening",
    "Parameter",
    "PeriodsState",
    "Policy",
    "PolicyFn",
    "RandomStateStream",
    "Refusal",
    "Reply",
    "Request",
    "Rules",
    "RunData",
    "Sampling",
    "Score",
    "Stream",
    "Table",
    "Tool",
    "ToolCall",
    "UsageError",
    "action_arguments",
    "asking",
    "attempt_getter",
    "calling",
    "checked",
    "fill",
    "history_getter",
    "ids_in",
    "listed",
    "loop_texts",
    "make_setting",
    "new_folder",
    "noisy",
    "offered",
    "optional_texts",
    "parameters_of",
    "read_line",
    "results",
    "stream",
]

_PLACES = {
    "evalkit.dialogue": ("Message", "Reply", "Request", "Sampling", "Tool", "ToolCall"),
    "evalkit.envs.arguments": ("Refusal", "listed"),
    "evalkit.envs.environment": (
        "Environment",
        "Facts",
        "Kit",
        "Observation",
        "Opening",
        "Parameter",
        "Score",
        "fill",
    ),
    "evalkit.envs.numpy_random_state": ("RandomStateStream",),
    "evalkit.envs.parameters": ("checked", "parameters_of", "read_line"),
    "evalkit.envs.periods": ("LOOP",),
    "evalkit.envs.rules": (
        "Accepted",
        "Getter",
        "PeriodsState",
        "Rules",
        "attempt_getter",
        "history_getter",
        "loop_texts",
        "make_setting",
        "optional_texts",
    ),
    "evalkit.envs.table": ("ENVIRONMENTS",),
    "evalkit.errors": ("UsageError",),
    "evalkit.policy.conversation": (
        "PolicyFn",
        "action_arguments",
        "asking",
        "calling",
        "ids_in",
        "offered",
        "results",
    ),
    "evalkit.policy.noisy.anywhere": ("ANYWHERE",),
    "evalkit.policy.noisy.mistakes": ("noisy",),
    "evalkit.policy.record": ("Policy",),
    "evalkit.report.exports.episodes": ("Chosen", "stream"),
    "evalkit.report.exports.exporter": ("Exporter",),
    "evalkit.report.extras.record": ("Curve", "Extras"),
    "evalkit.report.vega": ("Figure",),
    "evalkit.report.run_data": ("RunData",),
    "evalkit.report.tables": ("Column", "Table"),
    "evalkit.results.cells": ("Cell",),
    "evalkit.seeds": ("Stream",),
    "evalkit.store.folder": ("new_folder",),
    "evalkit.store.manifest": ("Manifest",),
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
