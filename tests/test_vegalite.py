"""The check of specs sees what a drawing would pass over in silence."""

from evalkit.report.vega import data, mark, number, spec_of
from tests.vegalite import schema_flaw


def test_a_property_that_vega_lite_does_not_know_is_a_flaw() -> None:
    drawing = {"data": data([{"a": 1}]), **mark("point", {"x": number("a")})}
    assert schema_flaw(spec_of(drawing, "Title")) == ""
    wrong = {"data": data([{"a": 1}]), **mark("point", {"x": number("a", tilte="A")})}
    assert "tilte" in schema_flaw(spec_of(wrong, "Title"))
