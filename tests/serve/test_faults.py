"""Every fault, as it leaves the core."""

from collections.abc import Mapping

import orjson
import pytest

from evalkit.serve.faults import FAULTS, HUGE_BYTES, PIECES, STREAM_FAULTS
from evalkit.serve.options import options_from
from evalkit.serve.outcome import ServedOutcome
from evalkit.serve.provider import handle, open_simulator
from evalkit.wire.http import HttpResponse
from evalkit.wire.lenient import MalformedReplyError
from evalkit.wire.table import DIALECTS
from evalkit.wire.verdicts import judge
from tests.serve.asking import arrival, spoken, submitting

OPENAI = DIALECTS["openai_chat"]

# Status, ending, billed, delay in seconds where every reply takes 0.02.
EXPECTED: Mapping[str, tuple[int, str, bool, float]] = {
    "429": (429, "complete", False, 0.0),
    "500": (500, "complete", False, 0.02),
    "502": (502, "complete", False, 0.02),
    "503": (503, "complete", False, 0.02),
    "529": (529, "complete", False, 0.02),
    "early_reset": (0, "reset", False, 0.0),
    "reset": (0, "reset", True, 0.02),
    "stall": (0, "stall", True, 0.02),
    "truncated": (200, "truncated", True, 0.02),
    "html_502": (502, "complete", False, 0.02),
    "html_200": (200, "complete", True, 0.02),
    "empty": (200, "complete", True, 0.02),
    "invalid_json": (200, "complete", True, 0.02),
    "huge": (200, "complete", True, 0.02),
    "drip": (200, "complete", True, 0.02),
    "content_filter": (400, "complete", False, 0.0),
    "context_length": (400, "complete", False, 0.0),
    "refusal": (200, "complete", True, 0.02),
    "length": (200, "complete", True, 0.02),
    "unmetered": (200, "complete", True, 0.02),
    "408": (408, "complete", False, 0.0),
    "504": (504, "complete", False, 0.02),
    "524": (524, "complete", False, 0.02),
}
OF_ANY_REPLY = [fault for fault in FAULTS if fault not in STREAM_FAULTS]


def met(fault: str, dialect: str = "", **more: object) -> ServedOutcome:
    """What becomes of a request that meets the fault."""
    options = options_from({f"fault_{fault}": 1, "latency": "20ms", "retry_after": "3s", "drip": "2s", **more})
    asked = spoken(dialect) if dialect else arrival(content=submitting())
    return handle(open_simulator(options, 0.0), asked, 0.0)


@pytest.mark.parametrize("fault", OF_ANY_REPLY)
def test_every_fault_does_what_it_is_named_for(fault: str) -> None:
    outcome = met(fault)
    line = outcome.line
    assert line is not None
    assert line.outcome == fault
    assert (outcome.status, outcome.ending, line.billed, outcome.delay_s) == EXPECTED[fault]
    assert (line.cost > 0) == line.billed
    assert line.limit == ""
    assert line.answered_s == {"stall": None, "drip": 2.02}.get(fault, outcome.delay_s)
    assert ("retry-after" in outcome.headers) == (fault in ("429", "503", "529"))
    assert (0 < outcome.sent < len(outcome.body)) == (fault == "truncated")
    assert len(outcome.pieces) == {"drip": PIECES, "truncated": 1}.get(fault, 0)


@pytest.mark.parametrize("fault", OF_ANY_REPLY)
def test_failures_that_count_as_billed_can_be_billed(fault: str) -> None:
    billed = met(fault, bill_failures=True)
    plain = met(fault)
    assert (billed.status, billed.body, billed.ending) == (plain.status, plain.body, plain.ending)
    assert billed.line is not None
    assert plain.line is not None
    verdict = judge(HttpResponse(status=plain.status, headers={}, body=plain.body))
    if plain.line.billed or verdict.billable:
        assert billed.line.billed
        assert billed.line.cost > 0
    else:
        assert fault in ("429", "503", "529", "content_filter", "context_length")
        assert not billed.line.billed


@pytest.mark.parametrize("fault", ["html_200", "empty", "invalid_json"])
def test_a_body_that_is_no_reply_cannot_be_read_as_one(fault: str) -> None:
    outcome = met(fault)
    with pytest.raises(MalformedReplyError):
        OPENAI.decode(outcome.body)
    assert outcome.headers["content-type"].startswith("text/html") == (fault == "html_200")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_the_model_does_wrong_is_read_as_that_in_every_dialect(dialect: str) -> None:
    refused, cut, unmetered = (
        DIALECTS[dialect].decode(met(fault, dialect).body) for fault in ("refusal", "length", "unmetered")
    )
    assert (refused.finish, cut.finish) == ("refusal", "length")
    assert refused.text
    assert not refused.calls
    assert unmetered.calls
    assert (unmetered.usage.input, unmetered.usage.output) == (0, 0)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("429", "rate_limit"),
        ("500", "server_error"),
        ("502", "server_error"),
        ("503", "overload"),
        ("529", "overload"),
        ("html_502", "server_error"),
        ("content_filter", "content_filter"),
        ("context_length", "context_length"),
    ],
)
def test_an_error_is_judged_as_what_it_is_in_every_dialect(fault: str, kind: str, dialect: str) -> None:
    outcome = met(fault, dialect)
    response = HttpResponse(status=outcome.status, headers=outcome.headers, body=outcome.body)
    assert DIALECTS[dialect].judge(response).kind == kind


def test_a_huge_body_holds_the_reply_and_a_cut_one_half_of_it() -> None:
    huge, cut = met("huge"), met("length")
    assert len(huge.body) == HUGE_BYTES
    whole = OPENAI.decode(orjson.dumps(orjson.loads(huge.body)))
    assert 0 < OPENAI.decode(cut.body).usage.output <= whole.usage.output // 2
