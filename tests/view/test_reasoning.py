"""A provider that shows reasoning, in each dialect: it is seen in the terminal, on the page and in the exports."""

import json
import re
import zipfile
from html import unescape
from pathlib import Path

import pytest

from evalkit.envs.table import ENVIRONMENTS
from evalkit.report.exports.chats import write_transcripts
from evalkit.report.exports.episodes import choose
from evalkit.report.exports.inspect_log import write_inspect
from evalkit.results.show import show
from evalkit.results.trajectory import FOLD
from evalkit.results.verify import verify
from evalkit.view.run_cache import RunCache
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served
from tests.view.conftest import ask

FORMATS = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
TOKENS = 60

PROVIDER = """dialect = "{dialect}"
[simulate]
latency = "1ms"
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-11-21"
"""

AGENT = """
[[agents]]
name = "{dialect}"
provider = "{dialect}"
model = "replanner"
"""

SUITE = """
[[suites]]
name = "costbench/basic"
instances = ["dining-0004"]
"""


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("thinking")
    (folder / "providers").mkdir()
    for dialect in FORMATS:
        (folder / "providers" / f"{dialect}.toml").write_text(PROVIDER.format(dialect=dialect))
    text = "".join(AGENT.format(dialect=dialect) for dialect in FORMATS) + SUITE
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # which has the providers
        outcome, _ = go_served(resolved(folder, text), folder / "thinking", {"reasoning": TOKENS})
    assert outcome.remaining == 0, outcome.messages
    return folder / "thinking"


def place(dialect: str) -> str:
    return f"{dialect}:costbench/basic:dining-0004:0"


@pytest.mark.parametrize("dialect", FORMATS)
def test_the_terminal_folds_it_and_shows_it_whole_on_request(thinking: Path, dialect: str) -> None:
    short, full = (show(thinking, place(dialect), full=full) for full in (False, True))
    thoughts = [[part for part in one.parts if part.kind == "thought"] for one in (short, full)]
    turns = sum(part.kind == "turn" for part in full.parts)
    assert len(thoughts[0]) == len(thoughts[1]) == turns > 1
    for folded, whole in zip(*thoughts, strict=True):
        assert whole.title == folded.title == f"agent thinks, {TOKENS} tokens"
        assert len(whole.text) == 4 * TOKENS
        assert whole.text.startswith("Thought 0 on message ")
        assert folded.text.startswith(whole.text[:FOLD] + "...")
        assert "--full" in folded.text
    assert f"[agent thinks, {TOKENS} tokens]" in short.plain()
    assert verify(thinking) == []


def test_the_page_folds_it_with_its_tokens(thinking: Path) -> None:
    for said in ask(RunCache([thinking]), *(f"/run/thinking/episode/{place(dialect)}" for dialect in FORMATS)):
        assert said.status == 200
        found = re.findall(r'<details class="part thought"><summary>([^<]*)<.*?<pre[^>]*>(.*?)</pre>', said.text, re.S)
        assert len(found) > 1
        for title, text in found:
            assert title.strip() == f"agent thinks, {TOKENS} tokens"
            assert unescape(text).startswith("Thought 0 on message ")


def test_the_exports_have_it(thinking: Path, tmp_path: Path) -> None:
    chosen = choose(thinking)
    write_transcripts(chosen, ENVIRONMENTS, tmp_path / "chats.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "chats.jsonl").read_text().splitlines()]
    assert {line["metadata"]["agent"] for line in lines} == set(FORMATS)
    for line in lines:
        answers = [message for message in line["messages"] if message["role"] == "assistant"]
        assert all(message["reasoning_content"].startswith("Thought 0") for message in answers)
        assert line["metadata"]["tokens"]["reasoning"] == TOKENS * len(answers)
    write_inspect(chosen, ENVIRONMENTS, tmp_path / "logs")
    logs = sorted((tmp_path / "logs").rglob("*.eval"))
    assert len(logs) == len(FORMATS)
    for log in logs:
        with zipfile.ZipFile(log) as archive:
            (name,) = [name for name in archive.namelist() if name.startswith("samples/")]
            sample = json.loads(archive.read(name))
        answers = [message for message in sample["messages"] if message["role"] == "assistant"]
        assert all(message["content"][0]["type"] == "reasoning" for message in answers)
        assert all(message["content"][0]["reasoning"].startswith("Thought 0") for message in answers)
