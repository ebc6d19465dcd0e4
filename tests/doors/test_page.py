"""The pages on which a person plays, over HTTP: every reply is one row, nothing that was written is lost."""

import asyncio
import html
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import evalkit
from evalkit.cli.main import main
from tests.doors.playing import Form, Page, Person, played

pytestmark = pytest.mark.exhaustive

SEED = "/play/seed-3:0"
ADDRESS = "anna:scheduling/basic:seed-3:0"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def best() -> list[tuple[str, dict[str, str]]]:
    """What knuth calls on an instance: tool and arguments, one call a reply."""
    (instance,) = evalkit.suite("scheduling/basic", instances=["seed-3"])
    replies = [reply for reply in evalkit.play("knuth", instance).replies if reply is not None]
    return [(call.name, json.loads(call.arguments)) for reply in replies for call in reply.calls]


def logged(address: str = ADDRESS) -> list[tuple[str, object]]:
    """The calls that the log has, and texts alone."""
    replies = [reply for reply in evalkit.load("human").episode(address).replies if reply is not None]
    calls = [(call.name, json.loads(call.arguments)) for reply in replies for call in reply.calls]
    return [*calls, *(("", reply.text) for reply in replies if not reply.calls)]


async def call(person: Person, page: Page, tool: str, arguments: dict[str, str]) -> Page:
    form = page.form(tool)
    return await person.send(form, {label: str(value) for label, value in arguments.items()})


def test_an_episode_is_played_to_its_end_and_is_in_the_run_as_any_agents() -> None:
    calls = best()

    async def play() -> None:
        async with played("scheduling/basic") as (person, _):
            page = await person.get("/play")
            assert "0 of 12 episodes have ended" in page.text
            assert f'href="{SEED}"' in page.text
            page = await person.get(SEED)
            beside = evalkit.game(evalkit.suite("scheduling/basic", instances=["seed-3"])[0])
            for tool, arguments in calls:
                assert all(html.escape(message.text, quote=False)[:40] in page.text for message in beside.messages[:1])
                page = await call(person, page, tool, arguments)
                turn = beside.reply([evalkit.ToolCall(id="1", name=tool, arguments=json.dumps(arguments))])
                if beside.ending:
                    break
                score = f"{100 * beside.score().value:.1f}"
                assert f"<dt>Score so far</dt><dd>{score} " in page.text
                assert (f"Period {beside.period - 1} has ended" in page.text) == turn.new_chat
            assert "<dt>Score</dt><dd>100.0" in page.text
            assert "<dt>Below the optimum</dt><dd>0.0" in page.text
            assert f"evalkit show runs/human {ADDRESS}" in html.unescape(page.text)
            detail = f"/run/human/episode/{ADDRESS}"
            assert f'href="{detail}"' in page.text
            assert "submit_assignment" in (await person.get(detail)).text
            assert (await person.get(f"{detail}/period/0?part=1")).status == 200
            page = await person.get("/play")
            assert "1 of 12 episodes have ended" in page.text

    asyncio.run(play())
    assert logged() == calls
    episode = evalkit.load("human").episode(ADDRESS)
    assert (episode.ending, episode.score.value if episode.score else 0, episode.reproduced) == ("stable", 1.0, True)
    assert main(["verify", "runs/human"]) == 0


@pytest.mark.exhaustive
def test_who_comes_back_is_at_the_same_turn_with_all_periods_before() -> None:
    calls = best()
    half = len(calls) // 2

    async def play(part: Sequence[tuple[str, dict[str, str]]]) -> tuple[str, str]:
        async with played("scheduling/basic") as (person, record):
            page = await person.get(SEED)
            first = page.text
            for tool, arguments in part:
                page = await call(person, page, tool, arguments)
            del record
            return first, page.text

    _, left = asyncio.run(play(calls[:half]))
    back, ended = asyncio.run(play(calls[half:]))
    same = [
        text[text.index('<dl class="facts">') :].partition('<section class="block" id="turn">')[0]
        for text in (left, back)
    ]
    assert same[0] == same[1]
    assert f"<dt>Replies so far</dt><dd>{half} " in back
    assert "solved" in ended
    assert logged() == calls
    # It has ended for who comes back a third time, too.
    assert "<dt>Score</dt><dd>100.0" in asyncio.run(play([]))[0]


def test_two_tabs_give_a_turn_one_reply_and_the_second_is_told() -> None:
    async def play() -> None:
        async with played("scheduling/basic") as (person, _):
            page = await person.get(SEED)
            notes, ids = page.form("write_notes"), page.form("get_worker_ids")
            first, second = await asyncio.gather(
                person.send(notes, {"notes": "from the first tab"}),
                person.send(notes, {"notes": "from the second tab"}),
            )
            statuses = sorted((first.status, second.status))
            assert statuses == [200, 409]
            late = first if first.status == 409 else second
            assert "This turn has a reply already" in late.text
            kept = late.form("write_notes")
            assert kept.values[kept.labels["notes"]] in ("from the first tab", "from the second tab")
            assert (await person.send(ids)).status == 409
            assert (await person.send(kept)).status == 200  # the form that came with the message is for the next turn

    asyncio.run(play())
    assert [tool for tool, _ in logged()] == ["write_notes", "write_notes"]


def test_many_clicks_at_once_are_one_reply() -> None:
    async def play() -> list[int]:
        async with played("scheduling/basic") as (person, _):
            form = (await person.get(SEED)).form("get_worker_ids")
            return [said.status for said in await asyncio.gather(*(person.send(form) for _ in range(8)))]

    assert sorted(asyncio.run(play())) == [200] + [409] * 7
    assert logged() == [("get_worker_ids", {})]


