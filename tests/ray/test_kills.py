"""Actors on a Ray cluster, killed or stopped twenty times in a row, and the process that has started them."""

from pathlib import Path

import pytest

from tests.ray.test_ray import kill_a_worker, kill_the_driver
from tests.support.ray_runs import Harm, torn

pytestmark = [pytest.mark.soak, pytest.mark.ray, pytest.mark.usefixtures("on_ray")]


@pytest.mark.parametrize("harm", [kill_a_worker, kill_the_driver])
def test_twenty_times_lose_nothing_that_was_durable(tmp_path: Path, harm: Harm) -> None:
    torn(tmp_path, 20, harm, replicates=6, periods=20, latency="lognormal:120ms:0.4")
