"""The experiment that sets the window's constants meets every one of them, and its servers are what they say."""

import random

import pytest

from bench.calibrations import window as bench
from bench.calibrations.window import SERVERS, VALUES, Meeting, Server, constant, met
from evalkit.client.lanes import window
from evalkit.client.lanes.window import Window
from evalkit.errors import UsageError

QUICK = Server(name="quick", base_s=1, slots=lambda _: 20, for_s=60)


def test_every_constant_has_a_smaller_and_a_larger_value() -> None:
    constants = {name: value for name, value in vars(window).items() if name.isupper()}
    assert VALUES.keys() == constants.keys()
    for name, value in constants.items():
        assert min(VALUES[name]) < value < max(VALUES[name]), name


@pytest.mark.parametrize(
    ("names", "only", "says"),
    [(("HEADROM",), "", "Did you mean 'HEADROOM'"), ((), "no such server", "--only: no server's name holds")],
)
def test_what_does_not_exist_is_named_before_anything_is_played(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], only: str, says: str
) -> None:
    monkeypatch.setattr(bench, "met", None)
    with pytest.raises(UsageError, match=says):
        bench.main(names, only=only)


def test_a_constant_has_another_value_for_a_while() -> None:
    before = window.CUT
    with constant("CUT", 0.1):
        assert window.CUT == 0.1
    assert before == window.CUT


def test_a_full_server_is_used_and_the_figures_repeat() -> None:
    found = met(QUICK)
    assert 0.85 < found.share <= 1.02
    assert found.until < 15
    assert found.lost == 0
    assert met(QUICK) == found


def test_a_server_refuses_loses_and_is_down_as_it_says() -> None:
    refusing = Meeting(Server(name="", base_s=1, slots=lambda _: 20, queue=0, for_s=60), Window(500), random.Random(1))
    assert refusing.run().lost > 0
    assert refusing.working <= 20
    losing = met(Server(name="", base_s=1, slots=lambda _: 20, dropped=0.5, patience_s=5, for_s=60))
    assert 0.3 < losing.lost < 0.6
    down = Meeting(
        Server(name="", base_s=1, slots=lambda _: 20, outage=(20, 40), for_s=60), Window(500), random.Random(1)
    )
    down.run()
    assert not [at for at in down.replied if 25 < at < 40]
    assert [at for at in down.replied if at > 41]


def test_the_best_is_what_the_server_could_give() -> None:
    assert QUICK.best() == pytest.approx(20 * 60)
    half = Server(name="", base_s=1, slots=lambda now: 20 if now < 30 else 10, for_s=60)
    assert half.best() == pytest.approx(15 * 60)
    busy = Server(name="", base_s=1, slots=lambda _: 100, own_s=0.1, for_s=60)
    assert busy.best() == pytest.approx(10 * 60)


def test_it_prints_what_a_constant_changes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SERVERS", (QUICK,))
    bench.main(["CUT"], only="")
    said = capsys.readouterr().out
    assert "quick" in said
    assert "CUT = 0.7" in said
    assert len({server.name for server in SERVERS}) == len(SERVERS)