def test_a_wrong_argument_is_said_at_its_field_and_what_was_written_stays() -> None:
    async def play() -> None:
        async with played("scheduling/basic") as (person, _):
            page = await person.get(SEED)
            wrong = await person.send(page.form("read_notes"), {"attempt_number": "two\u200d\t<b>"})
            assert wrong.status == 422
            assert "Write a whole number" in wrong.text
            form = wrong.form("read_notes")
            assert form.values[form.labels["attempt_number"]] == "two\u200d\t<b>"
            missing = await person.send(page.form("write_notes"))
            assert (missing.status, "This argument is needed" in missing.text) == (422, True)
            broken = await person.post(SEED, {**page.form("write_notes", "json").values, "text": '{"notes": "a\tb'})
            assert (broken.status, "This is not JSON" in broken.text) == (422, True)
            assert broken.form("write_notes", "json").values["text"] == '{"notes": "a\tb'
            silent = await person.post(SEED, {**page.form("", "say").values, "text": " \n"})
            assert (silent.status, "Write something first" in silent.text) == (422, True)
            gone = await person.post(SEED, {**page.form("read_notes").values, "tool": "nothing", "a.0": "my words"})
            assert (gone.status, "not offered any more" in gone.text, "my words" in gone.text) == (422, True, True)
            assert "<dt>Replies so far</dt><dd>0 " in gone.text
            right = await person.send(form, {"attempt_number": "0"})
            assert right.status == 200
            said = await person.post(SEED, {**right.form("", "say").values, "text": "Let me\r\nthink."})
            assert said.status == 200
            raw = {**said.form("write_notes", "json").values, "text": '{"notes": 5}'}
            refused = await person.post(SEED, raw)
            assert "Your last call was refused: wrong type" in refused.text

    asyncio.run(play())
    assert logged() == [("read_notes", {"attempt_number": 0}), ("write_notes", {"notes": 5}), ("", "Let me\nthink.")]


def test_only_a_page_of_this_server_changes_anything() -> None:
    async def play() -> None:
        async with played("scheduling/basic") as (person, _):
            form = (await person.get(SEED)).form("get_worker_ids")
            port = person.url.rpartition(":")[2]
            for headers in (
                {"Sec-Fetch-Site": "cross-site"},
                {"Sec-Fetch-Site": "same-site"},
                {"Origin": "http://evil.example"},
                {"Origin": f"http://localhost:{port}"},
                {"Host": "evil.example"},
            ):
                said = await person.send(form, {}, **headers)
                assert said.status == 403, headers
            for token in ("", "x", "é"):
                async with person.session.post(person.url + SEED, data={**form.values, "token": token}) as answer:
                    assert answer.status == 403
            for values in (
                {},
                {**form.values, "step": "x"},
                {**form.values, "way": "other"},
                {**form.values, "step": "-1"},
            ):
                assert (await person.post(SEED, values)).status == 400, values
            async with person.session.post(person.url + SEED, json=form.values) as answer:
                assert answer.status == 400
            for method in ("PUT", "DELETE", "PATCH"):
                async with person.session.request(method, person.url + SEED) as answer:
                    assert answer.status == 405
            async with person.session.post(f"{person.url}/run/human/") as answer:
                assert answer.status == 405
            for path in ("/play/seed-99:0", "/play/seed-3:7", "/play/seed-3:x", "/play/seed-3"):
                assert (await person.get(path)).status in (400, 404), path
            page = await person.get(SEED)
            assert "<dt>Replies so far</dt><dd>0 " in page.text
            assert "form-action 'self'" in page.headers["Content-Security-Policy"]
            assert page.headers["X-Frame-Options"] == "DENY"

    asyncio.run(play())


def test_a_page_from_before_a_restart_gives_nothing_until_it_is_sent_again() -> None:
    async def old() -> Form:
        async with played("scheduling/basic") as (person, _):
            page = await call(person, await person.get(SEED), "get_worker_ids", {})
            return page.form("write_notes")

    async def play(form: Form) -> None:
        async with played("scheduling/basic") as (person, _):
            told = await person.send(form, {"notes": "kept"})
            assert told.status == 409
            assert "has been started again" in told.text
            again = told.form("write_notes")
            assert again.values[again.labels["notes"]] == "kept"
            assert (await person.send(again)).status == 200

    asyncio.run(play(asyncio.run(old())))
    assert logged() == [("get_worker_ids", {}), ("write_notes", {"notes": "kept"})]


HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>\u202egnp.exe</pre>{{ 7 * 7 }}"


def test_hostile_text_is_text_wherever_it_stands() -> None:
    async def play() -> list[str]:
        async with played("scheduling/basic") as (person, _):
            page = await person.get(SEED)
            texts = []
            wrote = await call(person, page, "write_notes", {"notes": HOSTILE})
            texts.append(wrote.text)
            read = await call(person, wrote, "read_notes", {"attempt_number": "0"})
            texts.append(read.text)
            said = await person.post(SEED, {**read.form("", "say").values, "text": HOSTILE})
            texts.append(said.text)
            wrong = await person.send(said.form("read_notes"), {"attempt_number": HOSTILE})
            texts.append(wrong.text)
            stale = await person.send(wrong.form("read_notes"), {"attempt_number": HOSTILE})
            texts.append(stale.text)
            gone = {**said.form("read_notes").values, "tool": HOSTILE, "a.0": HOSTILE}
            texts.append((await person.post(SEED, gone)).text)
            return texts

    for text in asyncio.run(play()):
        assert "&lt;script&gt;window.hacked" in text
        assert "<script>window" not in text
        assert "<img" not in text
        assert "49" not in text.partition("What you read")[2].partition("Your turn")[0]
    assert len(logged()) == 3
