"""What a refusal asks a user to write into a provider's file."""

import pytest

from evalkit.client.remedies import line_to_set, with_remedy
from evalkit.wire.dialect import REFUSABLE
from evalkit.wire.http import Verdict


def refused(message: str, kind: str = "bad_request") -> Verdict:
    return Verdict(action="end_episode", kind=kind, message=message)


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("Unsupported value: 'temperature' does not support 0.5 with this model.", "temperature"),
        ("`temperature` and `top_p` cannot both be specified for this model.", "temperature top_p"),
        ("Extra inputs are not permitted: body.stream_options.include_usage", "stream_options"),
        ("Unsupported parameter: 'parallel_tool_calls' is not supported with this model.", "parallel_calls"),
        ("Unrecognized request argument supplied: reasoning_effort", "effort"),
        ("Unsupported parameter: 'reasoning.effort' is not supported with this model.", "effort"),
        ("Encrypted content is not supported with this model: reasoning.encrypted_content", "encrypted_reasoning"),
        ("Unknown name \"seed\" at 'generation_config': Cannot find field.", "seed"),
        ("tool_choice must be auto", "tool_choice"),
        ("Expecting value: line 1 column 1 (char 0)", "malformed_arguments"),
        ("Unterminated string starting at: line 1 column 7 (char 6)", "malformed_arguments"),
        ("[json.exception.parse_error.101] parse error at line 1", "malformed_arguments"),
        ("Failed to parse tool call arguments as JSON", "malformed_arguments"),
        ("'str object' has no attribute 'items'", "malformed_arguments"),
    ],
)
def test_a_refusal_that_names_a_field_is_answered_with_its_line(message: str, names: str) -> None:
    assert set(names.split()) <= REFUSABLE
    listed = '"' + '", "'.join(names.split()) + '"'
    assert line_to_set(refused(message)) == f"refuses = [{listed}]"
    said = with_remedy(refused(message), provider="acme", model="large", key="ACME_KEY")
    assert said.endswith(f"write `refuses = [{listed}]` for 'large' into the file of provider 'acme'.")


def test_another_name_of_the_limit_is_told() -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    assert line_to_set(refused(said)) == 'refuses = ["max_tokens"]'


def test_a_refusal_of_what_goes_back_is_answered_with_its_line() -> None:
    said = {
        "Unexpected role 'user' after role 'tool'": 'after_results = "bridged"',
        "After the optional system message, conversation roles must alternate user and assistant": (
            'after_results = "bridged"'
        ),
        "The `reasoning_content` in the thinking mode must be passed back to the API.": 'thinking_back = "always"',
        "Missing `reasoning_content` field in the assistant message at message index 2.": 'thinking_back = "always"',
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2": (
            'thinking_back = "always"'
        ),
        "'messages.1' : property 'reasoning_content' is unsupported": 'thinking_back = "never"',
        "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.": 'refuses = ["call_ids"]',
        "Tool call IDs should be alphanumeric strings with length 9!": 'refuses = ["call_ids"]',
    }
    assert {message: line_to_set(refused(message)) for message in said} == said


@pytest.mark.parametrize(
    "message", ["nonsense", "the seeds of your garden", "my_seed is 3", "no temperatures here", ""]
)
def test_what_names_no_field_is_answered_in_general(message: str) -> None:
    assert line_to_set(refused(message)) == ""
    assert with_remedy(refused(message), provider="acme", model="large", key="").endswith(
        "Check `refuses` of 'large' in the file of provider 'acme'."
    )


@pytest.mark.parametrize("kind", ["rate_limit", "bad_key", "context_length"])
def test_other_failures_ask_for_no_line(kind: str) -> None:
    assert line_to_set(refused("temperature", kind)) == ""
