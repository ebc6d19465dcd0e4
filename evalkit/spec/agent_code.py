"""The code of an agent, by the name that a sweep gives it."""

import hashlib
import importlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalkit.errors import UsageError, nearest
from evalkit.plugins import Plugin, find, importing, names
from evalkit.seats import AgentCode, code_of

GROUP = "agents"


def agent_plugin(name: str) -> Plugin | None:
    """The entry that brings an agent of this name; None if none does. Raises UsageError if several do."""
    return find(GROUP, name)


def find_agent(name: str, given: Mapping[str, Any], where: str) -> AgentCode:
    """The agent of a name: one that the caller gives, one that a package brings, or `module:function`.

    Raises UsageError.
    """
    if name in given:
        return code_of(given[name], where)
    plugin = agent_plugin(name)
    if plugin is not None:
        return code_of(plugin.load(), f"{where}: {plugin.source}")
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise UsageError(
            f"{where}: there is no agent {name!r}: write `module:function`, or a name that a package or the caller "
            f"gives.{nearest(name, [*given, *names(GROUP)])}"
        )
    return code_of(_attribute(module, attribute, where), where)


def _attribute(module: str, attribute: str, where: str) -> Any:
    with importing(f"{where}: {module}:{attribute}"):
        value: Any = _imported(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    return value


def _imported(module: str) -> Any:
    """A module that is installed, or lies in the current directory."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as flaw:
        here = str(Path.cwd())
        if flaw.name is None or module.split(".", maxsplit=1)[0] != flaw.name.split(".")[0] or here in sys.path:
            raise
        sys.path.append(here)
        return importlib.import_module(module)


def source_digest(code: AgentCode) -> str:
    """A digest of the agent's source, so that a change can be told; empty if there is no source to read."""
    try:
        text = inspect.getsource(code.play)
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
