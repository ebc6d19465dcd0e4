"""Each integration's library is an extra: `python -m tests.integrations` installs them one by one and runs these tests.

What their packages warn of while they are imported or called is theirs, so it is no error here; ours still is.
"""

import pytest

_THEIRS = r"ignore:::(stable_baselines3|torch|verifiers)(\.|$)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "integrations":
            item.add_marker(pytest.mark.filterwarnings(_THEIRS))
