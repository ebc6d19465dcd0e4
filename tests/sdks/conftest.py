"""The official SDKs, LiteLLM and the readers of exports are extras: `make sdks` installs them and runs these tests.

What their packages warn of while they are imported or called is theirs, so it is no error here; ours still is.
"""

import pytest

_THEIRS = (
    r"ignore:::(openai|anthropic|google|litellm|pydantic|httpx|httpx2|websockets"
    r"|inspect_ai|datasets|pyarrow|fsspec|anyio|ijson|botocore|azure|msal)(\.|$)"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "sdks":
            item.add_marker(pytest.mark.filterwarnings(_THEIRS))
