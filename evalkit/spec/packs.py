"""Prompt packs: TOML files that hold every text an agent reads, by environment.

`standard` is ours and complete. Another pack replaces what it names; `[scheduling.reasoning]` within a pack replaces
what it names for agents tagged `reasoning`.

    [scheduling]
    system = "..."
    [scheduling.tools.submit_assignment]
    description = "..."
"""

import hashlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from evalkit.envs.environment import Environment, Pack
from evalkit.envs.lines import canonical
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError, nearest
from evalkit.spec.identity import REASONING
from evalkit.spec.reading import parse_toml

STANDARD = "standard"
VARIANTS = (REASONING,)

_FOLDER = Path(__file__).resolve().parent.parent / "prompts"


def pack_names() -> list[str]:
    """The packs that can be named without a path."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def read_pack(name_or_path: str, environment: str, variant: str = "") -> Pack:
    """The texts an agent reads in one environment: the pack's own, and `standard`'s where it has none.

    A name stands for one of evalkit's packs; what ends in `.toml` is a path. `variant` is empty or one of `VARIANTS`;
    a pack's variant goes before its plain texts, and any text of the pack before `standard`'s. Where a pack changes
    nothing, it is `standard`, by name too: tables say what was read.
    Raises UsageError naming file and key for whatever is no pack.
    """
    if environment not in ENVIRONMENTS:
        raise UsageError(f"There is no environment {environment!r}.{nearest(environment, ENVIRONMENTS)}")
    if variant and variant not in VARIANTS:
        raise UsageError(f"A prompt pack has no variant {variant!r}.{nearest(variant, VARIANTS)}")
    path = _find(name_or_path)
    standard: dict[str, str] = {}
    texts: dict[str, str] = {}
    for source in dict.fromkeys((_standard(environment), path)):
        found = _texts(source, environment)
        texts = {**texts, **found[""], **found.get(variant, {})}
        standard = standard or texts
    env: Environment[Any, Any] = ENVIRONMENTS[environment]
    missing = sorted(env.texts.keys() - env.later_texts.keys() - texts.keys())
    if missing:
        raise UsageError(f"{path}: {environment} lacks {', '.join(missing)}.")
    return Pack(name=STANDARD if texts == standard else path.stem, digest=texts_digest(environment, texts), texts=texts)


def texts_digest(environment: str, texts: Mapping[str, str]) -> str:
    """Hex digest of resolved texts: a pack's identity in one environment."""
    return hashlib.sha256(canonical([environment, texts])).hexdigest()[:32]


def is_file(name_or_path: str) -> bool:
    """Whether it names a user's own file, not one of evalkit's packs."""
    return name_or_path.endswith(".toml")


def keys_of(name_or_path: str, environment: str) -> Mapping[str, frozenset[str]]:
    """The texts that the pack itself names, by variant (empty: plain); all others are `standard`'s. Raises as
    `read_pack`."""
    return {name: frozenset(texts) for name, texts in _texts(_find(name_or_path), environment).items()}


def import_reference(repo: Path, wording: str = "") -> str:
    """A pack's TOML text, built from a user's copy of the reference repository by reading its sources.

    `wording`: one of those that the reference compares with its plain one. Nothing of the copy is executed. Raises
    UsageError where a file or a text that must be there is not, or there is no such wording.
    """
    from evalkit.spec.imported import write_pack

    return write_pack(repo, wording)


def _find(name: str) -> Path:
    if is_file(name):
        path = Path(name).expanduser()
        if not path.is_file():
            raise UsageError(f"There is no prompt pack {name}: no such file.")
        return path
    path = _FOLDER / f"{name}.toml"
    if name not in pack_names():
        raise UsageError(
            f"There is no prompt pack {name!r}.{nearest(name, pack_names())} A pack of your own is named by its path, "
            "which ends in .toml."
        )
    return path


def _standard(environment: str) -> Path:
    """The file of an environment's standard texts. Raises UsageError where the environment names none that is there."""
    place = ENVIRONMENTS[environment].prompts
    if not place:
        return _FOLDER / f"{STANDARD}.toml"
    package, _, name = place.partition(":")
    try:
        found = files(package).joinpath(name)
    except ModuleNotFoundError as flaw:
        raise UsageError(f"{environment}: prompts: {place!r}: {flaw}.") from flaw
    if not name or not isinstance(found, Path):
        raise UsageError(f"{environment}: prompts: expected 'package:file' of an unpacked package, got {place!r}.")
    return found


def _texts(path: Path, environment: str) -> dict[str, dict[str, str]]:
    """The texts of a file by variant (empty: plain) and key. A user's file is checked whole."""
    found: dict[str, dict[str, str]] = {"": {}}
    for name, table in parse_toml(path).items():
        if name not in ENVIRONMENTS:
            raise UsageError(f"{path}: unknown environment {name!r}.{nearest(name, ENVIRONMENTS)}")
        if not isinstance(table, Mapping):
            raise UsageError(f"{path}: {name}: expected a table of texts, got {table!r}.")
        if name != environment and path.parent == _FOLDER:
            continue  # evalkit's own packs are checked by its tests
        plain = {key: value for key, value in table.items() if key not in VARIANTS}
        by_variant = {"": _checked(path, name, plain)}
        for variant in VARIANTS:
            if variant in table:
                by_variant[variant] = _checked(path, name, {variant: table[variant]}, variant)
        if name == environment:
            found = by_variant
    return found


def _checked(path: Path, environment: str, table: Mapping[str, Any], variant: str = "") -> dict[str, str]:
    """The table's texts by dotted key, without the variant's own prefix."""
    known = ENVIRONMENTS[environment].texts
    prefix = f"{variant}." if variant else ""
    texts: dict[str, str] = {}
    for dotted, value in _leaves(table, ""):
        key = dotted.removeprefix(prefix)
        place = f"{path}: {environment}.{dotted}"
        if key not in known and key.rpartition(".")[0] not in ENVIRONMENTS[environment].open_texts:
            raise UsageError(f"{place}: there is no such text.{nearest(key, known)}")
        if not isinstance(value, str):
            raise UsageError(f"{place}: expected a text, got {value!r}.")
        choices = ENVIRONMENTS[environment].text_choices.get(key)
        if choices and value not in choices:
            raise UsageError(f"{place}: there is no {value!r}.{nearest(value, choices)}")
        texts[key] = value
    return texts


def _leaves(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
