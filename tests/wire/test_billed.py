import pytest

from evalkit.wire.http import BILLED, MEANING, counts_as_billed
from evalkit.wire.verdicts import _FAILURES
from tests.support.document_blocks import PROJECT


def test_what_the_table_says() -> None:
    billed = {"timeout", "reset", "408", "500", "502", "504", "524"}
    free = {"429", "503", "529", "4xx", "400", "401", "407", "422", "connect", "tls"}
    assert {name for name in billed | free if counts_as_billed(name, {})} == billed
    assert BILLED.keys() == MEANING.keys()
    assert BILLED.keys() >= _FAILURES.keys()
    assert [counts_as_billed(status, {}) for status in ("599", "999", "100")] == [True, True, False]
    with pytest.raises(KeyError):
        counts_as_billed("weather", {})


def test_a_providers_word_on_a_class_goes_before_the_table_and_its_word_on_one_status_before_that() -> None:
    overrides = {"5xx": False, "502": True}
    assert not counts_as_billed("500", overrides)
    assert counts_as_billed("502", overrides)
    assert not counts_as_billed("429", overrides)


def test_the_page_holds_the_table() -> None:
    page = (PROJECT / "docs" / "providers.md").read_text()
    for outcome, billed in BILLED.items():
        assert f"| `{outcome}` | {'yes' if billed else 'no'} | {MEANING[outcome]} |" in page
