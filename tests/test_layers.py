"""Which module may import which: imports point down, and each library has its places."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent

# The first part of a module's path below evalkit/ -> its layer. A module imports from lower layers or its own folder.
LAYERS = {
    **dict.fromkeys(("dialogue", "digests", "errors", "money", "seeds", "shipped", "__init__"), 0),
    **dict.fromkeys(("env", "wire"), 1),
    "policy": 2,
    **dict.fromkeys(("spec", "store"), 3),
    "client": 4,
    **dict.fromkeys(("run", "report"), 5),
    **dict.fromkeys(("serve", "nightly"), 6),
    "view": 7,
    "cli": 8,
    "__main__": 9,
}

# Finer than the layers: these never meet although one lies below the other.
APART = {("report", "client")}

# Library -> the only places that import it, as path prefixes below evalkit/.
PLACES = {
    "aiohttp": ("client/", "serve/", "view/"),
    "tenacity": ("client/",),
    "asyncio": ("client/", "run/", "store/writer", "serve/", "view/", "cli/"),
    "uvloop": ("run/", "serve/", "cli/"),
    "pyarrow": ("store/", "report/"),
    "duckdb": ("report/", "view/", "cli/"),
    "altair": ("report/figures/",),
    "vl_convert": ("report/figures/",),
    "pandas": (),
    "jinja2": ("view/",),
    "markupsafe": ("view/",),
    "rich": ("run/", "report/", "cli/"),
    "numba": ("env/", "report/"),
    "scipy": ("env/", "report/"),
    "networkx": ("env/",),
    "rapidfuzz": ("env/", "report/"),
    "genai_prices": ("spec/",),
    "keyring": ("client/keys",),
    "random": (),
}

# Values in, values out: no clock, no thread, no socket.
PURE = ("env/", "wire/", "policy/", "report/", "store/schema", "store/record")
IMPURE = frozenset({"asyncio", "socket", "subprocess", "threading", "time", "urllib", "http"})
PURE_PARTS = ("urllib.parse.",)
"""Of the impure ones, what only turns texts into texts."""

# `random` comes in with argparse's neighbours and costs nothing.
HEAVY = (frozenset(PLACES) | {"numpy", "msgspec", "orjson"}) - {"random"}


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, wherever it stands; `from a import b` counts as `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def offences(sources: Mapping[str, str]) -> list[str]:
    """Every import that breaks a rule, in words. `sources`: path below evalkit/ -> text."""
    found = []
    for path, text in sources.items():
        for line, name in imported(ast.parse(text)):
            flaw = broken_rule(path, name)
            if flaw:
                found.append(f"{path}:{line} {flaw}")
    return found


def broken_rule(path: str, name: str) -> str:
    here = path.removesuffix(".py").split("/")[0]
    top, _, rest = name.partition(".")
    if top != "evalkit":
        if top in PLACES and not path.startswith(PLACES[top]):
            return f"imports {top}, which only {' '.join(PLACES[top]) or 'tests'} may"
        if top in IMPURE and path.startswith(PURE) and not name.startswith(PURE_PARTS):
            return f"is pure and imports {top}"
        return ""
    there = rest.split(".")[0]
    if there not in LAYERS:
        # `from evalkit import __version__`: a name of the package itself.
        return "" if there.startswith("__") else f"imports evalkit.{there}, which has no layer"
    if here not in LAYERS:
        return "lies in a folder that has no layer: give it one"
    if here != there and (LAYERS[there] >= LAYERS[here] > 0 or (here, there) in APART):
        return f"imports {name}: {here} (layer {LAYERS[here]}) does not see {there} (layer {LAYERS[there]})"
    if LAYERS[here] == 0 < LAYERS[there]:
        return f"imports {name}, upward"
    return ""


def package() -> dict[str, str]:
    root = PROJECT / "evalkit"
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted(root.rglob("*.py"))}


def test_every_import_keeps_to_its_layer() -> None:
    sources = package()
    assert len(sources) > 30
    assert offences(sources) == []


@pytest.mark.parametrize(
    ("path", "line", "words"),
    [
        ("env/scheduling/step.py", "from evalkit.wire.http import HttpResponse", "env (layer 1) does not see wire"),
        ("wire/openai_chat.py", "from evalkit.env.environment import fill", "wire (layer 1) does not see env"),
        ("report/tables.py", "from evalkit.run.episode import play", "report (layer 5) does not see run"),
        ("report/tables.py", "from evalkit.client.ask import Asker", "report (layer 5) does not see client"),
        ("money.py", "import evalkit.spec.model", "upward"),
        ("spec/sweep.py", "def late():\n    from evalkit.cli import main", "spec/sweep.py:2"),
        ("oddments/thing.py", "from evalkit.money import Price", "no layer"),
        ("env/table.py", "import evalkit.oddments", "no layer"),
        ("run/episode.py", "import aiohttp", "which only client/"),
        ("env/replay.py", "import time", "is pure"),
        ("policy/knuth.py", "import random", "only tests may"),
        ("store/reader.py", "import asyncio", "store/writer"),
    ],
)
def test_a_planted_offender_is_named(path: str, line: str, words: str) -> None:
    found = offences({path: line, "seeds.py": "import hashlib"})
    assert len(found) == 1
    assert words in found[0]
    assert found[0].startswith(path)


def test_what_is_allowed_is_not_named() -> None:
    sources = {
        "env/scheduling/step.py": "from evalkit.dialogue import Reply\nfrom evalkit.env.environment import fill",
        "client/lane.py": "import asyncio\nimport aiohttp\nfrom evalkit.store.record import LedgerRecord",
        "cli/run.py": "from evalkit import __version__\nfrom evalkit.run.sweep import run_sweep",
    }
    assert offences(sources) == []


@pytest.mark.parametrize(
    "call",
    [
        "import evalkit",
        "import runpy; sys.argv = ['evalkit', '--help']; runpy.run_module('evalkit', run_name='__main__')",
        "import runpy; sys.argv = ['evalkit', 'run', '--help']; runpy.run_module('evalkit', run_name='__main__')",
    ],
)
def test_nothing_heavy_is_loaded_before_a_command_needs_it(call: str) -> None:
    script = f"import sys\ntry:\n    {call}\nexcept SystemExit:\n    pass\n"
    script += f"print('loaded:', *sorted(set(sys.modules) & set({sorted(HEAVY)!r})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert done.stdout.splitlines()[-1] == "loaded:", done.stdout


@pytest.mark.parametrize("name", ["evalkit.client.open", "evalkit.run.sweep", "evalkit.cli.run"])
def test_who_asks_a_provider_loads_nothing_of_the_simulated_one(name: str) -> None:
    script = f"import sys, {name}\nprint('loaded:', *sorted(one for one in sys.modules if 'evalkit.serve' in one))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert done.stdout.splitlines()[-1] == "loaded:", done.stdout
