import argparse
import re

import pytest

from evalkit.errors import UsageError
from evalkit.policy.table import served_names
from evalkit.seeds import Stream
from evalkit.serve.latency import parse_latency
from evalkit.serve.options import OPTIONS, SimulatorOptions, add_arguments, as_flags, given_flags, options_from

EVERYTHING = {
    "models": ["knuth", "noisy"],
    "latency": "uniform:10ms:50ms",
    "rpm": 600,
    "tpm": 1_000_000,
    "itpm": 500_000,
    "otpm": 100_000,
    "in_flight": 32,
    "shared_limits": True,
    "slots": 8,
    "cache": "5m",
    "drip": "1s",
    "retry_after_form": "date",
    "burst": "5s",
    "seed": 2**60 + 1,
    "fault_429": 0.1,
    "fault_stall": 0.001,
    "retry_after": "none",
    "key": "sk-x",
    "context_tokens": 128_000,
    "price": "2.5:10",
    "prices": {"knuth": "0.1:0.4:0.01:0.2", "noisy": "1:1"},
    "bill": "bill.jsonl",
    "host": "0.0.0.0",
    "port": 8080,
}


def test_nothing_given_means_the_defaults() -> None:
    assert options_from({}) == SimulatorOptions()


def test_flags_and_a_table_say_the_same() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    flags = given_flags(parser.parse_args(as_flags(EVERYTHING)))
    assert options_from(flags) == options_from(EVERYTHING)
    read = options_from(EVERYTHING)
    assert (read.seed, read.burst_s, read.retry_after_s) == (2**60 + 1, 5.0, None)
    assert (read.in_flight, read.slots, read.shared_limits, read.cache_s, read.drip_s) == (32, 8, True, 300.0, 1.0)
    assert read.faults == {"429": 0.1, "stall": 0.001}
    assert (read.price_of("knuth").input, read.price_of("random").output) == (100_000, 10_000_000)


def test_every_option_has_a_flag_that_help_explains() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    shown = parser.format_help()
    assert all(f"--{key.replace('_', '-')} " in shown for key in OPTIONS)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"latencey": "5ms"}, "unknown key 'latencey'. Did you mean 'latency'?"),
        ({"fault_420": 0.1}, "unknown key 'fault_420'. Did you mean 'fault_429'?"),
        ({"latency": "fast"}, "latency: 'fast' is not a span of time"),
        ({"latency": 50}, "latency: 50 is not a string"),
        ({"latency": "normal:5ms:2ms"}, "is not a latency: write 50ms"),
        ({"latency": "uniform:50ms:10ms"}, "lower end 50ms is above"),
        ({"latency": "lognormal:50ms:wide"}, "'wide' is not a spread"),
        ({"rpm": 0}, "rpm: 0 is not positive"),
        ({"rpm": True}, "rpm: True is not a number"),
        ({"tpm": "many"}, "tpm: 'many' is not a number"),
        ({"seed": 1.5}, "seed: 1.5 is not a whole number"),
        ({"port": 70000}, "port: 70000 is not a whole number from 0 to 65535"),
        ({"fault_500": 1.5}, "fault_500: 1.5 is not a probability"),
        ({"fault_500": 0.6, "fault_reset": 0.6}, "together are 1.2, above 1"),
        ({"models": ["knuht"]}, "no policy 'knuht' can be served as a model. Did you mean 'knuth'?"),
        ({"models": "oracle"}, "no policy 'oracle' can be served"),
        ({"price": "4"}, "price: '4' is not a price"),
        ({"price": "-1:4"}, "price: '-1' is not a price"),
        ({"prices": {"nobody": "1:4"}}, "no policy 'nobody' can be served"),
        ({"context_tokens": 0}, "context_tokens: 0 is not a whole number"),
        ({"price": "1:4:x"}, "price: 'x' is not a price"),
        ({"price": "1:2:3:4:5"}, "price: '1:2:3:4:5' is not a price"),
        ({"in_flight": 0}, "in_flight: 0 is not a whole number from 1"),
        ({"slots": 0}, "slots: 0 is not a whole number from 1"),
        ({"shared_limits": "maybe"}, "shared_limits: 'maybe' is neither true nor false"),
        ({"retry_after_form": "words"}, "retry_after_form: 'words' is neither `seconds` nor `date`"),
        ({"cache": "0s"}, "cache: '0s' is not positive"),
        ({"burst": "0s"}, "burst: '0s' is not positive"),
        ({"heeds": "efort"}, "heeds: 'efort' is no setting that replies can show. Did you mean 'effort'?"),
    ],
)
def test_a_wrong_option_is_named_with_its_place_and_remedy(values: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        options_from(values, "providers/simulated.toml: simulate")
    assert str(caught.value).startswith("providers/simulated.toml: simulate: ")


def test_policies_that_need_more_than_the_conversation_are_not_served() -> None:
    assert {"random", "knuth", "noisy"} <= set(served_names())
    assert not {"oracle", "scripted"} & set(served_names())


@pytest.mark.parametrize(
    ("text", "mean", "spread"),
    [
        ("50ms", 0.05, 0.0),
        ("fixed:50ms", 0.05, 0.0),
        ("uniform:10ms:50ms", 0.03, 0.0116),
        ("exponential:200ms", 0.2, 0.2),
        # Mean and standard deviation of a lognormal of median 0.2 and sigma 0.5.
        ("lognormal:200ms:0.5", 0.2266, 0.1208),
    ],
)
def test_latencies_have_the_distribution_they_name(text: str, mean: float, spread: float) -> None:
    latency = parse_latency(text)
    drawn = [latency.draw(Stream(1, i)) for i in range(2000)]
    assert min(drawn) > 0
    assert abs(sum(drawn) / 2000 - mean) <= 5 * spread / 2000**0.5 + 1e-12
