"""Nights among the runs that are shown: their page, their runs, and the comparisons that alarms lead to."""

import asyncio
import html
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from evalkit.cli.read.view import _named, first_page
from evalkit.errors import RunError
from evalkit.frozen.manifest import Manifest
from evalkit.nightly.history_files import HISTORY, derive, note
from evalkit.report.nights.history import AlarmNote, NightRecord, Rule, encode
from evalkit.view.run_cache import RunCache
from tests.view.browser import chromium, tab, viewing
from tests.view.conftest import ask, client

ALARM = AlarmNote(
    raised=True,
    p=0.001,
    threshold=0.01,
    nights=1,
    before=0.9,
    now=0.1,
    words="regression: down",
    since="2026-11-02",
    was=("2026-11-01",),
    window=("2026-11-02",),
)


@pytest.fixture
def folder(run: Path, tmp_path: Path) -> Path:
    """`runs/` with one sweep of two nights, `<b>` its name, the second with an alarm of its first cell."""
    nights = tmp_path / "runs" / "<b>" / "nights"
    for night in ("2026-11-01", "2026-11-02"):
        shutil.copytree(run, nights / night)
    history = derive(nights, (), (), Rule())
    (nights / HISTORY).write_bytes(encode([history[0], alarmed(history[1])]))
    return nights.parent.parent


def alarmed(record: NightRecord) -> NightRecord:
    """The same with an alarm of its first cell."""
    return msgspec.structs.replace(
        record, cells=(msgspec.structs.replace(record.cells[0], alarm=ALARM), *record.cells[1:])
    )


def test_simulated_money_of_nights_is_marked_among_the_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Manifest, "simulated", "simulated")
    (home,) = ask(RunCache([], folder), "/")
    assert re.search(r"<td[^>]*>simulated</td>", home.text)


def test_nights_stand_among_the_runs_and_lead_to_runs_and_comparisons(folder: Path) -> None:
    home, nights = ask(RunCache([], folder), "/", "/nights/%3Cb%3E")
    assert '<a href="/nights/%3Cb%3E">&lt;b&gt;</a>' in home.text
    assert "oracle on " in home.text
    assert "/run/" not in home.text
    assert "<b>" not in home.text + nights.text
    assert "Regression since 2026-11-02: oracle on" in nights.text
    assert '<span class="state regression">regression</span>' in nights.text
    assert re.search(r'<td class="[^"]* badge bad"[^>]*>regression</td>', home.text)
    assert re.search(r'<td class="[^"]* bad"[^>]*>oracle on ', home.text)
    assert 'id="figure-figure_trend"' in nights.text
    links = [html.unescape(link) for link in re.findall(r'href="(/(?:run|compare)[^"]+)"', nights.text)]
    assert {"/run/%3Cb%3E%2F2026-11-01/", "/run/%3Cb%3E%2F2026-11-02/"} <= set(links)
    (compared,) = (link for link in links if link.startswith("/compare?"))
    episodes = next(link for link in links if "/episodes?" in link)
    for said in ask(RunCache([], folder), links[-1], compared, episodes):
        assert said.status == 200
        assert "2026-11-0" in said.text
    assert "first=%3Cb%3E%2F2026-11-01" in compared


def test_an_accepted_alarm_is_over_and_a_deleted_night_keeps_its_line(folder: Path) -> None:
    nights = folder / "<b>" / "nights"
    (cell,) = {("oracle", suite) for suite in re.findall(r'"suite":"([^"]+)"', (nights / HISTORY).read_text())[:1]}
    note(nights, "accepted", "2026-11-02", cells=[cell])
    shutil.rmtree(nights / "2026-11-01")
    (said,) = ask(RunCache([], folder), "/nights/%3Cb%3E")
    assert "Regression since" not in said.text
    assert "2026-11-01" in said.text
    assert 'href="/run/%3Cb%3E%2F2026-11-01/"' not in said.text


