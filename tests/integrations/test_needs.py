"""An integration whose library is not there says how to install it."""

import sys
from importlib import import_module

import pytest

from evalkit.errors import UsageError


@pytest.mark.parametrize(
    ("integration", "library"),
    [
        ("evalkit.integrations.gym", "gymnasium"),
        ("evalkit.integrations.verifiers", "verifiers"),
        ("evalkit_verifiers", "verifiers"),
        ("evalkit.integrations.inspect", "inspect_ai"),
        ("evalkit.integrations.mcp", "mcp"),
    ],
)
def test_without_its_library_a_door_says_the_install_line(
    integration: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith((integration, "evalkit.integrations.verifiers"))]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'evalkit-econ\[(\w+)\]'") as caught:
        import_module(integration)
    assert isinstance(caught.value, UsageError)
