"""What other packages bring to a run: frozen in its manifest with its version, asked for when the run goes on.

Another version than the run was begun with is a mark, and no more: replay decides whether the same replies still lead
to the same states.
"""

from collections.abc import Iterable, Iterator

from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.plugins import GROUPS, Plugin, find, install_line
from evalkit.spec.brought import source_of
from evalkit.spec.model import Provider, Sweep
from evalkit.spec.packs import is_file, packs
from evalkit.store.manifest import Manifest, ManifestPlugin
from evalkit.wire.table import DIALECTS


def brought(sweep: Sweep, environments: Iterable[str], providers: Iterable[Provider]) -> tuple[ManifestPlugin, ...]:
    """What packages bring to a sweep whose names have all been found, by entry."""
    found = dict.fromkeys(_used(sweep, environments, providers))
    lines = {ManifestPlugin(entry=one.entry, package=one.package, version=one.version) for one in found if one}
    return tuple(sorted(lines, key=lambda line: line.entry))


def _used(sweep: Sweep, environments: Iterable[str], providers: Iterable[Provider]) -> Iterator[Plugin | None]:
    yield from map(ENVIRONMENTS.plugin, environments)
    yield from (DIALECTS.plugin(provider.dialect) for provider in providers)
    for use in sweep.suites:
        yield source_of(use.name)
    for agent in sweep.agents:
        if not is_file(agent.prompts):
            yield packs().plugin(agent.prompts)


def require(run: Manifest) -> None:
    """Raises UsageError where something that a package brought to the run is not installed."""
    for one in _latest(run):
        if one.group in GROUPS and find(one.group, one.name) is None:
            raise UsageError(
                f"The run {run.name!r} uses {one.entry}, which {one.package} {one.version} brought to it and which is "
                f"not installed. Nothing was changed. To go on: {install_line(one.package, one.version)}"
            )


def joined(old: Manifest, new: Manifest) -> tuple[ManifestPlugin, ...]:
    """What packages bring to two manifests together; versions that differ are both there."""
    return tuple(dict.fromkeys((*old.plugins, *new.plugins)))


def changed(old: Manifest, new: Manifest) -> list[str]:
    """What comes in another version, or from another package, than the run had it last; in lines."""
    was = {one.entry: one for one in _latest(old)}
    return [
        f"{one.entry} was {was[one.entry].package} {was[one.entry].version} when the run was last played, and is now "
        f"{one.package} {one.version}: episodes go on where replay comes to the same states. `evalkit verify` says "
        "which do not."
        for one in new.plugins
        if one.entry in was and was[one.entry] != one
    ]


def _latest(run: Manifest) -> Iterable[ManifestPlugin]:
    return {one.entry: one for one in run.plugins}.values()
