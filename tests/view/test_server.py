import asyncio
import csv
import html
import io
import re
import shlex
import shutil
import threading
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest

from evalkit.errors import UsageError
from evalkit.report.views import open_views
from evalkit.view.reading import Reading, read_run
from evalkit.view.run_cache import RunCache
from evalkit.view.server import POLICY, serving
from tests.support.patience import PATIENCE_S
from tests.view.conftest import ask, at_rest, client


def test_every_page_of_a_run_is_there_with_its_headers(run: Path, reading: Reading) -> None:
    episode = reading.report.cells[0].episodes[0]
    paths = ["/", "/run/shown/", "/run/shown/episodes", "/run/shown/live", "/run/shown/live.json", "/compare"]
    paths += ["/run/shown/table/scores.csv", "/static/style.css", "/static/page.js", "/static/live.js"]
    for path, said in zip(paths, ask(RunCache([run]), *paths), strict=True):
        assert said.status == 200, path
        assert said.headers["Content-Security-Policy"] == POLICY
        assert "unsafe" not in POLICY
        assert said.headers["X-Content-Type-Options"] == "nosniff"
        assert "Set-Cookie" not in said.headers
        assert not re.search(r"""(src|href)=["']?(https?:)?//""", said.text), path
    assert episode.finished


def test_names_are_text_wherever_they_stand(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "<i>run"
    shutil.copytree(run, copy)
    manifest = (copy / "manifest" / "000000.json").read_text()
    (copy / "manifest" / "000000.json").write_text(manifest.replace('"name": "shown"', '"name": "<b>x</b>\u202e"'))
    where = f"/run/{quote(copy.name, safe='')}"
    for said in ask(RunCache([copy]), "/", f"{where}/", f"{where}/episodes", f"{where}/live", "/compare"):
        assert said.status == 200
        assert not re.search("<[bi]>|\u202e", said.text)
    assert "&lt;i&gt;run" in said.text


def test_the_overview_has_its_facts_with_their_query_as_a_command(run: Path, reading: Reading) -> None:
    (said,) = ask(RunCache([run]), "/run/shown/")
    command = html.unescape(re.findall(r'data-copy="([^"]*)"', said.text)[0])
    words = shlex.split(command)
    assert words[:3] == ["evalkit", "sql", str(run)]
    (facts,) = open_views(run).sql(words[3]).to_pylist()
    assert facts["ended"] == reading.report.ended
    assert f'<dd>{facts["ended"]:,} <span class="small">of {reading.report.planned:,}</span>' in said.text
    assert f"<dd>{facts['steps']:,} " in said.text
    assert f"<dd>{facts['tokens']:,} " in said.text
    assert facts["spent_pico_usd"] == reading.status.spent
    assert len(said.text) < 300_000


def test_all_tables_are_there_each_with_its_query_as_a_command(run: Path, reading: Reading) -> None:
    names = [*(table.name for table in reading.report.tables), "quotes"]
    cache = RunCache([run])
    ask(cache, "/run/shown/table/quotes")  # made after the others
    for name, said in zip(names, ask(cache, *(f"/run/shown/table/{name}" for name in names)), strict=True):
        assert said.status == 200
        assert f'<section class="block first" id="{name}">' in said.text
        assert said.text.count("data-copy") == (1 if "Query" in said.text else 0)
        links = re.findall(r'href="/run/shown/table/([a-z_]+)"', said.text)
        assert links == names
    (said,) = ask(cache, "/run/shown/tables")
    assert 'id="scores"' in said.text


def test_all_figures_are_named_and_each_is_fetched_alone(run: Path, reading: Reading) -> None:
    cache = RunCache([run])
    (page,) = ask(cache, "/run/shown/figures")
    sources = re.findall(r'data-from="([^"]+)"', page.text)
    assert sources == [f"/run/shown/figure/{figure.name}" for figure in reading.figures]
    assert "vega.js?v=" in page.text
    for figure, said in zip(reading.figures, ask(cache, *sources), strict=True):
        assert f'id="figure-{figure.name}"' in said.text
        numbers = f"/run/shown/table/{figure.name}-numbers"
        assert f'href="{numbers}"' in said.text
        (table,) = ask(cache, numbers)
        assert table.status == 200
    assert [said.status for said in ask(cache, "/run/shown/figure/none", "/run/shown/table/none")] == [404, 404]


def test_a_page_comes_at_once_while_a_run_is_read_for_the_first_time(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading_may_end = threading.Event()

    def slow(directory: Path) -> Reading:
        assert reading_may_end.wait(PATIENCE_S)
        return read_run(directory)

    monkeypatch.setattr("evalkit.view.run_cache.read_run", slow)
    monkeypatch.setattr("evalkit.view.run_cache.PATIENCE_S", 0.01)

    async def play() -> None:
        async with serving(RunCache([run])) as url, aiohttp.ClientSession() as session:
            try:
                async with session.get(f"{url}/run/shown/") as answer:
                    text = await answer.text()
                assert answer.status == 202
                assert "s so far" in text
                assert 'http-equiv="refresh"' in text
            finally:
                reading_may_end.set()

    asyncio.run(play())


def test_an_asset_is_kept_by_browsers_under_the_name_of_its_version(run: Path) -> None:
    (page,) = ask(RunCache([run]), "/")
    style = re.findall(r'href="(/static/style.css[^"]*)"', page.text)[0]
    versioned, bare = ask(RunCache([run]), style, "/static/style.css")
    assert "immutable" in versioned.headers["Cache-Control"]
    assert bare.headers["Cache-Control"] == "no-store"


def test_a_table_is_given_as_csv(run: Path, reading: Reading) -> None:
    (said, none) = ask(RunCache([run]), "/run/shown/table/scores.csv", "/run/shown/table/nothing.csv")
    rows = list(csv.DictReader(io.StringIO(said.text)))
    assert [row["agent"] for row in rows] == [row["agent"] for row in reading.report.table("scores").rows]
    assert said.headers["Content-Type"].startswith("text/csv")
    assert none.status == 404


def test_numbers_of_cells_lead_to_their_episodes(run: Path, reading: Reading) -> None:
    (page,) = ask(RunCache([run]), "/run/shown/table/scores")
    cell = reading.report.cells[-1]
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="(/run/shown/episodes\?[^"]*)"', page.text)]
    (link,) = {link for link in links if "hostile" in link and "costbench" in link}
    (said,) = ask(RunCache([run]), link)
    assert f"{len(cell.episodes)} found" in said.text
    assert said.text.count('data-label="Suite">costbench/basic</td>') == len(cell.episodes)


