"""Where a key and a URL come from, what is said where they are missing, and that no message holds a key."""

import re
import sys
from collections.abc import Callable
from dataclasses import replace

import keyring
import pytest
from keyring.errors import KeyringLocked, NoKeyringError

from evalkit.client import clouds
from evalkit.client.keys import check_key, key_place, lacking, read_key, servers_of, short_names
from evalkit.client.open import open_transport
from evalkit.errors import UsageError
from evalkit.spec.model import Limits, Provider, ServerSpec

KEY = "sk-planted-0123456789"
ACME = Provider(
    name="acme", dialect="openai_chat", servers=(ServerSpec(url="https://acme.example/v1"),), key_env="ACME_KEY"
)
ROOMS = Provider(
    name="rooms",
    dialect="openai_chat",
    servers=(ServerSpec(url="${ROOMS_URL}/openai/${ROOMS_PART}"),),
    key_env="ACME_KEY",
)


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACME_KEY", "ROOMS_URL", "ROOMS_PART"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(keyring, "get_password", lambda service, name: None)


def test_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(service: str, name: str) -> str:
        raise AssertionError("the keyring was asked although the variable is set")

    monkeypatch.setattr(keyring, "get_password", refuse)
    monkeypatch.setenv("ACME_KEY", f" {KEY}\n")
    assert (read_key(ACME), key_place(ACME)) == (KEY, "env")


def test_then_the_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {("evalkit", "ACME_KEY"): KEY}
    monkeypatch.setattr(keyring, "get_password", lambda service, name: entries.get((service, name)))
    assert (read_key(ACME), key_place(ACME)) == (KEY, "keyring")


def none_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_KEY", "  ")


def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)


def no_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(service: str, name: str) -> str:
        raise NoKeyringError(KEY)

    monkeypatch.setattr(keyring, "get_password", fail)


@pytest.mark.parametrize("spoil", [none_at_all, no_package, no_backend])
def test_a_key_that_is_nowhere_is_asked_for(
    spoil: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch)
    assert key_place(ACME) == "not set"
    with pytest.raises(
        UsageError, match=r"'acme' needs a key: set the environment variable ACME_KEY.*keyring set"
    ) as no:
        read_key(ACME)
    assert KEY not in repr(no.value)


