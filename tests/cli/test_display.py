import io
import json
from typing import Any

import pytest
from msgspec import structs
from rich.console import Console

from evalkit.cli.display import LINE_EVERY_S, display, plain, render
from evalkit.cli.question_words import server_words
from evalkit.client.lanes.stats import ServerStats
from evalkit.engine.view import CellView, LaneView, View


def lane(i: int, **more: Any) -> LaneView:
    values: dict[str, Any] = {
        "name": f"provider-{i % 4}/model-{i}",
        "episodes": 1200,
        "target": 1200,
        "done": 30 * i,
        "playing": 16,
        "steps": 9,
        "rate": 12.4 * i,
        "in_flight": 12,
        "window": 64,
        "waiting": 3 * i,
        "waits_for": "requests per minute" if i % 2 else "window",
        "paused_s": 0.0,
        "latency_s": 1.2,
        "failures": {},
        "left": {},
    }
    return LaneView(**{**values, **more})


def view(*lanes: LaneView, **more: Any) -> View:
    values: dict[str, Any] = {
        "simulated": "",
        "spent": 2 * 10**12,
        "reserved": 10**10,
        "budget": 4 * 10**12,
        "stopping": "",
    }
    return View(name="x", elapsed_s=61.0, lanes=lanes, **{**values, **more})


def shown(one: View, width: int, height: int) -> list[str]:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(render(one, width, height))
    return capture.get().splitlines()


@pytest.mark.parametrize(("count", "width", "height"), [(1, 80, 24), (3, 80, 24), (20, 80, 24), (20, 120, 40)])
def test_it_fits_the_terminal_with_the_money_below(count: int, width: int, height: int) -> None:
    lanes = [lane(i, failures={"rate_limit": i} if i % 5 == 4 else {}) for i in range(count)]
    lines = shown(view(*lanes), width, height)
    assert len(lines) <= height - 1
    assert max(map(len, lines)) <= width
    assert "$2.00 of $4.00 spent" in lines[-1]
    assert "$0.0100 reserved" in lines[-1]
    if count == 20:
        assert "5,700/24,000 episodes" in lines[-2]


def test_the_workers_are_told_where_several_processes_play() -> None:
    assert not any("workers" in line for line in shown(view(lane(1)), 100, 24))
    assert "workers" not in view(lane(1)).to_json()
    several = view(lane(1), workers="3 of 4; 2 replaced since the start")
    (line,) = (line for line in shown(several, 100, 24) if "$2.00 of $4.00 spent" in line)
    assert line.startswith("61 s   workers 3 of 4; 2 replaced since the start   ")
    assert several.to_json()["workers"] == several.workers


def test_with_a_limit_the_totals_are_those_of_the_call() -> None:
    lines = shown(view(lane(1, target=40)), 100, 24)
    assert any(" 30/40 " in line for line in lines)
    assert any(line.startswith("30/40 episodes (--limit; 1,200 in all)") for line in lines)
    assert "(--limit" not in "\n".join(shown(view(lane(1), lane(2)), 100, 24))
    assert plain(view(lane(1, target=40))).startswith("30/40 episodes (--limit; 1,200 in all)")


def test_it_says_that_first_replies_are_awaited_then_what_remains() -> None:
    policy = lane(2, name="policy", window=0, steps=900)
    for requests, words in ((29_516, "~29,516 replies awaited"), (None, "first replies awaited")):
        lines = shown(view(lane(1, steps=0), policy, eta_s=90.0, requests_left=requests), 80, 24)
        assert words in lines[-1]
        assert "to go" not in lines[-1]
        assert len(lines[-1]) <= 80
    assert "~29,516 requests to go" in shown(view(lane(1), policy, requests_left=29_516), 80, 24)[-1]
    assert "about 4 min to go" in shown(view(lane(1), policy, eta_s=240.0), 80, 24)[-1]
    assert "to go" not in shown(view(lane(1), eta_s=240.0, stopping="budget"), 80, 24)[-1]