def test_several_nights_are_one_side_of_a_comparison(folder: Path) -> None:
    both = "/compare?second=%3Cb%3E/2026-11-02&second_agent=noisy&first_agent=oracle&first=%3Cb%3E/2026-11-01.."
    found, missing = ask(RunCache([], folder), f"{both}2026-11-02", f"{both}2026-10-31")
    assert found.status == 200
    assert "A: 2 nights: the replicates of all of them together" in found.text
    assert '<option value="&lt;b&gt;/2026-11-01..2026-11-02" selected>' in found.text
    assert (missing.status, "There is no run" in missing.text) == (400, True)


@pytest.mark.exhaustive
def test_readings_are_let_go_and_the_list_of_runs_keeps_their_numbers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights = folder / "<b>" / "nights"
    runs = [nights / "2026-11-01", nights / "2026-11-02"]
    monkeypatch.setattr("evalkit.view.run_cache.KEPT", 60)
    cache = RunCache(runs)

    async def play() -> None:
        async with client(cache) as (_, get):
            for run in [*runs, *runs]:
                assert (await get(f"/run/%3Cb%3E%2F{run.name}/")).status == 200
                held = [one for one, slot in cache._slots.items() if slot.done is not None]
                assert held == [run]
                assert cache._slots[run].glance is not None
            home = await get("/")
            assert home.text.count("complete") == 2

    asyncio.run(play())


def test_what_is_no_history_is_said(folder: Path) -> None:
    nights = folder / "<b>" / "nights"
    (nights / HISTORY).write_text("{")
    home, damaged, other = ask(RunCache([], folder), "/", "/nights/%3Cb%3E", "/nights/c")
    assert (home.status, damaged.status, other.status) == (200, 500, 404)
    assert "damaged" in home.text
    (nights / HISTORY).unlink()
    (said,) = ask(RunCache([], folder), "/nights/%3Cb%3E")
    assert "There is no history of nights yet." in said.text


def test_a_sweep_its_nights_or_some_of_them_can_be_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    sweep = folder / "<b>"
    for name in ("<b>", str(sweep), str(sweep / "nights")):
        runs, sweeps = _named([name])
        assert (runs, [one.resolve() for one in sweeps]) == ([], [sweep])
    assert list(RunCache([], None, sweeps).everything()) == ["<b>/2026-11-02", "<b>/2026-11-01"]
    globbed = sorted(map(str, (sweep / "nights").iterdir()))
    runs, sweeps = _named(globbed)
    assert list(RunCache(runs, None, sweeps).everything()) == ["<b>/2026-11-01", "<b>/2026-11-02"]
    with pytest.raises(RunError, match="is a file"):
        _named([globbed[-1]])


def test_one_run_or_sweep_that_is_named_is_where_its_pages_begin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    night = str(folder / "<b>" / "nights" / "2026-11-01")
    for names, address in (
        (["<b>"], "/nights/%3Cb%3E"),
        ([night], "/run/%3Cb%3E%2F2026-11-01/"),
        ([night, "<b>"], ""),
    ):
        runs, sweeps = _named(names)
        assert first_page(RunCache(runs, None, sweeps)) == address
        assert not address or ask(RunCache(runs, None, sweeps), address)[0].status == 200


@pytest.mark.exhaustive
@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_of_nights_fits_and_complains_of_nothing(folder: Path, width: int, dark: bool) -> None:
    with (
        chromium() as browser,
        viewing(folder.parent) as url,
        tab(browser, f"{url}/nights/%3Cb%3E", width=width, dark=dark) as opened,
    ):
        page = opened.page
        page.locator(".plot").first.scroll_into_view_if_needed()  # charts are drawn when they come near
        page.locator(".plot[data-drawn=yes]").first.wait_for()
        assert opened.overflow() == 0
        heads = page.locator("#trend thead th").all_inner_texts() if width > 1000 else []
        assert "Remaining" in heads or width < 1000
        wide = page.locator(".scroll:has(> table)").first.evaluate("box => box.scrollWidth - box.clientWidth")
        assert wide <= 0 or width < 1000
        (first, *_) = page.locator("#alarms tbody td").all()
        assert first.evaluate("cell => getComputedStyle(cell).display") == ("table-cell" if width > 1000 else "block")
        opened.clean()
