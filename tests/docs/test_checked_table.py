"""What docs/provider-details.md says was checked is what the tests check."""

from docs.tools.checked_table import NOT_YET, PAGE, SDK, SERVER, checked, page, rows
from evalkit.spec.catalogue import provider_names
from evalkit.wire.table import DIALECTS


def test_the_table_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m docs.tools.checked_table"


def test_every_provider_has_a_row_and_every_word_of_a_test_a_place() -> None:
    found = {row[0]: row for row in rows()}
    assert set(found) == set(provider_names())
    assert checked(SDK).keys() >= {"openai_chat", "openai_responses", "anthropic_messages", "gemini"}
    for name in (*checked(SDK), *checked(SERVER)):
        assert name in DIALECTS or name in found, name


def test_whoever_was_not_asked_is_said_to_be() -> None:
    """A provider counts as asked only if a test says that it asks it."""
    unasked = {row[0] for row in rows() if NOT_YET in row[3]}
    assert unasked == set(provider_names()) - set(checked(SERVER)) - {"simulated"}
    assert "openai" in unasked
