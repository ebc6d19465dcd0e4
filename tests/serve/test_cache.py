"""What of a prompt is billed as cached, by each provider's rule."""

import pytest

from evalkit.dialogue import Usage
from evalkit.serve import cache
from evalkit.serve.options import options_from
from evalkit.serve.outcome import Arrival
from evalkit.serve.provider import Simulator, handle, open_simulator
from evalkit.wire.table import DIALECTS
from tests.serve.asking import spoken

LONG, OTHER = "Rules. " * 1000, "Other rules. " * 1000
AUTOMATIC = [name for name in DIALECTS if not name.startswith("anthropic")]
PRICE = "2:8:0.5:2.5"


def opened(**options: object) -> Simulator:
    return open_simulator(options_from({"cache": "5m", "price": PRICE, **options}), 0.0)


def used(simulator: Simulator, dialect: str, *texts: str, model: str = "knuth", now_s: float = 0.0) -> Usage:
    """The usage that a reply states; its price is on the bill."""
    asked = spoken(dialect, *texts, model=model)
    outcome = handle(simulator, asked, now_s)
    usage = DIALECTS[dialect].decode(outcome.body).usage
    line = outcome.line
    assert line is not None
    assert (line.tokens_cached, line.tokens_cache_write) == (usage.cached_read, usage.cached_write)
    assert line.cost == simulator.options.price.of(usage)
    assert usage.cached_read + usage.cached_write <= usage.input == line.tokens_in
    return usage


def test_a_price_says_what_cached_tokens_cost() -> None:
    price = options_from({"price": PRICE}).price
    assert (price.input, price.output, price.cached_read, price.cached_write) == (2e6, 8e6, 5e5, 25e5)
    price = options_from({"price": "2:8:0.5"}).price
    assert (price.cached_read, price.cached_write) == (5e5, 2e6)


@pytest.mark.parametrize("dialect", AUTOMATIC)
def test_a_beginning_seen_before_is_read_in_whole_blocks_from_1024_tokens_on(dialect: str) -> None:
    simulator = opened()
    assert used(simulator, dialect, LONG, "Begin.").cached_read == 0
    again = used(simulator, dialect, LONG, "Begin.", "Yes?", "Go on.")
    assert 7000 // 4 <= again.cached_read + 128 <= again.input
    assert again.cached_read % 128 == 0
    assert again.cached_write == 0
    assert used(simulator, dialect, OTHER, "Begin.").cached_read == 0
    assert used(simulator, dialect, LONG, "Begin.", model="random").cached_read == 0
    assert used(simulator, dialect, "Short.", "Begin.").cached_read == 0
    assert used(simulator, dialect, "Short.", "Begin.").cached_read == 0


def test_what_is_marked_is_written_then_read() -> None:
    simulator, dialect = opened(), "anthropic_messages"
    first = used(simulator, dialect, LONG, "Begin.")
    assert first.cached_read == 0
    assert first.cached_write > 7000 // 4
    second = used(simulator, dialect, LONG, "Begin.", "Yes?", "Go on.")
    assert second.cached_read == first.cached_write
    assert 0 < second.cached_write < 50
    third = used(simulator, dialect, LONG, "Begin.", "Yes?", "Go on.", "What?", "That.")
    assert third.cached_read == second.cached_read + second.cached_write
    # Tools and system text were marked too: another chat finds them.
    assert 7000 // 4 < used(simulator, dialect, LONG, "Something else.").cached_read < first.cached_write
    short = used(simulator, dialect, "Short.", "Begin.")
    assert (short.cached_read, short.cached_write) == (0, 0)


def test_without_marks_nothing_is_cached_in_anthropics_dialect() -> None:
    simulator = opened()
    asked = spoken("anthropic_messages", LONG, "Begin.")
    plain = asked.body.replace(b',"cache_control":{"type":"ephemeral"}', b"")
    assert plain != asked.body
    for _ in range(2):
        outcome = handle(simulator, Arrival(method="POST", path=asked.path, headers=asked.headers, body=plain), 0.0)
        assert outcome.line is not None
        assert (outcome.line.tokens_cached, outcome.line.tokens_cache_write) == (0, 0)


def test_a_mark_finds_what_was_written_at_most_twenty_blocks_before_it() -> None:
    beginnings = [cache.Beginning(bytes([i]), 2000 + i, marked=i == 30) for i in range(31)]
    for written, read in ((10, 0), (11, 2011), (30, 2030)):
        share = cache._marked(beginnings, lambda one, written=written: one.digest == bytes([written]))  # type: ignore[misc]
        assert (share.read, share.write) == (read, 2030 - read)


def test_a_beginning_is_forgotten_so_long_after_its_last_use() -> None:
    simulator, dialect = opened(cache="10s"), "openai_chat"
    used(simulator, dialect, LONG, "Begin.")
    assert used(simulator, dialect, LONG, "Begin.", now_s=9.0).cached_read > 0
    assert used(simulator, dialect, LONG, "Begin.", now_s=18.0).cached_read > 0
    assert used(simulator, dialect, LONG, "Begin.", now_s=29.0).cached_read == 0


def test_what_was_used_least_lately_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST_ENTRIES", 4)
    simulator, dialect = opened(), "openai_chat"
    for text in (LONG, OTHER, LONG, "More rules. " * 1000):
        used(simulator, dialect, text, "Begin.")
    assert simulator.cache is not None
    assert len(simulator.cache.used_s) == 4
    assert used(simulator, dialect, LONG, "Begin.").cached_read > 0
    assert used(simulator, dialect, OTHER, "Begin.").cached_read == 0


def test_nothing_is_cached_unless_asked() -> None:
    simulator = open_simulator(options_from({}), 0.0)
    assert [used(simulator, "openai_chat", LONG, "Begin.").cached_read for _ in range(2)] == [0, 0]


def test_what_was_read_from_the_cache_counts_for_no_input_limit_of_anthropics() -> None:
    for dialect, status in (("anthropic_messages", 200), ("openai_chat", 429)):
        simulator = opened(itpm=2500)
        used(simulator, dialect, LONG, "Begin.")
        assert handle(simulator, spoken(dialect, LONG, "Begin."), 0.0).status == status
