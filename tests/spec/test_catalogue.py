import re
from pathlib import Path

import pytest

from evalkit.errors import UsageError
from evalkit.money import Price
from evalkit.spec.catalogue import (
    ModelFile,
    ProviderFile,
    find_model,
    provider_names,
    read_provider,
)
from evalkit.spec.model import Limits, ServerSpec
from evalkit.wire.dialect import REFUSABLE
from evalkit.wire.table import DIALECTS

GOOD = """
dialect = "openai_chat"
url = "https://example.invalid/v1/"
key_env = "SOME_KEY"
limits = { requests_per_minute = 60 }
[models.small]
context_tokens = 1000
refuses = ["temperature"]
usd_per_mtok = { input = "0.25", output = "2", cached_read = "0.025", source = "a page, 2026-01-01" }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "providers").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "providers"


def test_a_provider_is_read_with_whole_prices(folder: Path) -> None:
    (folder / "mine.toml").write_text(GOOD)
    provider = read_provider("mine")
    model = find_model(provider, "small")
    assert provider.servers == (ServerSpec(url="https://example.invalid/v1"),)
    assert model.price == Price(input=250_000, output=2_000_000, cached_read=25_000, cached_write=250_000)
    assert model.limits.requests_per_minute == 60
    assert model.price_source == "a page, 2026-01-01"


SEVERAL = """
dialect = "openai_chat"
url = ["http://a:8000/v1/", { url = "${B}/v1", in_flight = 64, requests_per_minute = 600 }]
"""


def test_a_provider_may_have_several_servers_with_limits_of_their_own(folder: Path) -> None:
    (folder / "gpus.toml").write_text(SEVERAL)
    provider = read_provider("gpus")
    assert provider.servers == (
        ServerSpec(url="http://a:8000/v1"),
        ServerSpec(url="${B}/v1", limits=Limits(requests_per_minute=600, in_flight=64)),
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("in_flight", "in_fligt"), "unknown key 'url[2].in_fligt'. Did you mean 'in_flight'"),
        (("in_flight = 64", "in_flight = 0"), "url[2].in_flight: must be positive"),
        (("${B}/v1", "http://a:8000/v1"), "the server 'http://a:8000/v1' is named twice"),
        (("${B}", "$B"), "write an environment variable as ${NAME}"),
        (('"http://a:8000/v1/"', '""'), "name at least one server"),
        (('"http://a:8000/v1/"', "8000"), "url[1]: expected a string or a table"),
        (("dialect", "simulate = {}\ndialect"), "set either `url`, or a table `simulate`"),
    ],
)
def test_a_wrong_list_of_servers_says_where(folder: Path, change: tuple[str, str], says: str) -> None:
    (folder / "gpus.toml").write_text(SEVERAL.replace(*change))
    with pytest.raises(UsageError) as said:
        read_provider("gpus")
    assert says in str(said.value)


def test_what_two_limits_allow_is_the_lower_of_each() -> None:
    one, other = Limits(requests_per_minute=60, in_flight=8), Limits(requests_per_minute=50)
    assert one.within(other) == Limits(requests_per_minute=50, in_flight=8)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('"openai_chat"', '"openai_chatt"'), "no dialect 'openai_chatt'. Did you mean 'openai_chat'"),
        (('input = "0.25"', 'input = "cheap"'), "models.small.usd_per_mtok: 'cheap' is not a price"),
        (('input = "0.25"', "input = 0.25"), "models.small.usd_per_mtok.input: expected a string, got a number"),
        (("requests_per_minute = 60", "requests_per_minute = 0"), "limits.requests_per_minute: must be positive"),
        (("requests_per_minute = 60", "requests_per_minute = nan"), "requests_per_minute: must be positive and finite"),
        (("requests_per_minute = 60", "requests_per_minute = inf"), "requests_per_minute: must be positive and finite"),
        (("context_tokens = 1000", "context_tokens = 0"), "models.small.context_tokens: must be positive"),
        (("key_env", "timeout_s = nan\nkey_env"), "timeout_s: must be positive and finite"),
        (("key_env", "timeout_s = -1\nkey_env"), "timeout_s: must be positive and finite"),
        ((", 2026-01-01", ""), "models.small.usd_per_mtok.source: name the day too"),
        *(
            (("key_env", f"{key}\nkey_env"), f"unknown key '{key.partition(' ')[0]}'")
            for key in ("any_model = true", 'usage = "estimate"', 'key_command = ["token"]', "first_byte_s = 5")
        ),
        (("key_env", "silence_s = inf\nkey_env"), "silence_s: must be positive and finite"),
        (("key_env", 'stream = "yes"\nkey_env'), "stream"),
        (('dialect = "openai_chat"', 'dialect = "gemini"\ncache_key = true'), "cache_key: the dialect 'gemini' has no"),
        (('["temperature"]', '["temprature"]'), "Did you mean 'temperature'"),
        (('url = "https://example.invalid/v1/"', ""), "set either `url`"),
        (
            ('url = "https://example.invalid/v1/"', 'url = "$HOST/v1"'),
            r"url: write an environment variable as \$\{NAME\}",
        ),
        (('url = "https://example.invalid/v1/"', 'url = "${HOST}$/v1"'), "url: write an environment variable"),
        (
            (
                'source = "a page, 2026-01-01"',
                'source = "a page, 2026-01-01", over = { tokens = 0, input = "1", output = "1" }',
            ),
            "over.tokens must",
        ),
        (
            (
                'source = "a page, 2026-01-01"',
                'source = "a page, 2026-01-01", over = { tokens = 9, input = "x", output = "1" }',
            ),
            "'x' is not a price",
        ),
    ],
)
def test_a_bad_provider_file_is_refused(folder: Path, change: tuple[str, str], says: str) -> None:
    assert change[0] in GOOD
    (folder / "mine.toml").write_text(GOOD.replace(*change))
    with pytest.raises(UsageError, match=says):
        read_provider("mine")


def test_a_price_may_rise_with_the_length_of_the_prompt(folder: Path) -> None:
    over = 'over = { tokens = 100_000, input = "1", output = "8", cached_read = "0.1" }'
    (folder / "mine.toml").write_text(
        GOOD.replace('source = "a page, 2026-01-01"', f'source = "a page, 2026-01-01", {over}')
    )
    assert find_model(read_provider("mine"), "small").price == Price(
        input=250_000,
        output=2_000_000,
        cached_read=25_000,
        cached_write=250_000,
        over=100_000,
        over_input=10**6,
        over_output=8 * 10**6,
        over_cached_read=10**5,
        over_cached_write=10**6,
    )


def test_unknown_providers_and_models_are_named_with_the_nearest(folder: Path) -> None:
    (folder / "mine.toml").write_text(GOOD)
    with pytest.raises(UsageError, match=r"no provider 'mien'.*Did you mean 'mine'"):
        read_provider("mien")
    with pytest.raises(UsageError, match=r"lists no model 'smal'. Did you mean 'small'"):
        find_model(read_provider("mine"), "smal")


def test_every_shipped_provider_can_be_read_and_holds_no_key() -> None:
    names = provider_names()
    assert {"simulated", "openai", "vllm"} <= set(names)
    for name in names:
        provider = read_provider(name)
        assert provider.key_env == provider.key_env.upper()
        assert "$" not in provider.key_env
        for model in provider.models:
            assert find_model(provider, model).price is not None, (name, model)


def test_the_page_about_providers_names_every_key_and_no_other() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "providers.md").read_text()
    section = text.partition("\n## Adding one\n")[2].partition("\n## ")[0]
    provider, _, model = section.partition("| key of a model |")
    for part, record in ((provider, ProviderFile), (model, ModelFile)):
        rows = [line.split("|")[1].strip() for line in part.splitlines() if line.startswith("| `")]
        assert sorted(rows) == sorted(f"`{name}`" for name in record.__struct_fields__)
    assert all(f"`{name}`" in section for name in (*DIALECTS, *REFUSABLE, *Limits.__struct_fields__))


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('credentials = "oracle"', "credentials: invalid enum value 'oracle'"),
    ],
)
def test_a_wrong_source_of_keys_is_refused(folder: Path, lines: str, says: str) -> None:
    (folder / "mine.toml").write_text(f"{lines}\n{GOOD}")
    with pytest.raises(UsageError, match=re.escape(says)):
        read_provider("mine")


def test_a_file_says_where_keys_come_from(folder: Path) -> None:
    (folder / "mine.toml").write_text(f'credentials = "aws"\n{GOOD}')
    assert read_provider("mine").key_words.endswith(" or the credentials that aws's own SDK finds")


def test_a_table_may_hold_for_all_names_that_contain_something() -> None:
    bedrock = read_provider("bedrock")
    for profile in ("global.", "us.", "eu.", ""):
        refused = find_model(bedrock, f"{profile}anthropic.claude-opus-5-5").quirks.refuses
        assert refused == {"temperature", "top_p", "tool_choice"}
    assert find_model(bedrock, "anthropic.claude-opus-4-6").quirks.refuses == {"top_p"}
    assert find_model(bedrock, "anthropic.claude-opus-4-8").quirks.refuses == {"temperature", "top_p"}
