"""Compiled kernels in the main path: loaded where they pay, and never compiled while somebody waits.

Steps of an environment have a plain path, in Python and numpy, and some have a compiled twin that gives the same
values. Until `load` has been called only the plain one is taken, so no small command imports numba: the import and the
first kernel cost `START_S` of CPU. `load_for` weighs that against the work ahead. Kernels are taken from a cache in the
user's own folder, which `compile_all` fills (`evalkit warmup`); what is not there, or was made by other versions, is
left aside, and the plain path goes on.
"""

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalkit.envs.environment import Environment

START_S = 0.7
"""CPU seconds of numba's import and its first kernel, its cache being warm. Measured by `bench/compiled.py`."""
MARGIN = 2.0
"""Times its price that a load must be expected to save: what lies ahead is an estimate."""

LOADED: dict[str, ModuleType] = {}
"""By environment: the module whose kernels may be called. Empty until `load`."""

_MAIN = {"scheduling": "evalkit.envs.scheduling.kernels", "costbench": "evalkit.envs.costbench.planning.kernels"}
"""Kernels that steps call. Their modules have `samples()`: by kernel, arguments of the types that it is called with."""
_SEARCH = "evalkit.envs.procurement.kernels"
"""The branch and bound, which only big markets' optima take; it is compiled ahead with the others."""
_MARK = "ready.json"


def folder() -> Path:
    """Where compiled kernels are kept: `NUMBA_CACHE_DIR` where it is set, else below the user's cache folder."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "evalkit" / "kernels"


def keep_in_folder() -> None:
    """Have numba keep what it compiles from now on below `folder`; where that cannot be, beside the sources or nowhere.

    Each state of the sources has a place of its own: numba looks at a kernel's own file alone, and what it kept names
    types of other files, which another version may lack.
    """
    config: Any = import_module("numba.core.config")  # its stub does not know what it reads from the environment
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    config.CACHE_DIR = str(folder() / digest.hexdigest()[:16])


def load_for(work: Iterable[tuple["Environment[Any, Any]", Mapping[str, Any], float]]) -> bool:
    """Load the kernels if the work ahead is worth it; whether they are loaded now.

    work: (environment, line of an instance, periods like it). Takes about `START_S`, so it is called before the first
    request, or where nobody waits.
    """
    return bool(LOADED) or (pays(work) and load())


def pays(work: Iterable[tuple["Environment[Any, Any]", Mapping[str, Any], float]]) -> bool:
    """Whether the kernels would save more than loading them costs."""
    return sum(periods * env.compiled_saves_s(line) for env, line, periods in work) > MARGIN * START_S


def load() -> bool:
    """Take the kernels from the cache; False, and nothing is changed, where they are not all there."""
    if not ready() or import_module("numba.core.config").DISABLE_JIT:
        return False
    found: dict[str, ModuleType] = {}
    for name, place in _MAIN.items():
        module = import_module(place)
        if not all(_taken(getattr(module, kernel), given) for kernel, given in module.samples().items()):
            return False
        found[name] = module
    LOADED.update(found)
    return True


def ready() -> bool:
    """Whether the cache was filled by these versions of everything; looks at one small file, and imports nothing."""
    import json

    try:
        held = json.loads((folder() / _MARK).read_bytes())
    except (OSError, ValueError):
        return False
    return bool(held == _versions())


def compile_all() -> Iterator[tuple[str, str]]:
    """Compile every kernel into the cache; (environment, kernel) of each as it is done. Takes half a minute.

    Raises OSError where the folder cannot be written.
    """
    from evalkit.envs.table import ENVIRONMENTS

    yield from compile_steps()
    import_module(_SEARCH)  # from here on the search for an optimum takes it
    next(ENVIRONMENTS["procurement"].generate({}, 1, 0))
    yield "procurement", "search"


def compile_steps() -> Iterator[tuple[str, str]]:
    """The part of `compile_all` that `load` takes, which is done first: a few seconds."""
    import json

    folder().mkdir(parents=True, exist_ok=True)
    for name, place in _MAIN.items():
        module = import_module(place)
        for kernel, given in module.samples().items():
            getattr(module, kernel)(*given)
            yield name, kernel
    aside = folder() / f".{_MARK}.{os.getpid()}"
    aside.write_text(json.dumps(_versions()))
    aside.replace(folder() / _MARK)


def _taken(kernel: Any, given: tuple[Any, ...]) -> bool:
    """Have a kernel take its machine code for arguments of these types from the cache, and never compile."""
    typeof = import_module("numba").typeof
    kinds = tuple(typeof(one) for one in given)
    if kinds not in kernel.overloads:
        held = kernel._cache.load_overload(kinds, kernel.targetctx)
        if held is None:
            return False
        kernel.targetctx.insert_user_function(held.entry_point, held.fndesc, [held.library])
        kernel.add_overload(held)
    kernel.disable_compile()
    return True


def _versions() -> dict[str, str]:
    """All that decides whether a kernel in the cache is the one that would be compiled now, the processor aside."""
    import hashlib
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": sys.version}
    for name in ("numba", "llvmlite", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    here = Path(__file__).parent  # a kernel may be a function of any file beside its own
    digest = hashlib.sha256()
    for path in sorted(one for kernels in here.glob("*/kernels.py") for one in kernels.parent.glob("*.py")):
        digest.update(path.read_bytes())
        # numba finds its code by the place and the time of the source.
        digest.update(f"{path}\0{path.stat().st_mtime_ns}".encode())
    return {**found, "kernels": digest.hexdigest()}
