"""The MCP integration, with the official client."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import evalkit
from evalkit.dialogue import Reply, ToolCall
from tests.integrations.cases import CASES, Case, case_id, instance_of, played
from tests.support.document_blocks import blocks_of
from tests.support.patience import PATIENCE_S

pytest.importorskip("mcp", reason="needs mcp: `python -m tests.integrations` installs it and runs this")

import mcp_types as types
from mcp import StdioServerParameters
from mcp.client.client import Client

from evalkit.integrations.mcp import EpisodeServer
from evalkit.integrations.play_session import PlaySession

MODES = ("legacy", "2026-07-28")
EVALKIT = str(Path(sys.executable).parent / "evalkit")
KNUTH = next(case for case in CASES if case[2] == "knuth")


def one_by_one(case: Case) -> list[Reply]:
    """A case's calls as this integration takes them: each is a reply; an argument that is no object cannot be sent."""
    said = []
    talks = evalkit.env(case[0].partition("/")[0]).talk
    for reply in played(case).replies:
        assert reply is not None
        if reply.calls:
            said += [(call.name, _object(call.arguments)) for call in reply.calls]
        elif talks:
            said.append(("say", {"text": reply.text}))
    return [_reply(number, name, arguments) for number, (name, arguments) in enumerate(said)]


def _object(arguments: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return {"broken": arguments[:50]}
    return value if isinstance(value, dict) else {"broken": value}


def _reply(number: int, name: str, arguments: dict[str, Any]) -> Reply:
    if name == "say":
        return Reply(text=arguments["text"])
    text = json.dumps(arguments, ensure_ascii=False)
    return Reply(calls=(ToolCall(id=f"call_{number}", name=name, arguments=text),), finish="tool_calls")


async def send(client: Client, reply: Reply) -> types.CallToolResult:
    if not reply.calls:
        return await client.call_tool("say", {"text": reply.text})
    (call,) = reply.calls
    return await client.call_tool(call.name, json.loads(call.arguments))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_the_same_replies_give_the_same_facts_and_score(case: Case, mode: str) -> None:
    """Beside a game that is given the same replies: facts, texts and the end's score."""
    instance = instance_of(*case[:2])
    beside, session = evalkit.game(instance), PlaySession(evalkit.game(instance))

    async def play() -> None:
        async with Client(EpisodeServer(session).server, mode=mode) as client:
            for reply in one_by_one(case):
                if beside.ending:
                    break
                told = await send(client, reply)
                turn = beside.reply(reply)
                facts = told.structured_content
                assert (facts["period"], facts["step"], facts["ended"]) == (
                    beside.period,
                    beside.step,
                    bool(beside.ending),
                )
                assert told.is_error == (facts["outcome"] != "ok")
                text = told.content[0].text
                shown = [*turn.messages, *(beside.messages if turn.new_chat else ())]
                assert all(message.text in text for message in shown)
            if beside.ending:
                assert facts["score"] == beside.score().value
                late = await client.call_tool("anything", {})
                assert late.is_error
                assert (late.structured_content["outcome"], late.structured_content["score"]) == (
                    "ended",
                    beside.score().value,
                )

    asyncio.run(play())
    assert session.game.facts == beside.facts
    assert session.game.score() == beside.score()


def words(*more: str) -> list[str]:
    return ["mcp", "scheduling/basic", "--instance", "seed-3", *more]


@contextmanager
def serving(folder: Path, *more: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server over HTTP: the first episode's URL."""
    command = [EVALKIT, *words("--http", "0", *more)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder) as started:
        assert started.stderr is not None
        line = started.stderr.readline()
        said: list[str] = []
        rest = threading.Thread(target=said.extend, args=(started.stderr,))
        rest.start()
        try:
            assert "http://" in line, line
            yield line.split()[-1], started
        finally:
            started.send_signal(signal.SIGINT)
            try:
                started.wait(PATIENCE_S)
            finally:
                started.kill()
                rest.join()
        assert "Traceback" not in "".join(said)


@asynccontextmanager
async def connected(kind: str, mode: str, folder: Path) -> AsyncIterator[Client]:
    if kind == "stdio":
        server = StdioServerParameters(command=EVALKIT, args=words(), cwd=folder, env=dict(os.environ))
        async with Client(server, mode=mode) as client:
            yield client
    else:
        with serving(folder) as (url, _):
            async with Client(url, mode=mode) as client:
                yield client


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["stdio", "http"])
def test_an_episode_over_a_transport(kind: str, mode: str, tmp_path: Path) -> None:
    """Forty calls at once are forty replies; hostile calls are refused and harm nothing; the prompt holds the chat."""
    instance = evalkit.suite("scheduling/basic", instances=["seed-3"])[0]
    beside = evalkit.game(instance)

    async def play() -> None:
        async with connected(kind, mode, tmp_path) as client:
            listed = await client.list_tools(cache_mode="bypass")
            assert [tool.name for tool in listed.tools] == [tool.name for tool in beside.tools]
            for name, arguments in HOSTILE:
                told = await client.call_tool(name, arguments)
                beside.reply(_reply(beside.step, name, arguments))
                assert (told.is_error, told.structured_content["step"]) == (True, beside.step), name
            prompt = await client.get_prompt("episode")
            assert [message.content.text for message in prompt.messages if message.role == "user"] == [
                message.text for message in beside.messages if message.role != "assistant"
            ]
            assert len(prompt.messages) == len(beside.messages)
            with pytest.raises(Exception, match="no prompt"):
                await client.get_prompt("nothing")
            left = 39 - len(HOSTILE)
            together = await asyncio.gather(*(client.call_tool("get_attempt_number", {}) for _ in range(left)))
            steps = [told.structured_content["step"] for told in together]
            assert sorted(steps) == list(range(len(HOSTILE) + 1, 40))
            acted = await client.call_tool("submit_assignment", {"assignment": assignment()})
            assert acted.structured_content["outcome"] == "ok", acted
            assert acted.structured_content["period"] == 1
            assert beside.messages[1].text[:60] in acted.content[0].text

    asyncio.run(play())


HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("nope", {}),
    ("\u202e" * 300, {"a": 1}),
    ("submit_assignment", {}),
    ("submit_assignment", {"assignment": "x" * 70_000}),
    ("submit_assignment", {"assignment": [[[]]] * 50}),
    ("write_notes", {"notes": 7}),
]


