"""Which module may import which: imports point down and in no circle, and each library has its places."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

import evalkit

PROJECT = Path(__file__).resolve().parent.parent

# The first part of a module's path below evalkit/ -> its layer. A module imports from lower layers or its own folder.
LAYERS = {
    **dict.fromkeys(
        (
            "compiled",
            "dialogue",
            "digests",
            "errors",
            "files",
            "loopback",
            "money",
            "plugins",
            "redact",
            "replies",
            "seats",
            "seeds",
            "shipped",
            "text",
            "version",
            "waiting",
            "__init__",
        ),
        0,
    ),
    **dict.fromkeys(("envs", "stats", "wire"), 1),
    **dict.fromkeys(("policy", "store"), 2),
    **dict.fromkeys(("spec", "frozen"), 3),
    **dict.fromkeys(("client", "results"), 4),
    **dict.fromkeys(("engine", "report", "serve"), 5),
    "machines": 6,
    "playing": 7,
    **dict.fromkeys(("checking", "gating", "nightly", "tasks"), 8),
    **dict.fromkeys(("api", "extend", "testing", "view"), 9),
    "integrations": 10,
    "cli": 11,
    "__main__": 12,
}

# Finer than the layers: these never meet although one lies below the other.
APART = {("report", "client"), ("machines", "report"), ("playing", "report")}

# Library -> the only places that import it, as path prefixes below evalkit/.
PLACES = {
    "aiohttp": ("client/", "serve/", "view/", "integrations/gateway", "integrations/verifiers"),
    "tenacity": ("client/",),
    "asyncio": (
        *("waiting", "client/", "engine/", "machines/", "playing/"),
        *("store/writing/", "serve/", "view/", "api/", "integrations/", "cli/"),
    ),
    "uvloop": ("engine/", "serve/", "cli/"),
    "pyarrow": (
        "envs/suite_rows",
        "spec/suites",
        "frozen/suite_file",
        "frozen/instances",
        "store/",
        "results/",
        "report/",
        "api/",
    ),
    "duckdb": ("results/", "report/", "view/", "cli/"),
    "altair": (),
    "shtab": ("cli/tools/completion",),
    "vl_convert": ("report/figures/",),
    "pandas": (),
    "jinja2": ("view/",),
    "markupsafe": ("view/",),
    "rich": ("engine/", "report/", "cli/"),
    "numba": ("envs/", "stats/"),
    "scipy": ("envs/", "stats/", "report/", "integrations/gym/"),
    "gymnasium": ("integrations/gym/",),
    "inspect_ai": ("integrations/inspect/",),
    "mcp": ("integrations/mcp/",),
    "mcp_types": ("integrations/mcp/",),
    "starlette": ("integrations/mcp/",),
    "uvicorn": ("integrations/mcp/",),
    "anyio": ("integrations/mcp/",),
    "networkx": ("envs/",),
    "rapidfuzz": ("envs/", "report/"),
    "rpds": ("envs/",),
    "genai_prices": ("spec/",),
    "keyring": ("client/keys",),
    "botocore": ("client/clouds",),
    "boto3": ("store/objects",),
    "ray": ("machines/on_ray",),
    "obstore": ("store/objects", "store/bucket"),
    "google": ("client/clouds",),
    "azure": ("client/clouds",),
    "random": (),
}

# Values in, values out: no clock, no thread, no socket.
PURE = ("envs/", "stats/", "wire/", "policy/", "results/", "report/", "store/files/schema", "store/files/record")
IMPURE = frozenset({"asyncio", "socket", "subprocess", "threading", "time", "urllib", "http"})
PURE_PARTS = ("urllib.parse.",)
"""Of the impure ones, what only turns texts into texts."""

# `random` comes in with argparse's neighbours and costs nothing.
# pyarrow's data sets import pandas, where it is installed.
# Of evalkit itself, statistics: a run that is asked nothing does without.
HEAVY = (frozenset(PLACES) | {"numpy", "msgspec", "orjson", "pyarrow.dataset", "evalkit.stats.deciding"}) - {"random"}


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, wherever it stands; `from a import b` counts as `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@cache
def imports_of(text: str) -> tuple[tuple[int, str], ...]:
    """`imported` of a file's text: several rules look at the imports of all files."""
    return tuple(imported(ast.parse(text)))


def offences(sources: Mapping[str, str]) -> list[str]:
    """Every import that breaks a rule, in words. `sources`: path below evalkit/ -> text."""
    found = []
    for path, text in sources.items():
        for line, name in imports_of(text):
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
        offered = not there or there in evalkit.__all__
        return "takes what evalkit offers to others" if offered else f"imports evalkit.{there}, which has no layer"
    if here not in LAYERS:
        return "lies in a folder that has no layer: give it one"
    if here != there and (LAYERS[there] >= LAYERS[here] > 0 or (here, there) in APART):
        return f"imports {name}: {here} (layer {LAYERS[here]}) does not see {there} (layer {LAYERS[there]})"
    if here == "__init__":
        return ""  # it names the interface, for type checkers alone: a test below says that it loads nothing
    if LAYERS[here] == 0 < LAYERS[there]:
        return f"imports {name}, upward"
    return ""


