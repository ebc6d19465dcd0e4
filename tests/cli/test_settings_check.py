"""`evalkit providers check --settings`: what the replies of a provider show of the settings that it was sent."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from evalkit.client import check
from evalkit.client.check import SettingFinding, look, most_of_settings
from evalkit.dialogue import Reply, ToolCall, Usage
from evalkit.spec.catalogue import find_model, read_provider
from tests.provider.heeding import SETTINGS
from tests.provider.serving import simulated
from tests.support.command_line import Call

MINE = """
dialect = "{dialect}"
[simulate]
models = "random"
heeds = "{heeds}"
cache = "1h"
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-01-01"
"""


def write(here: Path, heeds: str, *, dialect: str = "openai_chat", more: str = "") -> None:
    (here / "providers").mkdir(exist_ok=True)
    (here / "providers" / "mine.toml").write_text(MINE.format(dialect=dialect, heeds=heeds) + more)


def found(here: Path, monkeypatch: pytest.MonkeyPatch, **write_as: str) -> dict[str, SettingFinding]:
    monkeypatch.chdir(here)
    write(here, **write_as)
    provider = read_provider("mine")
    assert provider.simulate is not None
    with simulated(provider.simulate) as url:
        seen = asyncio.run(look(provider, find_model(provider, "random"), url=url))
    return {one.setting: one for one in seen}


@pytest.mark.exhaustive
@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
def test_each_setting_has_an_effect_where_it_is_heeded_and_none_where_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    good = found(tmp_path, monkeypatch, heeds=",".join(SETTINGS), dialect=dialect)
    bad = found(tmp_path, monkeypatch, heeds="", dialect=dialect)
    assert good.keys() == bad.keys() == {*SETTINGS, "cache"}
    for name in SETTINGS:
        sent = good[name].effect != "not sent"
        assert (good[name].effect, bad[name].effect) == (("yes", "no") if sent else ("not sent", "not sent")), name
    unsent = {name for name, one in good.items() if one.effect == "not sent"}
    assert unsent == (set() if dialect == "openai_chat" else {"parallel_calls"} if dialect == "gemini" else {"seed"})
    assert good["cache"].effect == "yes", good["cache"]


@pytest.mark.usefixtures("any_provider")
def test_the_price_is_told_before_and_kept(call: Call, here: Path) -> None:
    write(here, ",".join(SETTINGS))
    provider = replace(read_provider("mine"), simulate=None)
    model = find_model(provider, "random")
    bound = most_of_settings(provider, model)
    assert bound is not None
    said = call("providers", "check", "mine", "--settings")
    words = " ".join(said.out.split())
    assert said.code == 0
    assert "and up to 11 more about its settings" in words
    assert words.count("has an effect") == 5, said.out
    assert sum(len(one.asked) for one in check.settings().values()) == 11
    write(here, "")
    assert " ".join(call("providers", "check", "mine", "--settings").out.split()).count("IGNORED") == 4


def test_what_all_of_it_costs_stays_within_what_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = found(tmp_path, monkeypatch, heeds="effort")
    provider = read_provider("mine")
    bound = most_of_settings(provider, find_model(provider, "random"))
    assert bound is not None
    assert 0 < sum(one.cost or 0 for one in seen.values()) <= bound


def test_a_field_that_is_refused_is_told_in_the_providers_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = found(tmp_path, monkeypatch, heeds="", more='[models.random]\nrefuses = ["effort", "parallel_calls"]\n')
    assert [seen[name].effect for name in ("effort", "parallel_calls")] == ["not sent", "not sent"]


def call_of(name: str) -> ToolCall:
    return ToolCall(id=name, name=name, arguments="{}")


@pytest.mark.parametrize(
    ("name", "replies", "effect", "says"),
    [
        ("effort", [Usage(output=100), Usage(output=105)], "unclear", "100 tokens written at low, 105 at high"),
        ("effort", [Usage(output=100, reasoning=50), Usage(output=100, reasoning=50)], "no", "50 tokens of reasoning"),
        ("cache", [Usage(input=9), Usage(input=9, unknown=("cached_read",))], "unclear", "does not say"),
        ("cache", [Usage(input=9), Usage(input=9)], "no", "0 of 9 tokens"),
    ],
)
def test_what_usage_shows(name: str, replies: list[Usage], effect: str, says: str) -> None:
    judged, words = check.settings()[name].judge([Reply(usage=one) for one in replies])
    assert (judged, says in words) == (effect, True), words


@pytest.mark.parametrize(
    ("name", "replies", "effect", "says"),
    [
        ("seed", [Reply(text="a"), Reply(text="a"), Reply(text="a")], "unclear", "at one seed and at another"),
        ("seed", [Reply(text="a", fingerprint="f"), Reply(text="b", fingerprint="g"), Reply()], "no", "f, g"),
        ("parallel_calls", [Reply(calls=(call_of("x"),)), Reply(calls=(call_of("x"),))], "unclear", "1 calls"),
        ("tool_choice", [Reply(), Reply()], "no", "0 calls where one is required"),
        ("tool_choice", [Reply(calls=(call_of("x"),)), Reply(calls=(call_of("x"),))], "no", "1 where none may be"),
    ],
)
def test_what_replies_show(name: str, replies: list[Reply], effect: str, says: str) -> None:
    judged, words = check.settings()[name].judge(replies)
    assert (judged, says in words) == (effect, True), words