def test_only_its_own_host_is_answered_and_only_reading(run: Path) -> None:
    async def play() -> None:
        async with client(RunCache([run])) as (url, get):
            port = url.rpartition(":")[2]
            names = ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "[::1]:80", "")
            users = (f"evil.example@127.0.0.1:{port}", f"a:b@localhost:{port}", "a@localhost", "localhost:80:80")
            ports = ("localhost:", "localhost:x", "127.0.0.1:80#", "127.0.0.1:80/", "localhost:\u0661")
            for host in (*names, *users, *ports):
                said = await get("/run/shown/", Host=host)
                assert said.status in (400, 403), host
                assert "scheduling" not in said.text
            assert (await get("/", Host=f"localhost:{port}")).status == 200
            assert (await get("/", Host=f"LocalHost:{port}")).status == 200
            for origin in ("http://evil.example", f"http://127.0.0.1:{port}@evil.example", "null"):
                assert (await get("/run/shown/", Origin=origin)).status == 403
            assert (await get("/run/shown/", Origin=url)).status == 200
            for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
                assert (await get("/run/shown/", method=method)).status == 405
            assert (await get("/run/shown/", method="HEAD")).status == 200

    asyncio.run(play())


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/run/shwon/", 404, "Did you mean"),
        ("/run/..%2f..%2fetc/", 404, "There is no run"),
        ("/nowhere", 404, "Not Found"),
        ("/static/..%2frender.py", 404, "Not Found"),
        ("/run/shown/episodes?page=0", 400, "page: &#39;0&#39; is not a page number"),
        ("/run/shown/episodes?least=1e999", 400, "is not a number"),
        ("/run/shown/episodes?order=name%3B--", 400, "is not one of"),
        ("/compare?first=%3Cscript%3E", 400, "There is no run"),
        ("/compare?first_agent=nobody", 400, "has no agent"),
    ],
)
def test_what_cannot_be_shown_is_said(run: Path, path: str, status: int, words: str) -> None:
    (said,) = ask(RunCache([run]), path)
    assert said.status == status
    assert words in said.text
    assert "<script>" not in said.text


def test_what_is_no_request_is_refused_without_a_word_in_the_terminal(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with client(RunCache([run])) as (url, get):
            for line in (b"GET /" + b"a" * 20_000 + b" HTTP/1.1", b"\x16\x03\x01 hello", b"GET / HTTP/1.1"):
                reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
                writer.write(line + b"\r\n\r\n")
                assert b" 400 Bad Request" in await reader.readline()
                writer.close()
            assert (await get("/")).status == 200

    asyncio.run(play())
    assert not caplog.records


def test_a_damaged_run_is_named_and_the_others_are_shown(run: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    (broken / "manifest").mkdir(parents=True)
    (broken / "manifest" / "000000.json").write_text("{")
    cache = RunCache([run, broken])
    said = ask(cache, "/run/broken/", "/run/shown/", "/", "/run/broken/live")
    assert [one.status for one in said] == [500, 200, 200, 500]
    assert "000000.json is damaged" in said[0].text
    assert "damaged" in said[2].text


def test_a_log_that_is_damaged_while_it_is_viewed_is_said(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalkit.view.run_cache.REST", -1.0)
    copy = tmp_path / "shown"
    shutil.copytree(run, copy)

    async def play() -> None:
        cache = RunCache([copy])
        async with client(cache) as (_, get):
            assert "is no longer readable" not in (await get("/run/shown/")).text
            for path in (copy / "steps").glob("*.parquet"):
                path.unlink()
            newest = max((copy / "log").glob("*/*.parquet"))
            (newest.parent / f"{int(newest.stem) + 1:09d}.parquet").write_bytes(b"PAR1")
            await get("/run/shown/")  # it is read again in the background
            await at_rest(cache)
            said = await get("/run/shown/")
            assert "is no longer readable" in said.text
            assert "hostile" in said.text
            assert "damaged" in (await get("/")).text

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


def test_a_port_that_is_taken_is_said(run: Path) -> None:
    async def play() -> None:
        async with serving(RunCache([run])) as url:
            with pytest.raises(UsageError, match=r"--port: cannot listen on"):
                async with serving(RunCache([run]), port=int(url.rpartition(":")[2])):
                    pass

    asyncio.run(play())


def test_runs_of_one_name_are_told_apart_and_new_ones_appear(run: Path, tmp_path: Path) -> None:
    cache = RunCache([run, run])
    assert list(cache.runs()) == ["shown", "shown-2"]
    found = RunCache([], tmp_path)
    assert not found.runs()
    (tmp_path / "new").symlink_to(run)
    assert list(found.runs().values()) == [tmp_path / "new"]
