"""`python -m tests.installed`, or `make wheel`: the wheel and the source distribution as users install them.

Both are built into `dist/`. Each is installed with its dependencies into a new environment, and plays, reports and
verifies a few episodes in an empty folder, where nothing of the clone can help. The wheel is tried with every
supported Python that this machine has; for one that it lacks, the dependencies are resolved, of wheels alone. Then each
way to install of `docs/install.md` is tried word by word, with what was built in the place of what is published. With
`--one`, the wheel alone is tried, with the Python that runs this; with `--page`, that page's ways alone.
Needs the network. Exits non-zero at the first step that fails.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from evalkit.version import __version__

PROJECT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
LOCK = PROJECT / "requirements.lock"
INSTALL = PROJECT / "docs" / "install.md"
MADE = PROJECT / "dist"
WORDS = "Programming Language :: Python :: 3."
SWEEP = ("run", "quickstart", "--limit", "1")


OWED = 3
"""The exit code of a run that has ended as many episodes as it was asked for, and owes the rest."""


def call(words: Sequence[str | Path], folder: Path, *, code: int = 0, more: Mapping[str, str] | None = None) -> str:
    """What a command prints, which exits with a code. It sees neither this clone nor this environment, but `more`
    variables."""
    unseen = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in unseen} | {**(more or {})}
    done = subprocess.run(
        list(map(str, words)), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != code:
        raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}\nexit code {done.returncode}")
    return done.stdout


def build() -> tuple[Path, Path]:
    """The wheel and the source distribution, anew."""
    shutil.rmtree(MADE, ignore_errors=True)
    call([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", MADE], PROJECT)
    (wheel,), (source,) = MADE.glob("*.whl"), MADE.glob("*.tar.gz")
    name = PYPROJECT["name"].replace("-", "_")
    assert wheel.name.startswith(f"{name}-{__version__}-"), wheel
    assert source.name == f"{name}-{__version__}.tar.gz", source
    return wheel, source


def pythons() -> Iterator[tuple[str, Path | None]]:
    """The supported versions of Python, as the classifiers list them, each with one that starts here or None."""
    for version in (f"3.{one.removeprefix(WORDS)}" for one in PYPROJECT["classifiers"] if one.startswith(WORDS)):
        others = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
        places = [Path(found) for found in [shutil.which(f"python{version}")] if found]
        yield version, next((one for one in [*places, *others] if says_version(one) == version), None)


def says_version(python: Path) -> str:
    script = "import sys; print(*sys.version_info[:2], sep='.')"
    return subprocess.run([python, "-c", script], capture_output=True, text=True, check=False).stdout.strip()


def install_and_try(what: Path, python: Path) -> None:
    """Install into a new environment and play there; raises SystemExit at the first step that fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        uv = [sys.executable, "-m", "uv"]
        call([*uv, "venv", "--quiet", "--python", python, folder / "env"], folder)
        inside = folder / "env" / "bin" / "python"
        call([*uv, "pip", "install", "--quiet", "--python", inside, "--constraints", LOCK, what], folder)
        call([*uv, "pip", "check", "--quiet", "--python", inside], folder)
        here = folder / "here"
        here.mkdir()
        evalkit = folder / "env" / "bin" / "evalkit"
        assert call([evalkit, "--version"], here) == f"evalkit {__version__}\n"
        call([evalkit, *SWEEP], here, code=OWED)
        assert "replays to what the log holds" in call([evalkit, "verify", "runs/quickstart"], here)
        script = "import evalkit; print(evalkit.__file__, evalkit.load('runs/quickstart').ended)"
        assert call([inside, "-c", script], here).startswith(str(folder / "env"))


def try_the_page() -> None:
    """Each way to install that the page shows, in an empty folder; raises SystemExit at the first that fails."""
    tools = Path(sys.executable).parent
    for block in re.findall(r"^```sh skip\n(.+?)^```", INSTALL.read_text(), re.MULTILINE | re.DOTALL):
        tool = block.split()[0]
        if tool == "make":  # in a clone: how this was set up
            continue
        if tool == "docker" and os.system("docker info >/dev/null 2>&1"):  # it may be missing
            print("docker: no daemon answers here", flush=True)
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (bin_folder := folder / "bin").mkdir()
            for one in ("uv", "uvx"):
                (bin_folder / one).symlink_to(tools / one)
            found = {"PATH": f"{bin_folder}:{os.defpath}:/usr/local/bin:{Path(sys.base_prefix) / 'bin'}"}
            found |= {f"{one}_FIND_LINKS": str(MADE) for one in ("UV", "PIP")}
            found |= {
                "UV_TOOL_DIR": f"{folder}/tools",
                "UV_TOOL_BIN_DIR": str(bin_folder),
                "PIPX_HOME": f"{folder}/pipx",
            }
            if tool == "pipx":
                call(["uv", "tool", "install", "--quiet", tool], folder, more=found)
            played = block.replace("run quickstart", f"run quickstart --limit 1 || test $? = {OWED}")
            call(["sh", "-ec", played], PROJECT if tool == "docker" else folder, more=found)
        print(f"docs/install.md: {' '.join(block.splitlines()[-1].split()[:3])} ... works", flush=True)


def resolve(version: str) -> None:
    """See that every dependency has a wheel for a version of Python that is not here."""
    words = ["--python-version", version, "--only-binary", ":all:", "--quiet", "--no-header"]
    call([sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", *words, "--constraints", LOCK], PROJECT)


def main(words: Sequence[str]) -> int:
    """Build, then install what was built in as many ways as there are here, or in one."""
    wheel, source = build()
    if words == ["--one"]:
        install_and_try(wheel, Path(sys.executable))
        print(f"{wheel.name} installed, played and verified")
        return 0
    if words == ["--page"]:
        try_the_page()
        return 0
    for version, python in pythons():
        if python is None:
            resolve(version)
            print(f"Python {version}: not on this machine; every dependency has a wheel for it", flush=True)
        else:
            install_and_try(wheel, python)
            print(f"Python {version}: {wheel.name} installed, played and verified", flush=True)
    install_and_try(source, Path(sys.executable))
    print(f"{source.name} installed, played and verified")
    try_the_page()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
