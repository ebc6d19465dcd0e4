import pytest

from evalkit.wire.http import BILLED, counts_as_billed
from evalkit.wire.verdicts import _FAILURES
from tests.support.document_blocks import PROJECT


def test_what_the_table_says() -> None:
    billed = {"timeout", "reset", "408", "500", "502", "504", "524"}
    free = {"429", "503", "529", "4xx", "400", "401", "407", "422", "connect", "tls"}
    assert {name for name in billed | free if counts_as_billed(name, {})} == billed
    assert BILLED.keys() >= _FAILURES.keys()
    assert [counts_as_billed(status, {}) for status in ("599", "999", "100")] == [True, True, False]
    with pytest.raises(KeyError):
        counts_as_billed("weather", {})


def test_the_page_holds_the_table() -> None:
    page = (PROJECT / "docs" / "provider-details.md").read_text()
    for outcome, billed in BILLED.items():
        assert f"| `{outcome}` | {'yes' if billed else 'no'} |" in page
