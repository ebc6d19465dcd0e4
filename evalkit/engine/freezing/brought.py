"""What other packages contribute to a run: frozen in its manifest with the version, and required when the run is
resumed.

A version other than the one with which the run started is only noted: replay decides whether the same replies still
lead to the same states.
"""

from collections.abc import Iterable, Iterator, Sequence

from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.frozen.manifest import Manifest, ManifestPlugin
from evalkit.plugins import GROUPS, Plugin, find, install_line, is_plain
from evalkit.policy.table import policy_plugin
from evalkit.spec.agent_code import agent_plugin
from evalkit.spec.model import Provider, Sweep
from evalkit.spec.packs import is_file, packs
from evalkit.spec.suites import source_of
from evalkit.wire.table import DIALECTS


def brought(sweep: Sweep, environments: Sequence[str], providers: Sequence[Provider]) -> tuple[ManifestPlugin, ...]:
    """What packages contribute to a sweep with resolved names, by entry. Raises UsageError if a package has no name or
    version that a manifest may hold."""
    plugins = [plugin for plugin in dict.fromkeys(_used(sweep, environments, providers)) if plugin]
    for plugin in plugins:
        if not (is_plain(plugin.package) and is_plain(plugin.version)):
            raise UsageError(
                f"{plugin.source}: the package's name and version must be letters, digits and any of .+!_- only. "
                "Correct them where the package is made, and install it again."
            )
    lines = {ManifestPlugin(entry=plugin.entry, package=plugin.package, version=plugin.version) for plugin in plugins}
    return tuple(sorted(lines, key=lambda line: line.entry))


def _used(sweep: Sweep, environments: Sequence[str], providers: Sequence[Provider]) -> Iterator[Plugin | None]:
    simulated = {provider.name for provider in providers if provider.simulate is not None}
    yield from map(ENVIRONMENTS.plugin, environments)
    yield from (DIALECTS.plugin(provider.dialect) for provider in providers)
    for use in sweep.suites:
        yield source_of(use.name)
    for agent in sweep.agents:
        # A policy that evalkit serves as a model decides as much as one that plays here.
        served = agent.model if agent.provider in simulated else ""
        yield from (policy_plugin(agent.policy or served, environment) for environment in environments)
        if agent.code is not None:
            yield agent_plugin(agent.agent)
        if not is_file(agent.prompts):
            yield packs().plugin(agent.prompts)


def require(run: Manifest) -> None:
    """Raises UsageError if something that a package brought to the run is not installed."""
    for plugin in _latest(run):
        if plugin.group in GROUPS and find(plugin.group, plugin.name) is None:
            raise UsageError(
                f"The run {run.name!r} uses {plugin.entry}, which came from {plugin.package} {plugin.version} and "
                f"is not installed. Nothing was changed. To continue: {install_line(plugin.package, plugin.version)}"
            )


def joined(old: Manifest, new: Manifest) -> tuple[ManifestPlugin, ...]:
    """What packages contribute to two manifests together; different versions are both listed."""
    return tuple(dict.fromkeys((*old.plugins, *new.plugins)))


def changed(old: Manifest, new: Manifest) -> list[str]:
    """What comes in another version, or from another package, than the run had it last; in lines."""
    was = {plugin.entry: plugin for plugin in _latest(old)}
    return [
        f"{plugin.entry} was {was[plugin.entry].package} {was[plugin.entry].version} when the run was last played, "
        f"and is now {plugin.package} {plugin.version}: episodes resume where replay reproduces the same states. "
        "`evalkit verify` says which do not."
        for plugin in new.plugins
        if plugin.entry in was and was[plugin.entry] != plugin
    ]


def recoded(old: Manifest, new: Manifest) -> list[str]:
    """Agents whose code reads otherwise than when the run was last played, though it has the same version; in lines."""
    both = ((name, old.agents[name].code, agent.code) for name, agent in new.agents.items() if name in old.agents)
    return [
        f"The source of agent {name!r} ({now.agent}) is not what it was when the run was last played, and its version "
        f"is still {now.version}: episodes resume where the code repeats what it did, and are deferred as `diverged` "
        "elsewhere. Raise `version` if it asks or acts otherwise."
        for name, was, now in both
        if was is not None and now is not None and was.source and now.source and was.source != now.source
    ]


def _latest(run: Manifest) -> Iterable[ManifestPlugin]:
    return {plugin.entry: plugin for plugin in run.plugins}.values()
