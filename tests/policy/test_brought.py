"""Policies that packages bring: for one environment or for any, and never in place of evalkit's own."""

from pathlib import Path

import pytest

from evalkit.dialogue import Request, Sampling, Tool
from evalkit.errors import UsageError
from evalkit.policy import table
from evalkit.policy.table import check_policy, find_policy, is_policy, is_served, player, policy_plugin, served
from evalkit.seeds import Stream
from tests.plugins.conftest import site
from tests.support.plugin_packages import put, put_environment

__all__ = ["site"]

MODULE = """
from evalkit.dialogue import Reply
from evalkit.policy.conversation import Policy
def saying(text):
    return Policy(help=text, reply=lambda request, draws: Reply(text=text))
ANY, ONE, RANDOM, KNUTH = map(saying, ("any", "one", "random", "knuth"))
SEEN = Policy(
    help="seen", reply=lambda request, draws: Reply(text="seen"),
    recognises=lambda request: any(tool.name == "hint" for tool in request.tools), acts_with="hint",
)
"""
ENTRIES = {
    "mine": "brought:ANY",
    "mine@haggling": "brought:ONE",
    "random@haggling": "brought:SEEN",
    "random@pricing": "brought:RANDOM",
    "knuth": "brought:KNUTH",
    "knuth@haggling": "brought:KNUTH",
    "quick@pricing": "brought:ONE",
}
HINT = Tool(name="hint", description="", parameters={"type": "object", "properties": {}})
REQUEST = Request(messages=(), tools=(HINT,), sampling=Sampling(), seed=1)


@pytest.fixture(autouse=True)
def packages(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_environment(site, "games", "haggling")
    put(site, "habits", "1", {"policies": ENTRIES}, {"brought": MODULE})
    monkeypatch.setattr(table.BROUGHT, "_read", {})


def helped(name: str, environment: str) -> str:
    policy = find_policy(name, environment)
    return "" if policy is None else policy.help


def test_what_is_brought_for_an_environment_goes_before_what_plays_any() -> None:
    assert helped("mine", "haggling") == "one"
    assert helped("mine", "scheduling") == "any"
    assert helped("quick", "pricing") == "one"
    assert find_policy("quick", "haggling") is None
    assert is_policy("quick")
    assert is_policy("habits:quick")
    assert helped("habits:quick", "pricing") == "one"


def test_a_policy_of_ours_plays_their_environment_as_they_say_and_ours_as_we_do() -> None:
    assert helped("random", "haggling") == "seen"
    assert helped("random", "pricing") not in ("random", "")
    assert helped("knuth", "haggling") == "knuth"
    assert find_policy("knuth", "pricing") is None
    assert helped("knuth", "scheduling") != "knuth"


def test_the_entry_that_plays_is_known() -> None:
    def entry(name: str, environment: str) -> str:
        found = policy_plugin(name, environment)
        return "" if found is None else found.name

    assert entry("mine", "haggling") == "mine@haggling"
    assert entry("mine", "pricing") == "mine"
    assert entry("random", "haggling") == "random@haggling"
    assert [entry(name, "pricing") for name in ("random", "knuth", "oracle", "")] == ["", "", "", ""]


def test_a_player_of_an_environment_needs_no_mark_and_a_model_does() -> None:
    assert player("mine", "haggling")(REQUEST, Stream(1)).text == "one"
    assert player("random", "haggling")(REQUEST, Stream(1)).text == "seen"
    assert served("random")(REQUEST, Stream(1)).text == "seen"
    assert served("mine")(REQUEST, Stream(1)).text in ("one", "any")
    assert is_served("quick")


def test_what_there_is_not_has_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"no policy 'quik'. Did you mean 'quick'"):
        check_policy("quik")


def test_our_own_play_our_own_without_a_look_at_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(group: str) -> object:
        raise AssertionError("entry points were read")

    monkeypatch.setattr(table, "installed", refuse)
    monkeypatch.setattr("evalkit.plugins.installed", refuse)
    for name, environment in (
        ("knuth", "scheduling"),
        ("random", "pricing"),
        ("random", "errand"),
        ("oracle", "pricing"),
    ):
        assert find_policy(name, environment)
    assert find_policy("knuth", "pricing") is None
    assert is_policy("knuth")
    assert is_policy("scripted")
    assert "random" in table.served_names()
