"""Compiled kernels in the main path: loaded where they pay, and never compiled while somebody waits.

Steps of an environment have a plain path, in Python and numpy, and some have a compiled twin that gives the same
values. Until `load` has been called only the plain one is taken, so no small command imports numba: the import and the
first kernel cost `START_S` of CPU. `load_for` weighs that against the work ahead. Kernels are taken from a cache in the
user's own folder, which `compile_all` fills (`evalkit warmup`); what is not there, or was made by other versions, is
left aside, and the plain path continues.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from evalkit.envs.environment import Environment
from evalkit.envs.named import named
from evalkit.errors import UsageError

Env = Environment[Any, Any]

START_S = 0.7
"""CPU seconds of numba's import and its first kernel, its cache being warm. Measured by `bench/compiled.py`."""
MARGIN = 2.0
"""Times its price that a load must be expected to save: what lies ahead is an estimate."""

LOADED: dict[str, ModuleType] = {}
"""By environment: the module whose kernels may be called. Empty until `load`."""

_MARK = "ready.json"


def folder() -> Path:
    """Where compiled kernels are kept: `NUMBA_CACHE_DIR` where it is set, else below the user's cache folder."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "evalkit" / "kernels"


def keep_in_folder(source: str) -> None:
    """Have numba keep what it compiles from now on below `folder`; where that cannot be, beside the sources or nowhere.

    `source`: the file of the kernels. Each state of the sources has a place of its own: numba looks at a kernel's own
    file alone, and what it kept names types of other files, which another version may lack.
    """
    config: Any = import_module("numba.core.config")  # its stub does not know what it reads from the environment
    ours, theirs = Path(__file__).parent, Path(source).parent
    others = [] if theirs.is_relative_to(ours) else sorted(theirs.rglob("*.py"))
    digest = hashlib.sha256()
    for path in (*sorted(ours.rglob("*.py")), *others):
        digest.update(path.read_bytes())
    config.CACHE_DIR = str(folder() / digest.hexdigest()[:16])


def load_for(work: Iterable[tuple[Env, Mapping[str, Any], float]]) -> bool:
    """Load the kernels of the environments that the work ahead is of, if it is worth it; whether they are loaded now.

    work: (environment, line of an instance, periods like it). Takes about `START_S`, so it is called before the first
    request, or where nobody waits.
    """
    ahead = list(work)
    wanted = {env.name: env for env, _, _ in ahead if env.kernels}
    if not wanted:
        return False
    return wanted.keys() <= LOADED.keys() or (pays(ahead) and load(wanted.values()))


def pays(work: Iterable[tuple[Env, Mapping[str, Any], float]]) -> bool:
    """Whether the kernels would save more than loading them costs."""
    return sum(periods * env.compiled_saves_s(line) for env, line, periods in work) > MARGIN * START_S


def load(environments: Iterable[Env]) -> bool:
    """Take these environments' kernels from the cache; False, and nothing is changed, where they are not all there."""
    wanted = [env for env in environments if env.kernels]
    if not all(map(ready, wanted)) or import_module("numba.core.config").DISABLE_JIT:
        return False
    modules: dict[str, ModuleType] = {}
    for env in wanted:
        module = _kernels(env)
        if not all(_taken(getattr(module, kernel), given) for kernel, given in module.samples().items()):
            return False
        modules[env.name] = module
    LOADED.update(modules)
    return True


def ready(env: Env) -> bool:
    """Whether the cache has an environment's kernels, made by these versions of everything. Imports nothing heavy."""
    return _marked().get(env.name) == _versions(env)


def compile_all(environments: Iterable[Env]) -> Iterator[tuple[str, str]]:
    """Compile every kernel of these environments into the cache; (environment, kernel) of each as it is done.

    Takes half a minute. Raises OSError if the folder cannot be written, UsageError where a record names what is not
    there.
    """
    known = list(environments)
    yield from compile_steps(known)
    for env in known:
        if env.compiled_ahead:
            ahead = named(env.name, "compiled_ahead", env.compiled_ahead, FunctionType)
            yield from ((env.name, name) for name in ahead())


def compile_steps(environments: Iterable[Env]) -> Iterator[tuple[str, str]]:
    """The part of `compile_all` that `load` takes, which is done first: a few seconds."""
    folder().mkdir(parents=True, exist_ok=True)
    done = list[Env]()
    for env in environments:
        if env.kernels:
            module = _kernels(env)
            for kernel, given in module.samples().items():
                getattr(module, kernel)(*given)
                yield env.name, kernel
            done.append(env)
    aside = folder() / f".{_MARK}.{os.getpid()}"
    aside.write_text(json.dumps({**_marked(), **{env.name: _versions(env) for env in done}}))
    aside.replace(folder() / _MARK)


def _kernels(env: Env) -> ModuleType:
    try:
        return import_module(env.kernels)
    except ImportError as flaw:
        raise UsageError(f"{env.name}: kernels: {env.kernels!r} cannot be imported: {flaw}.") from flaw


def _taken(kernel: Any, given: tuple[Any, ...]) -> bool:
    """Have a kernel take its machine code for arguments of these types from the cache, and never compile."""
    typeof = import_module("numba").typeof
    kinds = tuple(typeof(value) for value in given)
    if kinds not in kernel.overloads:
        overload = kernel._cache.load_overload(kinds, kernel.targetctx)
        if overload is None:
            return False
        kernel.targetctx.insert_user_function(overload.entry_point, overload.fndesc, [overload.library])
        kernel.add_overload(overload)
    kernel.disable_compile()
    return True


def _marked() -> dict[str, Any]:
    """By environment: the versions that made what the cache has of it."""
    try:
        versions = json.loads((folder() / _MARK).read_bytes())
    except (OSError, ValueError):
        return {}
    return versions if isinstance(versions, dict) else {}


def _versions(env: Env) -> dict[str, str]:
    """All that decides whether a kernel in the cache is the one that would be compiled now, the processor aside."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": sys.version}
    for name in ("numba", "llvmlite", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = ""
    try:
        spec = find_spec(env.kernels)
    except ImportError:
        spec = None
    digest = hashlib.sha256()
    # A kernel may be a function of any file beside its own.
    for path in sorted(Path(spec.origin).parent.glob("*.py")) if spec and spec.origin else ():
        digest.update(path.read_bytes())
        # numba finds its code by the place and the time of the source.
        digest.update(f"{path}\0{path.stat().st_mtime_ns}".encode())
    return {**versions, "kernels": digest.hexdigest()}