def assignment() -> str:
    instance = evalkit.suite("scheduling/basic", instances=["seed-3"])[0]
    game = evalkit.game(instance)
    ids = {}
    for name in ("get_worker_ids", "get_task_ids"):
        turn = game.reply([ToolCall(id="1", name=name, arguments="{}")])
        ids[name] = [word.strip("' ") for word in turn.messages[0].text.strip("[]").split(",")]
    return repr(dict(zip(ids["get_worker_ids"], ids["get_task_ids"], strict=True)))


@pytest.mark.parametrize("mode", MODES)
def test_a_client_that_was_killed_comes_back_to_its_episode(mode: str, tmp_path: Path) -> None:
    code = """
import asyncio, sys
from mcp.client.client import Client
async def main():
    async with Client(sys.argv[1], mode=sys.argv[2]) as client:
        for _ in range(3):
            await client.call_tool("get_attempt_number", {})
        print("played", flush=True)
        await asyncio.sleep(3600)
asyncio.run(main())
"""
    with serving(tmp_path) as (url, _):
        command = [sys.executable, "-c", code, url, mode]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
            assert first.stdout is not None
            assert first.stdout.readline() == "played\n"
            first.kill()

        async def again() -> None:
            async with Client(url, mode="auto" if mode != "legacy" else mode) as client:
                prompt = await client.get_prompt("episode")
                assert [message.role for message in prompt.messages].count("assistant") == 3
                assert client.instructions.count("get_attempt_number({})") == 3
                told = await client.call_tool("get_worker_ids", {})
                assert told.structured_content["step"] == 4

        asyncio.run(again())


@pytest.mark.parametrize("mode", MODES)
def test_tools_that_change_are_announced(mode: str) -> None:
    """In CostBench, where tools are taken away: to the client of a session, and to who listens."""
    (instance,) = evalkit.suite(
        "costbench/basic", instances=["location-0000"], vary={"block": ["remove_tools"], "blocks": [2]}
    )
    asked = evalkit.play("planner", instance)
    session, heard = PlaySession(evalkit.game(instance)), asyncio.Queue[str]()

    async def hear(message: Any) -> None:
        if "List" in type(message).__name__:
            heard.put_nowait(type(message).__name__)

    async def listen(client: Client, ready: asyncio.Event) -> None:
        async with client.listen(tools_list_changed=True) as events:
            ready.set()
            async for event in events:
                heard.put_nowait(type(event).__name__)

    async def play() -> list[bool]:
        changed, ready = list[bool](), asyncio.Event()
        async with Client(EpisodeServer(session).server, mode=mode, message_handler=hear) as client:
            listening = asyncio.create_task(listen(client, ready)) if mode != "legacy" else None
            if listening:
                await ready.wait()
            names = {tool.name for tool in (await client.list_tools()).tools}
            for reply in asked.replies:
                assert reply is not None
                told = await send(client, reply)
                if session.game.ending:
                    break
                now = {tool.name for tool in (await client.list_tools()).tools}
                assert now == {"say", *(tool.name for tool in session.game.tools)}
                changed.append(told.structured_content["tools_changed"])
                assert changed[-1] == (now != names)
                names = now
            async with asyncio.timeout(PATIENCE_S):
                for _ in range(sum(changed)):
                    await heard.get()
            if listening:
                listening.cancel()
        return changed

    assert any(asyncio.run(play()))


