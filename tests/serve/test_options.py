import argparse
import re
from pathlib import Path

import pytest

from evalkit.errors import UsageError
from evalkit.policy.table import served_names
from evalkit.seeds import Stream
from evalkit.serve.launch import launched
from evalkit.serve.options import (
    OPTIONS,
    TABLE_ALONE,
    SimulatorOptions,
    add_arguments,
    given_flags,
    options_from,
    options_of,
    parse_latency,
)
from evalkit.spec.catalogue import read_provider

EVERYTHING = {
    "models": ["knuth", "noisy"],
    "latency": "uniform:10ms:50ms",
    "rpm": 600,
    "tpm": 1_000_000,
    "in_flight": 32,
    "burst": "5s",
    "seed": 2**60 + 1,
    "faults": {"429": 0.1, "stall": 0.001},
    "key": "sk-x",
    "price": "2.5:10",
    "bill": "bill.jsonl",
    "host": "0.0.0.0",
    "port": 8080,
}
FLAGS = [
    f"--{name.replace('_', '-')}={value}"
    for name, value in EVERYTHING.items()
    if isinstance(value, str | int) and name not in TABLE_ALONE
]
FLAGS += ["--models=knuth,noisy", "--faults=429=0.1,stall=0.001"]


def test_nothing_given_means_the_defaults() -> None:
    assert options_from({}) == SimulatorOptions()


def test_flags_and_a_table_say_the_same() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    flags = given_flags(parser.parse_args(FLAGS))
    assert EVERYTHING.keys() == OPTIONS.keys()
    assert flags.keys() == OPTIONS.keys() - TABLE_ALONE
    read = options_from(EVERYTHING)
    assert options_from({**EVERYTHING, **flags}) == read
    assert (read.seed, read.burst_s, read.in_flight) == (2**60 + 1, 5.0, 32)
    assert read.faults == {"429": 0.1, "stall": 0.001}
    assert (read.price.input, read.price.output) == (2_500_000, 10_000_000)


def test_every_option_has_a_flag_that_help_explains() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    shown = parser.format_help()
    assert all(f"--{key.replace('_', '-')} " in shown for key in OPTIONS.keys() - TABLE_ALONE)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"latencey": "5ms"}, "unknown key 'latencey'. Did you mean 'latency'?"),
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
        ({"models": ["knuht"]}, "no policy 'knuht' can be served as a model. Did you mean 'knuth'?"),
        ({"models": "oracle"}, "no policy 'oracle' can be served"),
        ({"price": "4"}, "price: '4' is not a price"),
        ({"price": "-1:4"}, "price: '-1' is not a price"),
        ({"in_flight": 0}, "in_flight: 0 is not a whole number from 1"),
        ({"faults": {"42": 0.1}}, "faults: there is no fault '42'. Did you mean '429'?"),
        ({"faults": "50=0.1"}, "faults: there is no fault '50'. Did you mean '500'?"),
        ({"faults": {"500": 1.5}}, "faults: 1.5 is not a probability"),
        ({"faults": "500"}, "faults: '' is not a probability"),
        ({"faults": 0.1}, "faults: 0.1 is not a table of FAULT = PROBABILITY"),
        ({"faults": {"500": 0.6, "reset": 0.6}}, "together are 1.2, above 1"),
        ({"price": "1:4:0.1"}, "price: '1:4:0.1' is not a price"),
        ({"burst": "0s"}, "burst: '0s' is not positive"),
    ],
)
def test_a_wrong_option_is_named_with_its_place_and_remedy(values: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        options_from(values, "providers/simulated.toml: simulate")
    assert str(caught.value).startswith("providers/simulated.toml: simulate: ")


def test_a_simulated_provider_of_another_dialect_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "providers").mkdir()
    price = '[usd_per_mtok]\ninput = "1"\noutput = "4"\nsource = "made up, 2026-11-21"\n'
    text = f'dialect = "gemini"\n[simulate]\nrpm = 60\n{price}'
    (tmp_path / "providers" / "mine.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    for refused in (options_of, launched):
        with pytest.raises(UsageError, match=r"providers/mine\.toml: dialect: .* openai_chat, and not gemini: write"):
            refused(read_provider("mine"))
    (tmp_path / "providers" / "mine.toml").write_text(text.replace("gemini", "openai_chat"))
    assert options_of(read_provider("mine")).rpm == 60


def test_policies_that_need_more_than_the_conversation_are_not_served() -> None:
    assert {"random", "knuth", "noisy"} <= set(served_names())
    assert not {"oracle", "scripted"} & set(served_names())


@pytest.mark.parametrize(
    ("text", "mean", "spread"),
    [
        ("50ms", 0.05, 0.0),
        ("uniform:10ms:50ms", 0.03, 0.0116),
        # Mean and standard deviation of a lognormal of median 0.2 and sigma 0.5.
        ("lognormal:200ms:0.5", 0.2266, 0.1208),
    ],
)
def test_latencies_have_the_distribution_they_name(text: str, mean: float, spread: float) -> None:
    latency = parse_latency(text)
    drawn = [latency.draw(Stream(1, i)) for i in range(2000)]
    assert min(drawn) > 0
    assert abs(sum(drawn) / 2000 - mean) <= 5 * spread / 2000**0.5 + 1e-12
