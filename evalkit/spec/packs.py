"""Prompt packs: TOML files that hold every text an agent reads, by environment.

`standard` is complete: ours for evalkit's environments, for another's the file that its record names. Another pack
replaces what it names; `[scheduling.reasoning]` within a pack replaces what it names for agents tagged `reasoning`.
Packs are found by name among ours, then among those that packages bring (group `prompts`).

    [scheduling]
    system = "..."
    [scheduling.tools.submit_assignment]
    description = "..."
"""

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from evalkit.envs.environment import Environment, Pack
from evalkit.envs.lines import canonical
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError, nearest
from evalkit.plugins import PluginTable
from evalkit.spec.identity import REASONING
from evalkit.spec.reading import parse_text, read_text

STANDARD = "standard"
VARIANTS = (REASONING,)

_FOLDER = Path(__file__).resolve().parent.parent / "prompts"


def packs() -> PluginTable[Path]:
    """The packs that can be named without a path: their files."""
    return PluginTable("prompts", {path.stem: path for path in sorted(_FOLDER.glob("*.toml"))}, Path)


def pack_names() -> list[str]:
    """Their names."""
    return sorted(packs())


def read_pack(name_or_path: str, environment: str, variant: str = "") -> Pack:
    """The texts an agent reads in one environment: the pack's own, and `standard`'s where it has none.

    A name stands for one of evalkit's packs, or one of a package's; what ends in `.toml` is a path. `variant` is empty
    or one of `VARIANTS`; a pack's variant goes before its plain texts, and any text of the pack before `standard`'s.
    Where a pack changes nothing, it is `standard`, by name too: tables say what was read.
    Raises UsageError naming file and key for whatever is not a pack.
    """
    if environment not in ENVIRONMENTS:
        raise UsageError(f"There is no environment {environment!r}.{nearest(environment, ENVIRONMENTS)}")
    if variant and variant not in VARIANTS:
        raise UsageError(f"A prompt pack has no variant {variant!r}.{nearest(variant, VARIANTS)}")
    name, path = _find(name_or_path, environment)
    env: Environment[Any, Any] = ENVIRONMENTS[environment]
    standard = _standard_texts(env, variant)
    texts = standard
    if name != STANDARD:
        by_variant = _texts(path, environment)
        texts = {**texts, **by_variant[""], **by_variant.get(variant, {})}
    _check_whole(env, texts, path)
    name = STANDARD if texts == standard else name
    return Pack(name=name, digest=texts_digest(environment, texts), texts=texts)


def standard_pack(env: Environment[Any, Any], variant: str = "") -> Pack:
    """An environment's standard texts, whether or not it is in the table. Raises UsageError if they are none."""
    texts = _standard_texts(env, variant)
    _check_whole(env, texts, _standard(env))
    return Pack(name=STANDARD, digest=texts_digest(env.name, texts), texts=texts)


def _check_whole(env: Environment[Any, Any], texts: Mapping[str, str], path: Path) -> None:
    missing = sorted(env.texts.all.keys() - env.texts.later.keys() - texts.keys())
    if missing:
        raise UsageError(f"{path}: {env.name} lacks {', '.join(missing)}.")


def texts_digest(environment: str, texts: Mapping[str, str]) -> str:
    """Hex digest of resolved texts: a pack's identity in one environment."""
    return hashlib.sha256(canonical([environment, texts])).hexdigest()[:32]


def is_file(name_or_path: str) -> bool:
    """Whether it names a user's own file, not one of evalkit's packs."""
    return name_or_path.endswith(".toml")


def keys_of(name_or_path: str, environment: str) -> Mapping[str, frozenset[str]]:
    """The texts that the pack itself names, by variant (empty: plain); all others are `standard`'s. Raises as
    `read_pack`."""
    name, path = _find(name_or_path, environment)
    env: Environment[Any, Any] = ENVIRONMENTS[environment]
    by_variant = _variants(path, env, _own_table(env)) if name == STANDARD else _texts(path, environment)
    return {variant: frozenset(texts) for variant, texts in by_variant.items()}