def test_episodes_are_asked_for_over_http_and_not_from_another_site(tmp_path: Path) -> None:
    def post(base: str, body: bytes, **headers: str) -> tuple[int, Any]:
        request = urllib.request.Request(
            f"{base}/episodes", data=body, headers={"Content-Type": "application/json", **headers}
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as flaw:
            return flaw.code, flaw.read().decode()

    with serving(tmp_path) as (url, server):
        base = url.partition("/episodes")[0]
        status, told = post(base, b'{"instance": "seed-0"}')
        assert (status, told["instance"], told["step"]) == (201, "seed-0", 0)
        assert told["url"] != url
        assert len(told["url"].split("/")[-2]) >= 32
        status, words_of_it = post(base, b'{"instance": "seed-00"}')
        assert status == 400
        assert "seed-0" in words_of_it
        for body in (b"[", b"[]", b'{"a": 1}', b'{"instance": 1}', b'{"replicate": true}', b"[" * 5000, b"x" * 70_000):
            assert post(base, body)[0] == 400, body[:20]
        for origin in ("http://evil.example", "http://127.0.0.1:1@evil.example"):
            assert post(base, b"{}", Origin=origin)[0] == 403
            assert post(url, b"{}", Origin=origin)[0] == 403
        for host in ("evil.example", "127.0.0.1:80@evil.example", "127.0.0.1:evil"):
            assert post(base, b"{}", Host=host)[0] == 403
        assert post(base, b"{}", Host="localhost:1")[1]["url"].startswith(base)
        assert post(base, b"{}", **{"Content-Type": "text/plain"})[0] == 400
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/episodes/{'x' * 32}/mcp", timeout=PATIENCE_S)

        async def both() -> None:
            async with Client(url) as first, Client(told["url"]) as second:
                assert (await first.call_tool("get_attempt_number", {})).structured_content["step"] == 1
                assert (await second.call_tool("get_attempt_number", {})).structured_content["step"] == 1

        asyncio.run(both())
        for path in ("/episodes", url.removeprefix(base)):
            gone = (
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                "Accept: application/json, text/event-stream\r\nContent-Length: 100\r\n\r\n{"
            )
            with socket.create_connection(("127.0.0.1", int(base.rpartition(":")[2]))) as client:
                client.sendall(gone.encode())
            assert post(base, b"[")[0] == 400  # it has heard of the one before
        assert server.poll() is None


def test_wrong_words_are_told_on_stderr_alone(tmp_path: Path) -> None:
    for more, told in ((["--instance", "seed-99"], "seed-9"), (["--http", "70000"], "65535")):
        done = subprocess.run(
            [EVALKIT, "mcp", "scheduling/basic", *more], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert told in done.stderr


@pytest.mark.parametrize(("kind", "mode"), [("stdio", "legacy"), ("stdio", "2026-07-28"), ("http", "auto")])
def test_an_episode_in_a_run_goes_on_behind_its_last_call(kind: str, mode: str, tmp_path: Path) -> None:
    """The server is killed between two calls; the next one serves the same episode, and the log is an agent's: each
    reply's row says which client gave it."""
    replies = one_by_one(KNUTH)
    game = evalkit.game(evalkit.suite("scheduling/basic", instances=["seed-3"])[0])
    half = len(replies) // 2
    named = ("--run", "tried", "--agent", "mine")

    async def over_stdio(some: list[Reply], who: types.Implementation) -> None:
        server = StdioServerParameters(command=EVALKIT, args=words(*named), cwd=tmp_path, env=dict(os.environ))
        async with Client(server, mode=mode, client_info=who) as client:
            await call(client, some)

    async def over_http(url: str, some: list[Reply], who: types.Implementation) -> None:
        async with Client(url, mode=mode, client_info=who) as client:
            await call(client, some)

    async def call(client: Client, some: list[Reply]) -> None:
        for reply in some:
            told = await send(client, reply)
            game.reply(reply)
            assert told.structured_content["step"] == game.step

    for some, version in ((replies[:half], "1.0"), (replies[half:], "1.1")):
        who = types.Implementation(name="setup", version=version)
        if kind == "stdio":
            asyncio.run(over_stdio(some, who))
        else:
            with serving(tmp_path, *named) as (url, server):
                asyncio.run(over_http(url, some, who))
                server.kill()
    run = evalkit.load(tmp_path / "runs" / "tried")
    episode = run.episode("mine:scheduling/basic:seed-3:0")
    assert (list(episode.facts), episode.ending, episode.reproduced) == (game.facts, game.ending, True)
    assert run.sql("select marks from agents").to_pylist() == [{"marks": ["not metered"]}]
    answered = run.sql("select served_model from steps order by step").to_pylist()
    versions = ["1.0"] * half + ["1.1"] * (len(replies) - half)
    assert [row["served_model"] for row in answered] == [f"setup/{version}" for version in versions]
    assert subprocess.run([EVALKIT, "verify", "runs/tried"], cwd=tmp_path, check=False).returncode == 0


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    (block,) = [block for block in blocks_of("docs/mcp.md") if "mcp" in block.words]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", block.text],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
