"""`evalkit warmup`: compile ahead what long runs take from the cache."""

import argparse
import time

from evalkit.envs.compiled import compile_all, folder
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import StorageError


def warmup(args: argparse.Namespace) -> int:
    """Compile every kernel, say where they lie."""
    del args
    print("Compiling what is not there yet; at first this takes about half a minute.", flush=True)
    began = time.perf_counter()
    try:
        for environment, kernel in compile_all(ENVIRONMENTS.values()):
            print(f"  {environment}: {kernel}, after {time.perf_counter() - began:.0f} s", flush=True)
    except OSError as flaw:
        raise StorageError(
            f"Compiled kernels cannot be kept in {folder()}: {flaw.strerror}. Set NUMBA_CACHE_DIR to a folder of your "
            "own. Runs do without: they take the plain path."
        ) from flaw
    print(f"They lie in {folder()}. Runs that gain by them take them from there.")
    return 0
