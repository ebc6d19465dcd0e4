"""`python -m tests.real.building` builds llama.cpp's server and a model in `.venv-others`, and says where they are.

llama.cpp comes in the source distribution of its Python bindings, pinned by hash. Only the server is compiled, without
its page, TLS and whatever needs a library. What has been made stays; what was interrupted goes on.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
FOLDER = PROJECT / ".venv-others"
LOCK = Path(__file__).with_name("llama_cpp.lock")
NAME, VERSION = LOCK.read_text().split()[0].split("==")
MADE = FOLDER / f"{NAME.replace('-', '_')}-{VERSION}"
SOURCE = MADE / "vendor" / "llama.cpp"
BUILD = MADE / "build"
SERVER = BUILD / "bin" / "llama-server"
MODEL = MADE / "random.gguf"
TEMPLATE = SOURCE / "models" / "templates" / "Qwen-Qwen2.5-7B-Instruct.jinja"
LITELLM = FOLDER / "bin" / "litellm"
VLLM = Path(os.environ.get("VLLM", FOLDER / "bin" / "vllm"))
"""vLLM takes gigabytes, and its wheel for a machine without a GPU wants a torch that not every index has: it is tested
where somebody has installed it."""
_WHY = MADE / "not-built"
_OFF = (
    *("BUILD_SHARED_LIBS", "LLAMA_OPENSSL", "LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI", "LLAMA_BUILD_TESTS"),
    *("LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_APP", "LLAMA_ALL_WARNINGS", "GGML_CCACHE", "GGML_OPENMP", "GGML_BLAS"),
    *("GGML_METAL", "GGML_LLAMAFILE", "GGML_CPU_REPACK"),
)
_FLAGS = "-O1 -DNDEBUG"
"""Compiling takes longer than a model of one layer does."""


def missing(program: Path) -> str:
    """Why a server cannot be tested; empty if it is there."""
    if program.exists():
        return ""
    why = (
        _WHY.read_text().strip()
        if program == SERVER and _WHY.exists()
        else "`make .venv-others/.ready` and `python -m tests.real.building` install it"
    )
    if program == VLLM:
        why = "install it where you like, and name its program: VLLM=/path/to/vllm python -m pytest -m real tests/real"
    return f"{program.name} is not there: {why}"


def build() -> str:
    """Make what is not there yet; why it cannot be made, if something is missing. Raises CalledProcessError where a
    compiler fails."""
    tools = FOLDER / "bin"
    if not (tools / "cmake").exists():
        return "its tools (cmake, ninja) could not be installed"
    lacking = [name for name in ("cc", "c++", "tar") if not shutil.which(name)]
    if lacking:
        return f"{', '.join(lacking)}: not found on this machine"
    MADE.mkdir(exist_ok=True)
    if not (SOURCE / "CMakeLists.txt").exists() and not _fetched(tools):
        return f"the sources ({NAME} {VERSION}) could not be downloaded"
    if not SERVER.exists():
        print(f"Compiling llama.cpp's server of {NAME} {VERSION}: 10 minutes of CPU time, once.", flush=True)
        _compile(tools)
    if not MODEL.exists():
        vocabulary = SOURCE / "models" / "ggml-vocab-llama-spm.gguf"
        subprocess.run([tools / "python", Path(__file__).with_name("model.py"), vocabulary, MODEL], check=True)
    return ""


def _fetched(tools: Path) -> bool:
    """Whether the sources are there now."""
    apart = ["--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--require-hashes"]
    pip: list[str | Path] = [tools / "python", "-m", "pip", "download", "--quiet", *apart, "-r", LOCK, "-d", MADE]
    if subprocess.run(pip, check=False).returncode:
        return False
    (archive,) = MADE.glob("*.tar.gz")
    subprocess.run(["tar", "-xzf", archive, "-C", MADE, "--strip-components=1", f"{MADE.name}/vendor"], check=True)
    archive.unlink()
    return True


def _compile(tools: Path) -> None:
    cmake, ninja = tools / "cmake", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"
    options = [*(f"-D{name}=OFF" for name in _OFF), f"-DCMAKE_C_FLAGS={_FLAGS}", f"-DCMAKE_CXX_FLAGS={_FLAGS}"]
    subprocess.run(
        [cmake, "-G", "Ninja", ninja, "-S", SOURCE, "-B", BUILD, "--log-level=WARNING", *options], check=True
    )
    at_once = {"CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count()), **os.environ}
    subprocess.run([cmake, "--build", BUILD, "--target", SERVER.name], env=at_once, check=True)


if __name__ == "__main__":
    why = build()
    if why:
        print(f"NOT BUILT: llama.cpp's server. {why}.", file=sys.stderr)
        MADE.mkdir(parents=True, exist_ok=True)
        _WHY.write_text(why)
    else:
        _WHY.unlink(missing_ok=True)
