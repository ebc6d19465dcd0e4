"""Texts in a copy of EconAgentBench's reference, one module of prompts an environment; executed in the child.

Prompts and descriptions of tools are constants there. What an agent reads of its past is made by functions: they are
called with values that show as our fields (`Field`), in place of what they would show.
"""

import ast
import inspect
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalkit.envs.rules import repeat_key
from evalkit.envs.table import ENVIRONMENTS
from evalkit.spec.identity import REASONING
from evalkit.spec.importing.executed import Copy, PromptImport, Texts, absent_text, table_text

ROOT = "econ_evals.experiments"
SAME: Texts = {"results.style": "repr", "results.notes_empty": "", "results.history_empty": ""}


class Field(str):
    """Shows as a field of ours, however it is formatted; one more of it is the same."""

    def __format__(self, _: str) -> str:
        return str(self)

    __repr__ = str.__str__

    def __add__(self, other: Any) -> Any:
        return self if isinstance(other, int) else str(self) + other


class Every(dict[Any, Any]):
    """A list or mapping that has a value at every place, in `n` places."""

    def __init__(self, value: Any, n: int = 1) -> None:
        super().__init__()
        self._value, self._n = value, n

    def __getitem__(self, _: Any) -> Any:
        return self._value

    def get(self, _key: Any, _otherwise: Any = None) -> Any:
        """The value."""
        return self._value

    def __len__(self) -> int:
        return self._n


class ShownMapping(dict[Any, Any]):
    """A mapping that shows as a field of ours."""

    def __format__(self, _: str) -> str:
        return "{assignment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where one environment's texts are."""

    folder: str
    agent: str
    """The class whose `use_tool` answers."""
    texts: Mapping[str, str]
    """Our keys -> constants of `prompts.py`."""
    variant: str
    """The suffix of the constants for reasoning models."""
    twice: tuple[str, ...]
    """Tools that are refused when a chat calls them again."""
    results: Callable[[Copy, Any, Any], Texts]
    """(copy, the module that plays, an agent) -> what else it answers."""
    fit: Callable[[Texts], Texts] = dict
    """The constants as our texts: where fields have other names, or one constant is two texts of ours."""
    wordings: Mapping[str, str] = field(default_factory=dict)
    """Other wordings that the reference compares: the constants that stand in for the system message."""

    tools: str = "TOOLS_V1"
    """The constant that lists its tools."""
    plays: str = ""
    """The module that plays; empty: `run_FOLDER_experiment`."""
    besides: tuple[str, ...] = ()
    """Folders whose prompts its own are made of."""

    @property
    def run(self) -> str:
        """The module that plays."""
        return self.plays or f"run_{self.folder}_experiment"

    def sources(self) -> dict[str, str]:
        """What is executed, under all names that it is imported by."""
        names = ("prompts", self.run, "stable_matching_environment", "opt_solver")
        files = {name: f"{ROOT.replace('.', '/')}/{self.folder}/{name}.py" for name in names}
        others = {f"{ROOT}.{name}.prompts": f"{ROOT.replace('.', '/')}/{name}/prompts.py" for name in self.besides}
        return {**files, **{f"{ROOT}.{self.folder}.{name}": file for name, file in files.items()}, **others}


def importing(environment: str, source: Source, position: int) -> PromptImport:
    """The import of an environment whose texts are so."""
    return PromptImport(
        source=source.sources()["prompts"],
        tables=lambda repo, wording: _tables(repo, environment, source, wording),
        wordings=tuple(source.wordings),
        place=position,
    )


def _tables(repo: Path, environment: str, source: Source, wording: str) -> Iterator[str]:
    sources, env = source.sources(), ENVIRONMENTS[environment]
    if not (repo / sources["prompts"]).is_file():
        return
    with Copy(repo, sources) as copy:
        values = vars(copy.module("prompts"))
        instead = {"system": source.wordings[wording]} if wording in source.wordings else {}
        for name in (*source.texts.values(), *instead.values()):
            if not isinstance(values.get(name), str):
                raise copy.flaw("prompts", name, "it is missing, or is no text")
        plain = source.fit({key: values[name] for key, name in {**source.texts, **instead}.items()})
        plain |= _tool_texts(values.get(source.tools), env.texts.all)
        plain |= _answers(copy, source, env.texts.all)
        # What makes the wording is in no text for reasoning models, so its own texts hold for them too.
        own = {} if instead else {key: values.get(f"{name}_{source.variant}") for key, name in source.texts.items()}
        own |= _tool_texts(values.get(f"{source.tools}_{source.variant}"), env.texts.all)
    variant = {key: text for key, text in own.items() if isinstance(text, str) and plain.get(key) != text}
    yield absent_text(env.texts.all.keys() - env.texts.later.keys() - plain.keys())
    yield table_text(environment, plain)
    if variant:
        yield table_text(f"{environment}.{REASONING}", variant)


def _tool_texts(tools: Any, known: Container[str]) -> Texts:
    """The descriptions in a list of tools, of tools and arguments that our environment has."""
    texts: dict[str, Any] = {}
    for tool in tools or ():
        texts[f"tools.{tool['name']}.description"] = tool.get("description")
        for argument, declared in tool.get("input_schema", {}).get("properties", {}).items():
            texts[f"tools.{tool['name']}.{argument}"] = declared.get("description")
    return {key: text for key, text in texts.items() if key in known and isinstance(text, str)}


def _answers(copy: Copy, source: Source, known: Container[str]) -> Texts:
    """What the code beside the prompts answers: the past, a tool that is called twice, notes, refusals."""
    run = copy.module(source.run)
    run.range = lambda n: [Field("{attempt}")] * n
    run.enumerate = lambda values: ((Field("{number}"), value) for value in values)
    run.parse_dict = lambda value: value
    agent = object.__new__(getattr(run, source.agent))
    agent.notes, agent.data_accessed_this_period, agent.menu_accessed_this_period = [""], True, True
    results = source.results(copy, run, agent)
    texts = {**SAME, **{key: text for key, text in results.items() if key.startswith("results.history")}}
    for tool in source.twice:
        texts[repeat_key(tool)] = again = use(agent, tool)
        if again.startswith("{"):
            (texts["results.repeat_access"],) = ast.literal_eval(again).values()
    texts["results.notes_written"] = use(agent, "write_notes", {"notes": ""})
    return {key: text for key, text in {**texts, **results}.items() if key in known}


def use(agent: Any, tool: str, given: Mapping[str, Any] | None = None, **named: Any) -> str:
    """What a tool of an agent without a past answers."""
    takes = list(inspect.signature(agent.use_tool).parameters.values())[2:]
    blank: dict[str, Any] = {one.name: 0 if one.annotation is int else [] for one in takes}
    _, text = agent.use_tool(tool, given or {}, **{name: named.get(name, value) for name, value in blank.items()})
    return str(text)


def parted(whole: Callable[[int], str], slot: str) -> tuple[str, str]:
    """(a text around what repeats in it, with a slot for that; what repeats): `whole` makes it with so many."""
    without, once = whole(0), whole(1)
    head = next((n for n, (a, b) in enumerate(zip(without, once, strict=False)) if a != b), len(without))
    return f"{without[:head]}{slot}{without[head:]}", once[head : head + len(once) - len(without)]
