"""What a request could not say is refused when a sweep is read, and not when its turn comes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalkit.dialogue import Tool
from evalkit.engine.freezing import dialect_support
from evalkit.envs.environment import Environment
from evalkit.envs.scheduling.scheduling import SCHEDULING
from evalkit.errors import UsageError
from evalkit.shipped import folders
from tests.support.each_case import check_each
from tests.support.small_sweeps import resolved

SPEC = """
[[agents]]
name = "m"
provider = "{provider}"
model = "{model}"
{more}
[[suites]]
name = "{suite}"
"""
THINKING = 'extra = { thinking = { type = "enabled", budget_tokens = 2048 } }'
MODELS = {
    "openai": "gpt-4.1",
    "openai-responses": "gpt-4.1",
    "anthropic": "claude-haiku-4-5-20251001",
    "google": "gemini-2.5-flash",
}


def spec(provider: str, more: str = "", model: str = "", suite: str = "scheduling/basic") -> str:
    return SPEC.format(provider=provider, model=model or MODELS[provider], more=more, suite=suite)


def marks(tmp_path: Path, text: str) -> tuple[str, ...]:
    return resolved(tmp_path, text).manifest.agents["m"].marks


@pytest.mark.parametrize("suite", ["scheduling/basic", "procurement/basic", "pricing/basic", "costbench/basic"])
@pytest.mark.parametrize("provider", MODELS)
def test_every_environment_can_be_asked_in_every_dialect(tmp_path: Path, provider: str, suite: str) -> None:
    said = marks(tmp_path, spec(provider, suite=suite))
    switch = ("parallel_calls not sent: the API refuses it",)
    assert said == (switch if (provider, suite) == ("google", "costbench/basic") else ())


@pytest.mark.parametrize(
    ("provider", "model", "effort", "known"),
    [
        ("openai", "gpt-5", "hugh", "none, minimal, low, medium, high, xhigh, max"),
        ("anthropic", "claude-opus-5-5", "minimal", "low, medium, high, xhigh, max"),
    ],
)
def test_an_effort_that_the_api_does_not_know_is_refused(
    tmp_path: Path, provider: str, model: str, effort: str, known: str
) -> None:
    with pytest.raises(UsageError, match=f"effort must be one of {known}, not '{effort}'"):
        marks(tmp_path, spec(provider, f'effort = "{effort}"', model))
    assert not any("effort" in mark for mark in marks(tmp_path, spec(provider, 'effort = "max"', model)))


def test_any_effort_is_sent_where_its_values_are_not_known(tmp_path: Path) -> None:
    said = marks(tmp_path, spec("google", 'effort = "deepest"', "gemini-3.8-flash"))
    assert not any("effort" in mark for mark in said)


@pytest.mark.parametrize(
    ("provider", "more", "says"),
    [
        ("openai", "extra = { max_completion_tokens = 5 }", "extra may not set 'max_completion_tokens'"),
        (
            "openai",
            'extra = { prompt_cache_retention = "24h" }',
            "may not set 'prompt_cache_retention': evalkit sets it",
        ),
        ("openai", "max_tokens = 1000000", "max_tokens is 1,000,000, which leaves nothing for the prompt"),
        ("openai-responses", "max_tokens = 8", "max_tokens must be at least 16"),
        ("openai", "temperature = 9", "temperature must be at most 2, not 9"),
        ("openai-responses", "temperature = 3.0", "temperature must be at most 2, not 3"),
        ("openai-responses", "seed = 7", "openai-responses/gpt-4.1 refuses `seed`"),
        ("anthropic", "temperature = 1.5", "temperature must be at most 1"),
        ("anthropic", "seed = 7", "refuses `seed`. Leave it out"),
        ("anthropic", 'effort = "low"', "refuses `effort`"),
        (
            "anthropic",
            THINKING,
            "a tool call cannot be forced",
        ),
        (
            "anthropic",
            f'tool_choice = "auto"\ntemperature = 0.5\n{THINKING}',
            "temperature must be 1, not 0.5",
        ),
        (
            "anthropic",
            'tool_choice = "auto"\nextra = { thinking = { type = "enabled", budget_tokens = 8192 } }',
            "budget_tokens must be less than max_tokens, which is 8192",
        ),
        ("anthropic", "extra = { thinking = 5 }", "thinking must be an object"),
        ("google", 'effort = "very high"', "effort must be a level"),
        ("google", "extra = { generationConfig = { candidateCount = 8 } }", r"generationConfig\.candidateCount"),
    ],
)
def test_what_an_agent_asks_for_in_vain_is_refused(tmp_path: Path, provider: str, more: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"agent 'm'.*{says}"):
        marks(tmp_path, spec(provider, more))


SHIPPED = folders("providers")[-1]
DEARER = {
    "openai": [
        *('models = ["other"]', "web_search_options = {}"),
        *('prompt_cache_options = { ttl = "12h" }', "plugins = []", "unheard_of = 1"),
        *("provider = { order = ['a'], unheard_of = 1 }", "reasoning = true", '"provider.order" = 1', "speed = 1"),
    ],
    "openai-responses": ['reasoning = { mode = "pro" }', "context_management = []"],
    "anthropic": ['speed = "fast"', "mcp_servers = []"],
    "google": [
        *('cached_content = "x"', "safety = 1"),
        *("generationConfig = { speechConfig = {} }", "generationConfig = { thinkingConfig = { more = 1 } }"),
        'generationConfig = { response_modalities = ["AUDIO"] }',
    ],
}
HARMLESS = {
    "openai": ["top_k = 5, stop = ['x'], chat_template_kwargs = { a = { b = 1 } }", "provider = { order = ['a'] }"],
    "openai-responses": ['text = { verbosity = "low" }, reasoning = { summary = "auto" }'],
    "anthropic": ['top_k = 5, metadata = { user_id = "me" }, stop_sequences = ["x"]'],
    "google": ["safety_settings = [{ category = 'a' }]", "generationConfig = { top_k = 1, thinkingConfig = {} }"],
}


def test_fields_that_may_change_the_bill_are_refused_unless_the_file_allows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider of one's own is the shipped one with another line: `resolved` reads `providers/` where it stands."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "providers").mkdir()

    def asked(provider: str, field: str, allowed: str = "", url: str = "") -> tuple[str, ...]:
        file = SHIPPED.joinpath(f"{provider}.toml").read_text()
        (tmp_path / "providers" / f"{provider}.toml").write_text(allowed + file)
        return marks(tmp_path, spec(provider, f"extra = {{ {field} }}"))

    def refused(case: tuple[str, str]) -> None:
        provider, field = case
        with pytest.raises(UsageError, match="not known to leave alone what is billed") as caught:
            asked(provider, field)
        line = str(caught.value)[str(caught.value).index("extra_allowed") :].rstrip(".")
        asked(provider, field, f"{line}\n")

    check_each([((provider, field), (provider, field)) for provider in DEARER for field in DEARER[provider]], refused)
    for provider, fields in HARMLESS.items():
        for field in fields:
            asked(provider, field)


@pytest.mark.parametrize(
    ("provider", "field"),
    [
        *(("openai", 'service_tier = "priority"'), ("openai", 'Service_Tier = "flex"'), ("vllm", 'service_tier = "x"')),
        *(("openai-responses", 'service_tier = "flex"'), ("google", 'service_tier = "flex"')),
        *(("anthropic", 'service_tier = "auto"'), ("anthropic", 'inference_geo = "us"')),
    ],
)
def test_the_tier_is_no_field_of_an_agents_own(tmp_path: Path, provider: str, field: str) -> None:
    with pytest.raises(UsageError, match="extra may not set"):
        marks(tmp_path, spec(provider, f"extra = {{ {field} }}", *(["mine"] if provider == "vllm" else [])))


def test_a_model_that_costs_nothing_takes_any_field_but_those_of_evalkit(tmp_path: Path) -> None:
    free = "extra = {{ {} }}"
    marks(tmp_path, spec("vllm", free.format("use_beam_search = true, priority = 1"), "mine"))
    with pytest.raises(UsageError, match="extra may not set 'N'"):
        marks(tmp_path, spec("vllm", free.format("N = 4"), "mine"))


def test_no_file_allows_what_evalkit_sets_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "providers").mkdir()
    file = 'extra_allowed = ["generation_config.candidate_count"]\n'
    (tmp_path / "providers/google.toml").write_text(file + SHIPPED.joinpath("google.toml").read_text())
    with pytest.raises(UsageError, match=r"'generation_config\.candidate_count' is a field that evalkit sets itself"):
        marks(tmp_path, spec("google"))


@pytest.mark.parametrize(
    ("provider", "more"),
    [
        ("openai", "seed = 7"),
        ("google", "seed = 0"),
        ("anthropic", "seed = false"),
        ("openai-responses", "seed = false"),
        ("anthropic", f'tool_choice = "auto"\n{THINKING}'),
    ],
)
def test_what_can_be_sent_and_not_sending_what_cannot_are_no_mistakes(tmp_path: Path, provider: str, more: str) -> None:
    assert marks(tmp_path, spec(provider, more)) == ()


def test_what_is_not_sent_is_not_objected_to(tmp_path: Path) -> None:
    """This model takes no temperature and cannot be forced, so thinking has nothing to object to."""
    text = spec("anthropic", 'extra = { thinking = { type = "adaptive" } }', "claude-opus-5-5")
    assert "temperature not sent: the model refuses it" in marks(tmp_path, text)


def offering(*tools: Tool) -> Environment[Any, Any]:
    return replace(SCHEDULING, tools=lambda _state: tools, offers=lambda _instance: len(tools))


def tool(name: str = "f", **parameters: object) -> Tool:
    return Tool(name=name, description="", parameters=parameters)


EVERYWHERE = tuple(MODELS)


@pytest.mark.parametrize(
    ("tools", "says", "refusing"),
    [
        ((tool("look up"),), "tool name 'look up' is not allowed", EVERYWHERE),
        ((tool("look.up"),), "tool name 'look.up' is not allowed", ("openai", "openai-responses", "anthropic")),
        ((tool("1up"),), "tool name '1up' is not allowed", ("google",)),
        ((tool(), tool()), "Two tools are called 'f'", EVERYWHERE),
        ((tool(type="array"),), "must be an object, not 'array'", EVERYWHERE),
        ((tool(anyOf=[{}]),), "may not have 'anyOf' at its top", EVERYWHERE),
        ((tool(properties={"a b": {}}),), "argument name 'a b' of 'f' is not allowed", ("anthropic", "google")),
        (tuple(tool(f"f{i}") for i in range(129)), "offers up to 129 tools", ("openai", "openai-responses")),
    ],
)
def test_tools_that_a_provider_refuses_are_found_when_the_sweep_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: tuple[Tool, ...], says: str, refusing: tuple[str, ...]
) -> None:
    monkeypatch.setattr(dialect_support, "ENVIRONMENTS", {"scheduling": offering(*tools)})
    for provider in MODELS:
        if provider in refusing:
            with pytest.raises(UsageError, match=f"agent 'm'.*'scheduling/basic'.*{says}"):
                marks(tmp_path, spec(provider))
        else:
            marks(tmp_path, spec(provider))


def test_one_instance_of_each_stratum_and_size_stands_for_its_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    start: Callable[..., Any] = SCHEDULING.start

    def counted(instance: Any, kit: Any) -> Any:
        begun.append(instance)
        return start(instance, kit)

    monkeypatch.setattr(dialect_support, "ENVIRONMENTS", {"scheduling": replace(SCHEDULING, start=counted)})
    twice = spec("openai") + '[[agents]]\nname = "n"\nprovider = "openai"\nmodel = "gpt-4o"\n'
    agents = resolved(tmp_path, twice).manifest.agents
    assert len(agents) == 2
    assert len(begun) == len({SCHEDULING.stratum(one) for one in begun}) == 4
