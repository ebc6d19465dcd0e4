"""Where `providers/`, `instances/` and `runs/` are searched: the user's own folder first, then the files of evalkit.

An installed wheel carries them under `evalkit/_shipped/`; a checkout has them next to the package.
"""

from pathlib import Path, PurePosixPath

from evalkit.errors import UsageError, nearest

_PACKAGE = Path(__file__).resolve().parent


def folders(kind: str) -> list[Path]:
    """The folders of a kind (`providers`, `instances`, `runs`) that exist, in the order in which they are searched.

    The current directory's own folder wins, so that a user's file replaces the one of the same name that we ship.
    """
    return _existing(kind, _PACKAGE)


def find(kind: str, name: str) -> Path:
    """The first file of that name, relative to the folders of a kind: `find("runs", "quickstart.toml")`.

    Raises UsageError that says where it was searched for, with the nearest name.
    """
    places = folders(kind)
    for folder in places:
        if (folder / name).is_file():
            return folder / name
    looked = ", ".join(str(folder) for folder in places) or f"no folder {kind!r} exists"
    wanted = PurePosixPath(name)
    pattern = "/".join(["*"] * len(wanted.parts[:-1]) + [f"*{wanted.suffix}"])
    valid = {path.relative_to(folder).with_suffix("").as_posix() for folder in places for path in folder.glob(pattern)}
    near = nearest(str(wanted.with_suffix("")), valid)  # without its ending, as sweeps and commands name it
    raise UsageError(f"There is no {kind}/{name} (looked in: {looked}).{near}")


def _existing(kind: str, package: Path) -> list[Path]:
    candidates = [Path.cwd() / kind, package / "_shipped" / kind]
    # Next to an installed package is the shared site-packages: only the folders of a checkout belong to evalkit.
    if (package.parent / "pyproject.toml").is_file():
        candidates.append(package.parent / kind)
    folders: dict[Path, Path] = {}
    for folder in candidates:
        if folder.is_dir():
            folders.setdefault(folder.resolve(), folder)
    return list(folders.values())
