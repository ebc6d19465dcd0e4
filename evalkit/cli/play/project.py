"""The project that `evalkit new --plugin` writes: the files of `evalkit/plugin_project/`, named after its folder."""

import keyword
import re
from pathlib import Path

from evalkit.envs.table import OWN_ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.files import write_new

TEMPLATE = Path(__file__).resolve().parent.parent.parent / "plugin_project"
ENDING = ".in"
PACKAGE = "package"
"""The folder of the template that gets the package's name."""

_PREFIX = re.compile(r"^evalkit[-_.]+")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def write_project(folder: Path) -> str:
    """Write the project; return the name of its environment.

    Raises UsageError if the folder is not empty, or if its name does not give a valid name for an environment.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; nothing was written. Choose another name.")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; nothing was written. Choose another name.")
    name = environment_name(folder.resolve().name)
    for path, text in project_files(name).items():
        write_new(folder / path, text)
    return name


def environment_name(folder: str) -> str:
    """The name of the environment whose project is in a folder with that name. Raises UsageError."""
    name = re.sub(r"[-. ]+", "_", _PREFIX.sub("", folder.lower()))
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UsageError(
            f"--plugin: the environment is named after the folder, and {name!r} is not a valid name: use "
            "lower-case letters, digits and _, starting with a letter, as in `evalkit-auctions`. Nothing "
            "was written."
        )
    if name in OWN_ENVIRONMENTS:
        raise UsageError(f"--plugin: evalkit already has an environment {name!r}. Choose another name for the folder.")
    return name


def project_files(name: str) -> dict[str, str]:
    """The files of a project by their paths within it. `name`: the environment's."""
    words = {
        "@name@": name,
        "@package@": f"evalkit_{name}",
        "@distribution@": f"evalkit-{name.replace('_', '-')}",
    }
    files = {}
    for file in sorted(path for path in TEMPLATE.rglob(f"*{ENDING}") if path.is_file()):
        text = file.read_text(encoding="utf-8")
        for word, value in words.items():
            text = text.replace(word, value)
        first, *rest = file.relative_to(TEMPLATE).with_suffix("").parts
        first = words["@package@"] if first == PACKAGE and rest else first
        files["/".join((first, *rest))] = text
    return files