def _find(name: str, environment: str) -> tuple[str, Path]:
    """(a pack's name, its file)."""
    if is_file(name):
        path = Path(name).expanduser()
        if not path.is_file():
            raise UsageError(f"There is no prompt pack {name}: no such file.")
        return path.stem, path
    if name == STANDARD:
        return name, _standard(ENVIRONMENTS[environment])
    available = packs()
    if name not in available:
        raise UsageError(
            f"There is no prompt pack {name!r}.{nearest(name, available)} Name your own pack by its path, "
            "which ends in .toml."
        )
    return name, available[name]


def _standard(env: Environment[Any, Any]) -> Path:
    """The file of an environment's standard texts. Raises UsageError if the environment names none that is there."""
    if not env.texts.standard:
        return _FOLDER / f"{STANDARD}.toml"
    package, _, name = env.texts.standard.partition(":")
    try:
        file = files(package).joinpath(name)
    except ModuleNotFoundError as flaw:
        raise UsageError(f"{env.name}: texts.standard: {env.texts.standard!r}: {flaw}.") from flaw
    if not name or not isinstance(file, Path):
        raise UsageError(
            f"{env.name}: texts.standard: expected 'package:file' of an unpacked package, got {env.texts.standard!r}."
        )
    return file


def _standard_texts(env: Environment[Any, Any], variant: str) -> dict[str, str]:
    by_variant = _variants(_standard(env), env, _own_table(env))
    return {**by_variant[""], **by_variant.get(variant, {})}


def _own_table(env: Environment[Any, Any]) -> Mapping[str, Any]:
    """An environment's table of its standard texts; empty if the file has none."""
    path, name = _standard(env), env.name.rpartition(":")[2]  # a package's name, where one is before it, aside
    return _table(path, name, _tables(path).get(name, {}))


def _tables(path: Path) -> Mapping[str, Any]:
    """A pack's values by environment. Raises UsageError."""
    return _parsed(read_text(path), str(path))


@lru_cache(maxsize=8)
def _parsed(text: str, where: str) -> Mapping[str, Any]:
    """Each agent asks for each environment's texts: parsing the standard ones was a third of a sweep's start."""
    return parse_text(text, where)


def _table(path: Path, name: str, table: object) -> Mapping[str, Any]:
    if not isinstance(table, Mapping):
        raise UsageError(f"{path}: {name}: expected a table of texts, got {table!r}.")
    return table


def _texts(path: Path, environment: str) -> dict[str, dict[str, str]]:
    """The texts of a file by variant (empty: plain) and key. A file that is not evalkit's is checked whole."""
    texts: dict[str, dict[str, str]] = {"": {}}
    for name, table in _tables(path).items():
        if name not in ENVIRONMENTS:
            raise UsageError(f"{path}: unknown environment {name!r}.{nearest(name, ENVIRONMENTS)}")
        if name != environment and path.parent == _FOLDER:
            continue  # evalkit's own packs are checked by its tests
        by_variant = _variants(path, ENVIRONMENTS[name], _table(path, name, table))
        if name == environment:
            texts = by_variant
    return texts


def _variants(path: Path, env: Environment[Any, Any], table: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """An environment's texts by variant (empty: plain) and key, checked."""
    plain = {key: value for key, value in table.items() if key not in VARIANTS}
    by_variant = {"": _checked(path, env, plain)}
    for variant in VARIANTS:
        if variant in table:
            by_variant[variant] = _checked(path, env, {variant: table[variant]}, variant)
    return by_variant


def _checked(path: Path, env: Environment[Any, Any], table: Mapping[str, Any], variant: str = "") -> dict[str, str]:
    """The table's texts by dotted key, without the variant's own prefix."""
    prefix = f"{variant}." if variant else ""
    texts: dict[str, str] = {}
    for dotted, value in _leaves(table, ""):
        key = dotted.removeprefix(prefix)
        location = f"{path}: {env.name}.{dotted}"
        if key not in env.texts.all and key.rpartition(".")[0] not in env.texts.open:
            raise UsageError(f"{location}: unknown text.{nearest(key, env.texts.all)}")
        if not isinstance(value, str):
            raise UsageError(f"{location}: expected a string, got {value!r}.")
        choices = env.texts.choices.get(key)
        if choices and value not in choices:
            raise UsageError(f"{location}: there is no {value!r}.{nearest(value, choices)}")
        texts[key] = value
    return texts


def _leaves(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
