"""Exported logs, read by Inspect AI's own reader."""

import asyncio
from pathlib import Path

import pytest

from evalkit.report.exports.episodes import ExportChoice
from evalkit.report.exports.inspect_log import write_inspect
from tests.report.exports.conftest import EXPORTED, HOSTILE, chosen, run
from tests.support.guessing_runs import ENVIRONMENTS

__all__ = ["chosen", "run"]

log = pytest.importorskip("inspect_ai.log", reason="needs inspect-ai: `make sdks` installs it and runs this")


def test_inspect_reads_every_sample(chosen: ExportChoice, tmp_path: Path) -> None:
    write_inspect(chosen, ENVIRONMENTS, tmp_path / "logs")
    found = [log.read_eval_log(one) for one in log.list_eval_logs(str(tmp_path / "logs"))]
    assert len(found) == 3
    assert sum(len(one.samples) for one in found) == EXPORTED
    for one in found:
        assert one.eval.model == "lab/m1"
        summaries = log.read_eval_log_sample_summaries(one.location)
        assert {(two.id, two.epoch) for two in summaries} == {(two.id, two.epoch) for two in one.samples}
        for sample in one.samples:
            assert sample.scores["score"].as_float() == sample.metadata["score"]
            assert sum(usage.total_tokens for usage in sample.model_usage.values()) > 0
    (odd,) = [one for one in found if one.eval.metadata["agent"] == "odd"]
    sample = next(one for one in odd.samples if (one.id, one.epoch) == ("i0", 1))
    assert [message.role for message in sample.messages[:6]] == [
        *("system", "user", "assistant", "tool", "tool", "assistant"),
    ]
    assert sample.messages[5].text == HOSTILE
    assert sample.messages[3].function == "fly"
    assert sample.messages[2].tool_calls[0].parse_error


def test_inspect_reads_the_events_of_every_request(chosen: ExportChoice, tmp_path: Path) -> None:
    write_inspect(chosen, ENVIRONMENTS, tmp_path / "logs")
    requests = 0
    for one in log.list_eval_logs(str(tmp_path / "logs")):
        for sample in log.read_eval_log(one, resolve_attachments=True).samples:
            kinds = [event.event for event in sample.events]
            asked = [event for event in sample.events if event.event == "model"]
            requests += len(asked)
            assert len(asked) == sample.metadata["steps"]
            assert kinds.count("span_begin") == kinds.count("span_end") == sample.metadata["periods"]
            assert kinds[-2:] == ["score", "score"]
            told = {message.id: place for place, message in enumerate(sample.messages)}
            for event in asked:
                places = [told[message.id] for message in event.input]
                assert places == list(range(places[0], places[0] + len(places)))
                assert {tool.name for tool in event.tools} >= {"guess"}
                if event.error is None:
                    reply = event.output.choices[0].message
                    assert told[reply.id] == places[-1] + 1
                    assert event.output.usage.total_tokens > 0
            answered = [event for event in sample.events if event.event == "tool"]
            assert [event.message_id for event in answered] == [
                message.id for message in sample.messages if message.role == "tool"
            ]
            assert [event.result for event in answered] == [
                message.text for message in sample.messages if message.role == "tool"
            ]
            assert kinds.count("info") == sum(event.error is None for event in asked)
    assert requests > 20


def test_scout_reads_the_transcripts(chosen: ExportChoice, tmp_path: Path) -> None:
    scout = pytest.importorskip("inspect_scout", reason="needs inspect-scout: pip install inspect-scout")
    write_inspect(chosen, ENVIRONMENTS, tmp_path / "logs")
    content = scout.TranscriptContent(messages="all", events="all")

    async def read() -> list[tuple[int, int]]:
        found = []
        async with scout.transcripts_from(str(tmp_path / "logs")).reader() as reader:
            async for info in reader.index():
                whole = await reader.read(info, content)
                found.append((len(whole.messages), sum(event.event == "model" for event in whole.events)))
        return found

    read_counts = asyncio.run(read())
    assert len(read_counts) == EXPORTED
    assert all(messages and requests for messages, requests in read_counts)
