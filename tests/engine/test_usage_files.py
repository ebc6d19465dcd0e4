"""Usage files as strangers may write them: read in linear time, or refused with file and line."""

from contextlib import suppress
from pathlib import Path

import pytest

from evalkit.engine.spending.usage import read_usage
from evalkit.errors import UsageError
from tests.support.each_case import check_each
from tests.support.growth import assert_linear
from tests.support.hostile_replies import BODIES

FIGURES = ("9" * 400, "9" * 60_000, "0." + "9" * 60_000, "1e999999999", "1e-999999999", "1e" + "9" * 400, "nan", "-1")
MORE = ("inf", "sNaN", "٣", "0x10", "1_0", "[]", "{}", '"' * 3, "true")


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("before", [b"", b"request_id,cost\n", b'{"request_id":"e/1/0","cost":0}\n'])
def test_any_file_is_read_in_linear_time_or_refused(before: bytes, tmp_path: Path) -> None:
    path = tmp_path / "usage"

    def read(content: bytes) -> None:
        path.write_bytes(before + content)
        with suppress(UsageError):
            list(read_usage(path))

    check_each(BODIES.items(), lambda make: assert_linear(make, read))


@pytest.mark.parametrize("name", ["cost", "cost_usd", "tokens_in", "tokens_out", "tokens_cached"])
def test_any_figure_is_read_or_refused(name: str, tmp_path: Path) -> None:
    figures = [(figure[:20], figure) for figure in (*FIGURES, *MORE)]
    check_each(figures, lambda figure: read_figure(name, figure, tmp_path / "usage"))


def read_figure(name: str, figure: str, path: Path) -> None:
    for line in (f"request_id,{name}\ne/1/0,{figure}\n", f'{{"request_id":"e/1/0","{name}":{figure}}}\n'):
        path.write_text(line)
        try:
            (billed,) = read_usage(path)
        except UsageError as flaw:
            assert len(str(flaw)) < 1000  # noqa: PT017
        else:
            assert billed.cost is None or 0 <= billed.cost < 2**103


def test_a_mark_of_utf_8_is_no_part_of_the_first_column_and_other_encodings_are_told(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    for text in ("request_id,cost\ne/1/0,7\n", '{"request_id":"e/1/0","cost":7}\n'):
        path.write_bytes(text.encode("utf-8-sig"))
        (billed,) = read_usage(path)
        assert (billed.episode, billed.cost) == ("e", 7)
        path.write_bytes(text.encode("utf-16"))
        with pytest.raises(UsageError, match="not UTF-8 text, but UTF-16"):
            list(read_usage(path))
