"""Whether the environments of a run are installed, for commands that replay its episodes."""

from collections.abc import Iterable

from evalkit.errors import RunError
from evalkit.results.episodes import Environments
from evalkit.store.manifest import Manifest


def require_environments(manifest: Manifest, names: Iterable[str], environments: Environments) -> None:
    """Raises RunError, with the command that installs its package, if one of these environments is not installed."""
    for name in dict.fromkeys(names):
        if name not in environments:
            raise RunError(
                f"The run {manifest.name!r} uses the environment {name!r}, which is not installed, or its manifest was "
                f"changed. Its episodes cannot be replayed. {manifest.install(name)}"
            )