class Terminal(io.StringIO):
    """What a terminal is sent."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_first_seconds_say_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    now = [100.0]
    monkeypatch.setattr("evalkit.cli.display.monotonic", lambda: now[0])
    monkeypatch.setattr("sys.stderr", screen := Terminal())
    with display(json_lines=False) as show:
        show.phase("reading the sweep")
        now[0] += 7
        show.phase("forecasting what episodes take")
        assert "reading the sweep ...   0 s" in screen.getvalue()
        assert "forecasting what episodes take ...   7 s" in screen.getvalue()


def test_a_file_gets_no_lines_about_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    for json_lines in (False, True):
        with display(json_lines=json_lines) as show:
            show.phase("reading the sweep")
    assert capsys.readouterr().err == ""


def test_of_many_lanes_those_in_trouble_are_shown_and_the_rest_is_counted() -> None:
    lanes = [lane(i) for i in range(40)]
    lanes[30] = lane(30, paused_s=30.0, failures={"timeout": 4})
    lines = shown(view(*lanes), 80, 24)
    assert any(line.startswith("provider-2/model-30 ") for line in lines)
    assert "provider-2/model-30: paused, retries in 30 s, timeout 4" in [line.strip() for line in lines]
    (rest,) = [line for line in lines if "more lanes" in line]
    listed = sum(line.startswith("provider-") and ":" not in line for line in lines)
    assert rest.startswith(f"and {40 - listed} more lanes: ")


@pytest.mark.parametrize("width", [80, 130])
def test_it_says_what_each_lane_waits_for(width: int) -> None:
    text = "\n".join(shown(view(lane(1), lane(2), lane(3, ended="The key was refused.")), width, 24))
    assert "requests per minute" in text
    assert "provider-3/model-3: The key was refused." in text
    assert ("waits for requests per minute: provider-1/model-1" in text) == (width == 80)


def test_what_is_left_is_counted_while_others_are_played() -> None:
    assert plain(view(lane(1, left={"agent_error": 8, "stopped": 2, "stable": 4}))).endswith(": agent_error 8")


def test_where_the_whole_run_stops_no_lane_says_so_again() -> None:
    assert "m: m: " not in plain(view(lane(1, name="m", ended="m: The key was refused.")))
    assert "Interrupted." not in plain(view(lane(1, ended="Interrupted."), stopping="interrupt"))


def test_names_and_words_of_others_cannot_move_the_cursor() -> None:
    text = "\n".join(shown(view(lane(1, name="a\x1b[2J", ended="\x1b]0;x\x07")), 100, 24))
    assert "\x1b]" not in text
    assert "\\x1b[2J" in text
    assert "\x1b" not in plain(view(lane(1, name="a\x1b[2J", failures={"x": 1})))


def test_without_a_terminal_lines_are_plain_words_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    for json_lines in (False, True):
        with display(json_lines=json_lines) as show:
            show(view(lane(1)))  # nothing yet: lines are some seconds apart
            show(view(lane(1, failures={"timeout": 2}), stopping="budget"))  # but a stop is told at once
        said = capsys.readouterr().err
        if json_lines:
            (line,) = [json.loads(one) for one in said.splitlines()]
            assert (line["stopping"], line["lanes"]["provider-1/model-1"]["failures"]) == ("budget", {"timeout": 2})
        else:
            assert said == (
                "30/1,200 episodes   12 steps/s   61 s   $2.00 of $4.00 spent   $0.0100 reserved   "
                "stopping (budget): waiting for replies in flight\n  provider-1/model-1: timeout 2\n"
            )


def test_the_first_line_comes_some_seconds_after_the_first_view_however_long_the_start_took(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("evalkit.cli.display.monotonic", lambda: now[0])
    with display(json_lines=True) as show:
        now[0] += 60
        show(view(lane(1)))
        assert capsys.readouterr().err == ""
        now[0] += LINE_EVERY_S
        show(view(lane(1)))
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_each_server_of_a_lane_is_told_in_short() -> None:
    def server(name: str, **more: Any) -> ServerStats:
        values: dict[str, Any] = {"in_flight": 12, "window": 16, "replies": 9, "down_s": 0.0, "paused_s": 0.0}
        return ServerStats(server=name, trouble="", latency_s=1.2, **{**values, **more})

    gone = structs.replace(server("gpu2:8000", in_flight=0, down_s=40.2), trouble="nothing \x1blistens")
    told = [server("gpu1:8000"), gone, server("gpu3:8000", paused_s=7.0)]
    words = "gpu2:8000 down for 40 s (nothing \\x1blistens), gpu3:8000 paused for 7 s, gpu1:8000 12/16"
    one = view(lane(1, servers=tuple(told)))
    assert f"provider-1/model-1: servers {words}" in shown(one, 160, 24)
    assert words in plain(one)
    said = one.to_json()["lanes"]["provider-1/model-1"]["servers"]
    assert [(each["server"], each["in_flight"], each["down_s"]) for each in said] == [
        ("gpu1:8000", 12, 0.0),
        ("gpu2:8000", 0, 40.2),
        ("gpu3:8000", 12, 0.0),
    ]
    assert "servers" not in view(lane(1)).to_json()["lanes"]["provider-1/model-1"]
    many = server_words([server(f"gpu{i}:8000") for i in range(30)])
    assert many.endswith("gpu7:8000 12/16, 22 more 264/352")


def test_what_is_published_has_the_time_and_the_cells() -> None:
    cell = CellView(agent="gpt", suite="scheduling/basic", planned=12, ended=5)
    said = view(lane(1), cells=(cell,)).published()
    assert said["event"] == "live"
    assert said["at"] > 1.7e9
    assert said["cells"] == [["gpt", "scheduling/basic", 5, 12]]
    assert said["reserved_usd"] == 0.01
