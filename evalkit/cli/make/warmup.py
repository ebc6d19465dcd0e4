"""`evalkit warmup`: compile in advance the kernels that long runs load from the cache."""

import argparse
import time

from evalkit.envs.compiled import compile_all, folder
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import StorageError


def warmup(args: argparse.Namespace) -> int:
    """Compile every kernel, and say where they are stored."""
    del args
    print("Compiling the missing kernels; the first time, this takes about half a minute.", flush=True)
    began = time.perf_counter()
    try:
        for environment, kernel in compile_all(ENVIRONMENTS.values()):
            print(f"  {environment}: {kernel}, after {time.perf_counter() - began:.0f} s", flush=True)
    except OSError as flaw:
        raise StorageError(
            f"Compiled kernels cannot be stored in {folder()}: {flaw.strerror}. Set NUMBA_CACHE_DIR to a "
            "folder of your "
            "own. Runs work without them, in plain Python."
        ) from flaw
    print(f"They are in {folder()}. Runs that benefit from them load them from there.")
    return 0