def module_name(path: str) -> str:
    """The dotted name of a file below evalkit/."""
    return ".".join(["evalkit", *path.removesuffix(".py").split("/")]).removesuffix(".__init__")


def edges(sources: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(importer, imported) by dotted name, wherever an import stands: in a function, or for types alone."""
    modules = {module_name(path) for path in sources}
    for path, text in sources.items():
        for _, name in imports_of(text):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules:
                yield module_name(path), target


def circles(sources: Mapping[str, str]) -> list[str]:
    """Modules that reach each other by imports, in words."""
    graph = nx.DiGraph(edges(sources))
    alone = (f"{name} imports itself" for name, other in graph.edges if name == other)
    found = (sorted(one) for one in nx.strongly_connected_components(graph) if len(one) > 1)
    return sorted([*alone, *(f"{', '.join(one)} import each other" for one in found)])


def room_circles(sources: Mapping[str, str]) -> list[str]:
    """Folders, and modules that lie in a layer's folder itself, that reach each other by imports, in words."""
    rooms = {module_name(path): path.removesuffix(".py") for path in sources}
    rooms = {name: path.rpartition("/")[0] if path.count("/") > 1 else path for name, path in rooms.items()}
    graph = nx.DiGraph((rooms[name], rooms[other]) for name, other in edges(sources) if rooms[name] != rooms[other])
    found = (sorted(component) for component in nx.strongly_connected_components(graph) if len(component) > 1)
    return sorted(f"{', '.join(component)} import each other" for component in found)


# Where an import may stand in a function though what it loads is light: a command and a call of the interface load what
# they need.
LAZY = ("api/", "cli/", "playing/")

SLOW = frozenset({"difflib", "email.utils", "importlib.metadata"})
"""Of Python's own modules, what takes so long to import that most calls should do without."""


def top_imports(tree: ast.AST) -> Iterator[str]:
    """Names that loading a module imports: those outside functions that are not for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (name for _, name in imported(ast.Module([node], [])))
        yield from top_imports(node)


def late_imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of every import within a function."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return iter(dict.fromkeys(found for node in functions for found in imported(ast.Module(node.body, []))))


def idle_delays(sources: Mapping[str, str]) -> list[str]:
    """Imports within functions that put off nothing heavy, in words, but for those of `LAZY`."""
    trees = {module_name(path): ast.parse(text) for path, text in sources.items()}
    loads = nx.DiGraph()
    for module, tree in trees.items():
        loads.add_node(module)
        for name in top_imports(tree):
            inside = name if name in trees else name.rpartition(".")[0]
            loads.add_edge(module, inside if inside in trees else name if name in HEAVY else name.split(".")[0])

    @cache
    def heavy(module: str) -> frozenset[str]:
        return HEAVY & nx.descendants(loads, module)

    found = []
    for path in sources:
        here = module_name(path)
        for line, name in late_imports(trees[here]) if not path.startswith(LAZY) else ():
            target = name if name in trees else name.rpartition(".")[0]
            weight = heavy(target) if target in trees else HEAVY & {name.split(".")[0]} | SLOW & {target}
            if not weight - heavy(here):
                found.append(f"{path}:{line} imports {name} within a function, and nothing heavy with it")
    return found


def package() -> dict[str, str]:
    root = PROJECT / "evalkit"
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted(root.rglob("*.py"))}


MOST_LINES = {
    "engine": 8_580,  # tiers in plan, status and admission; where caches that last pay; a gate, where one is
    "machines": 2_450,  # tiers chosen by every worker
    "playing": 510,  # a gate, where one is
    "envs": 11_960,  # the papers' other ranges, the greatest least total, replaced markets
    "report": 11_140,  # redundant calls beside the gap, distance from greedy, thin lines of figures, a gate
    "store": 5_628,  # sums by tier; what a run has spent, once instead of in five places
    "frozen": 1_170,
    "client": 5_610,  # tiers: their requests, pace and money
    "cli": 5_705,  # chains of queries, sheets, tiers, a gate, where one is, completion, an install page
    "wire": 4_600,  # tiers by dialect, caches that last
    "view": 3_600,
    "spec": 3_570,  # tiers in provider files, duopoly's imported history, scopes, a gate, where one is
    "policy": 2_980,
    "integrations": 2_920,
    "results": 3_210,  # a gate, a gate's answers
    ".": 2_960,
    "stats": 2_530,  # a gate, turns
    "serve": 1_660,  # tiers with a price each
    "api": 995,  # where one is
    "tasks": 1_120,  # raw queries in every step, samples checked by hand
    "gating": 715,  # `evalkit gate`
    "nightly": 635,  # where one is
}
"""Lines of each folder of evalkit/, and of the modules beside them. A change that raises one says what it is worth."""


def test_no_folder_grows_unnoticed() -> None:
    lines = dict.fromkeys(MOST_LINES, 0)
    for path, text in package().items():
        folder = path.partition("/")[0] if "/" in path else "."
        if text:
            lines[folder] += len(text.splitlines())
    assert {folder: found for folder, found in lines.items() if found > MOST_LINES[folder]} == {}
    assert sum(len(text) > 0 for text in package().values()) <= 474


def test_every_import_keeps_to_its_layer() -> None:
    sources = package()
    assert len(sources) > 30
    assert offences(sources) == []


@pytest.mark.parametrize(
    ("path", "line", "words"),
    [
        ("envs/scheduling/step.py", "from evalkit.wire.http import HttpResponse", "envs (layer 1) does not see wire"),
        ("wire/openai_chat.py", "from evalkit.envs.environment import fill", "wire (layer 1) does not see envs"),
        ("report/tables.py", "from evalkit.engine.episode import play", "report (layer 5) does not see engine"),
        ("report/tables.py", "from evalkit.client.ask import Asker", "report (layer 5) does not see client"),
        ("money.py", "import evalkit.spec.model", "upward"),
        ("spec/sweep.py", "def late():\n    from evalkit.cli import main", "spec/sweep.py:2"),
        ("oddments/thing.py", "from evalkit.money import Price", "no layer"),
        ("envs/table.py", "import evalkit.oddments", "no layer"),
        ("engine/episode.py", "import aiohttp", "which only client/"),
        ("envs/replay.py", "import time", "is pure"),
        ("policy/knuth.py", "import random", "only tests may"),
        ("store/reading/reader.py", "import asyncio", "store/writing/"),
        ("engine/scheduler.py", "from evalkit.api.runs import Run", "engine (layer 5) does not see api"),
        ("engine/scheduler.py", "import evalkit", "takes what evalkit offers"),
        ("view/pages.py", "from evalkit import run", "takes what evalkit offers"),
    ],
)
def test_a_planted_offender_is_named(path: str, line: str, words: str) -> None:
    found = offences({path: line, "seeds.py": "import hashlib"})
    assert len(found) == 1
    assert words in found[0]
    assert found[0].startswith(path)


def test_no_import_leads_in_a_circle() -> None:
    assert circles(package()) == []


@pytest.mark.parametrize(
    "line",
    [
        "from evalkit.envs.market import price",
        "def late():\n    from evalkit.envs import market",
        "if TYPE_CHECKING:\n    import evalkit.envs.market",
    ],
)
def test_a_planted_circle_is_named(line: str) -> None:
    sources = {
        "envs/market.py": "from evalkit.envs.goods import GOODS",
        "envs/goods.py": "from evalkit.envs.names import NAMES",
        "envs/names.py": line,
        "envs/table.py": "import evalkit.envs.market",
    }
    assert circles(sources) == ["evalkit.envs.goods, evalkit.envs.market, evalkit.envs.names import each other"]
    assert circles({**sources, "envs/names.py": "NAMES = ()"}) == []


def test_no_import_leads_in_a_circle_of_folders() -> None:
    assert room_circles(package()) == []


def test_a_planted_circle_of_folders_is_named() -> None:
    sources = {
        "report/extras/record.py": "NAMES = ()",
        "report/extras/own.py": "from evalkit.report.figures.draw import draw",
        "report/figures/draw.py": "from evalkit.report.extras.record import NAMES",
        "report/tables.py": "from evalkit.report.extras.record import NAMES",
    }
    assert circles(sources) == []
    assert room_circles(sources) == ["report/extras, report/figures import each other"]
    assert room_circles({**sources, "report/figures/draw.py": "NAMES = ()"}) == []


def test_only_what_is_heavy_is_imported_within_functions() -> None:
    assert idle_delays(package()) == []


def test_a_planted_delay_is_named() -> None:
    sources = {
        "wire/light.py": "import json",
        "wire/dear.py": "from evalkit.wire.dearer import solve",
        "wire/dearer.py": "import scipy",
        "wire/user.py": "def a():\n    import evalkit.wire.light\ndef b():\n    from evalkit.wire import dear",
    }
    assert [one.split()[0] for one in idle_delays(sources)] == ["wire/user.py:2"]
    sources["wire/user.py"] += "\nfrom evalkit.wire.dearer import solve"
    assert [one.split()[0] for one in idle_delays(sources)] == ["wire/user.py:2", "wire/user.py:4"]


def test_what_is_allowed_is_not_named() -> None:
    sources = {
        "envs/scheduling/step.py": "from evalkit.dialogue import Reply\nfrom evalkit.envs.environment import fill",
        "client/lanes/lane.py": "import asyncio\nimport aiohttp\nfrom evalkit.store.files.record import LedgerRecord",
        "cli/play/run.py": "from evalkit.version import __version__\nfrom evalkit.playing.sweeps import run_sweep",
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


@pytest.mark.parametrize("name", ["evalkit.client.open", "evalkit.engine.sweep", "evalkit.cli.play.run"])
def test_who_asks_a_provider_loads_nothing_of_the_simulated_one(name: str) -> None:
    script = f"import sys, {name}\nprint('loaded:', *sorted(one for one in sys.modules if 'evalkit.serve' in one))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert done.stdout.splitlines()[-1] == "loaded:", done.stdout
