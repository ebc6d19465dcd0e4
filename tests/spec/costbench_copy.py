"""A copy of CostBench's reference repository, made up: its files and names, how its texts come about; other words.

Every source runs, so tests can compare what was read of it with what it really gives.
"""

import sys
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from evalkit.envs.costbench.domain.catalogue import title
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import make_world
from tests.spec.costbench_sources import COMPOSITE, CONFIG, EXAMPLE, OLDER, PROMPTS, RUN, STEPS, TYPES

TRAVEL = shipped("travel")


def composite_text(components: tuple[str, ...]) -> str:
    """How the copy describes a composite."""
    joined = " & ".join(components)
    return f'Does "{joined}" – at once.'


def banned(place: int) -> str:
    return f"[ERROR] Out of order, sentence {place} – try later."


def changed(place: int) -> str:
    return f"Well ({place}): " + "{new_user_message}"


def write_copy(folder: Path) -> Path:
    """The made-up copy's files."""
    composites: dict[tuple[str, ...], str] = {}
    sequences: dict[int, str] = {}
    for task in TRAVEL.tasks:
        for length in range(3, 9):
            world = make_world(TRAVEL, task, length, whole=True)
            composites |= {tool.components: composite_text(tool.components) for tool in world.tools[length:]}
            sequences[length - 3] = " / ".join(world.sequence).replace(world.title, "{task}")
    listed = "\n".join(f"    {names!r}: {text!r}," for names, text in composites.items())
    files = {
        "env/run.py": RUN,
        "env/core/base_types.py": TYPES,
        "env/core/data_types.py": "DATA_TYPE_REGISTRY = {}\n",
        "env/domains/travel/enums.py": "ENUM_DIRECT_MAPPINGS = {}\n",
        "env/utils/example_generator.py": EXAMPLE,
        "env/domains/travel/atomic_tools.py": atomic_source(),
        "env/domains/travel/composite_tools.py": COMPOSITE,
        "env/domains/travel/composite_tool_descriptions.py": f"COMPOSITE_DESCRIPTIONS = {{\n{listed}\n}}\n",
        "env/domains/travel/refinement_steps_catalog.py": STEPS
        % ",\n    ".join(f"{k}: {v!r}" for k, v in sequences.items()),
        "env/utils/prompts.py": PROMPTS,
        "env/config/travel_config.yaml": CONFIG
        % tuple("\n".join(f'    - "{say(place)}"' for place in range(1, 11)) for say in (banned, changed)),
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def atomic_source() -> str:
    lines = ["from env.core.base_types import AtomicTool", ""]
    for task in TRAVEL.tasks:
        world = make_world(TRAVEL, task, 8, whole=False)
        for tool in world.tools[:7]:
            lines += [
                f"{tool.name} = AtomicTool(",
                f'    name="{tool.name}",',
                f"    input_types={list(tool.inputs)!r},",
                f'    description="Small {tool.name.lower()} – does its bit."',
                ")",
            ]
    return "\n".join(
        [
            *lines,
            "def create_dynamic_select_tool(subtask, refinement_level):",
            '    tool_name = f"Select_Final_{subtask.capitalize()}"',
            "    return AtomicTool(",
            "        name=tool_name,",
            '        description=f"Takes the one {subtask} that is best.",',
            "    )",
            "",
        ]
    )


@dataclass
class Ran:
    """The copy's sources, run."""

    run: dict[str, Any]
    types: dict[str, Any]
    composite: dict[str, Any]
    example: dict[str, Any]
    steps: dict[str, Any]


def ran(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Run the made-up sources, with made-up modules in place of those that they import."""
    enums: dict[str, Any] = {}
    for task, found in TRAVEL.tasks.items():
        for one in TRAVEL.dimensions:
            values = found.test[one.key]
            enums[title(task) + one.suffix] = Enum(one.suffix, {value.upper(): value for value in values})
    spaces: dict[str, dict[str, Any]] = {}

    def module(name: str, **values: Any) -> None:
        made = ModuleType(name)
        made.__dict__.update(values)
        monkeypatch.setitem(sys.modules, name, made)

    for name in ("env", "env.core", "env.domains", "env.domains.travel"):
        module(name)
    module("env.domains.travel.enums", ENUM_DIRECT_MAPPINGS=enums)
    module("env.run", ID_LENGTH=5)
    module("env.core.data_types", DATA_TYPE_REGISTRY={})
    for name in ("env/core/base_types", "env/domains/travel/composite_tools", "env/utils/example_generator"):
        spaces[name] = {}
        exec((folder / f"{name}.py").read_text(encoding="utf-8"), spaces[name])
    name = "env/domains/travel/refinement_steps_catalog"
    spaces[name] = {}
    exec((folder / f"{name}.py").read_text(encoding="utf-8"), spaces[name])
    types = spaces["env/core/base_types"]
    module("env.core.base_types", **{key: types[key] for key in ("get_all_digits", "JSON_DECODE_ERROR_OUTPUT", "Tool")})
    module("gone")
    module("env.settings", load_config=lambda: SimpleNamespace(runtime=SimpleNamespace(id_length=5)))
    spaces["env/run"] = {}
    exec((folder / "env/run.py").read_text(encoding="utf-8").replace(OLDER, " " * 16 + "pass\n"), spaces["env/run"])
    return Ran(
        run=spaces["env/run"],
        types=types,
        composite=spaces["env/domains/travel/composite_tools"],
        example=spaces["env/utils/example_generator"],
        steps=spaces[name],
    )


def everything() -> list[tuple[str, int]]:
    """Tasks and lengths."""
    return list(chain.from_iterable([(task, length) for length in range(3, 9)] for task in TRAVEL.tasks))
