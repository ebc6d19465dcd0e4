"""One Ray cluster for all tests that leave it as it is; it takes half a minute to start."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec

import pytest

from tests.ray.nodes import cluster_of


@pytest.fixture(scope="session")
def ray_is_here() -> None:
    """Skip where Ray is not installed."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed here: `make ray` has it in an environment of its own")


@pytest.fixture(scope="session")
def cluster(ray_is_here: None) -> Iterator[Mapping[str, str]]:
    """A cluster of this machine; gives the variables by which processes find it."""
    with cluster_of(16) as shared:
        yield shared.known


@pytest.fixture
def on_ray(cluster: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that the test starts find the cluster."""
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