@pytest.mark.parametrize(
    "flaw",
    [KeyringLocked(KEY), OSError(KEY), RuntimeError(KEY), ValueError(KEY), TypeError(KEY)],
    ids=lambda flaw: type(flaw).__name__,
)
def test_a_keyring_that_fails_is_named_without_its_words(flaw: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(service: str, name: str) -> str:
        raise flaw

    monkeypatch.setattr(keyring, "get_password", fail)
    with pytest.raises(UsageError, match=rf"could not be read for ACME_KEY \({type(flaw).__name__}\)") as said:
        key_place(ACME)
    assert KEY not in str(said.value)
    assert said.value.__suppress_context__


@pytest.mark.parametrize("key", [f"{KEY}\x00", f"{KEY}\u00e9"], ids=["unprintable", "not-ascii"])
def test_a_key_that_fits_no_header_is_refused_without_it(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "get_password", lambda service, name: key)
    with pytest.raises(UsageError, match=r"The key in ACME_KEY \(keyring\)") as said:
        read_key(ACME)
    assert KEY not in str(said.value)


def test_a_provider_without_a_key_needs_none() -> None:
    assert (
        read_key(Provider(name="mine", dialect="openai_chat", servers=(ServerSpec(url="http://127.0.0.1:1/v1"),))) == ""
    )


def test_a_url_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOMS_URL", "https://me.rooms.example/ ")
    monkeypatch.setenv("ROOMS_PART", "v1")
    assert [server.url for server in servers_of(ROOMS)] == ["https://me.rooms.example/openai/v1"]
    assert [server.url for server in servers_of(ACME)] == [ACME.servers[0].url]


@pytest.mark.parametrize(
    ("dialect", "url", "path"),
    [
        ("openai_chat", "https://x.example/v1/chat/completions", "/chat/completions"),
        ("openai_chat", "${ROOMS_URL}/Chat/Completions/?a=b", "/chat/completions"),
        ("openai_responses", "https://x.example/v1/responses", "/responses"),
        ("anthropic_messages", "https://x.example/v1/messages", "/messages"),
    ],
)
def test_a_url_that_names_the_endpoint_is_noticed_before_its_404(
    monkeypatch: pytest.MonkeyPatch, dialect: str, url: str, path: str
) -> None:
    monkeypatch.setenv("ROOMS_URL", "https://me.rooms.example")
    with pytest.raises(UsageError, match=f"its url ends in {path}, which evalkit appends"):
        servers_of(Provider(name="mine", dialect=dialect, servers=(ServerSpec(url=url),)))
    assert servers_of(
        Provider(name="mine", dialect=dialect, servers=(ServerSpec(url="https://x.example/chat/completions/v1"),))
    )


def test_a_variable_with_several_values_names_several_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(in_flight=8)
    gpus = Provider(
        name="gpus",
        dialect="openai_chat",
        servers=(ServerSpec(url="${GPUS}/v1", limits=limits), ServerSpec(url="http://b:8000/v1")),
    )
    monkeypatch.setenv("GPUS", "http://a:8000, http://a:8001/")
    assert servers_of(gpus) == (
        ServerSpec(url="http://a:8000/v1", limits=limits),
        ServerSpec(url="http://a:8001/v1", limits=limits),
        ServerSpec(url="http://b:8000/v1"),
    )
    assert short_names(servers_of(gpus)) == ["a:8000", "a:8001", "b:8000"]
    monkeypatch.setenv("GPUS", f"http://a:8000 {KEY}")
    with pytest.raises(UsageError, match="not an http or https URL") as said:
        servers_of(gpus)
    assert KEY not in str(said.value)
    monkeypatch.setenv("GPUS", "http://b:8000")
    with pytest.raises(UsageError, match=r"\$\{GPUS\}/v1, http://b:8000/v1, which names a server twice"):
        servers_of(gpus)


def test_servers_at_one_port_are_called_by_their_paths() -> None:
    servers = [ServerSpec(url=f"https://a.example/{name}/v1") for name in ("x", "y")]
    assert short_names(servers) == ["a.example/x/v1", "a.example/y/v1"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "set the environment variable ROOMS_URL"),
        ({"ROOMS_URL": "https://a.example", "ROOMS_PART": " "}, "set the environment variable ROOMS_PART"),
        ({"ROOMS_URL": KEY, "ROOMS_PART": "v1"}, "not an http or https URL"),
    ],
    ids=["none", "one", "a-key-instead"],
)
def test_a_url_that_cannot_be_filled_in_says_with_what(
    values: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=says) as said:
        servers_of(ROOMS)
    assert "'rooms' has the url ${ROOMS_URL}/openai/${ROOMS_PART}" in str(said.value)
    assert KEY not in str(said.value)


def test_no_key_goes_over_plain_http_to_where_a_variable_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOMS_URL", "http://rooms.example")
    monkeypatch.setenv("ROOMS_PART", "v1")
    monkeypatch.setenv("ACME_KEY", KEY)
    with pytest.raises(UsageError, match=r"sent to rooms\.example unencrypted"):
        open_transport(ROOMS)


CLOUD = Provider(
    name="acme", dialect="openai_chat", servers=(ServerSpec(url="https://acme.example/v1"),), credentials="aws"
)


def test_what_lacks_for_a_key_is_said_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(clouds.LIBRARIES, "aws", ("json", "no_such_package.part"))
    line = "`pip install 'evalkit-econ[aws]'`"
    named = replace(CLOUD, key_env="ACME_KEY")
    assert lacking(named) == f"ACME_KEY is not set, and aws's SDK is not installed ({line})"
    with pytest.raises(UsageError, match=r"'acme' needs a key: ACME_KEY is not set, and aws's SDK"):
        check_key(named)
    assert lacking(CLOUD) == f"aws's SDK is not installed ({line})"
    with pytest.raises(UsageError, match=f'credentials = "aws" needs its SDK: {re.escape(line)}'):
        open_transport(CLOUD)
    monkeypatch.setitem(clouds.LIBRARIES, "aws", ("json",))
    assert lacking(CLOUD) == ""
    check_key(CLOUD)
