import numpy as np
import pytest
from scipy import stats

from evalkit.report.report import Report
from evalkit.report.run_data import RunData
from evalkit.report.sizes import half_width, size, sizes_table


def nested(n: int, r: int, between: float, within: float) -> dict[str, list[float]]:
    draws = np.random.Generator(np.random.Philox(n))
    values = draws.normal(0.5, between, (n, 1)) + draws.normal(0, within, (n, r))
    return {str(i): row.tolist() for i, row in enumerate(values)}


def test_spread_between_and_within_instances_is_told_apart() -> None:
    found = size(nested(400, 4, 0.2, 0.1), 0.01)
    assert found is not None
    assert (found.instances, found.replicates) == (400, 4)
    assert found.between == pytest.approx(0.2, rel=0.1)
    assert found.within == pytest.approx(0.1, rel=0.1)


def test_the_numbers_named_are_the_first_that_do() -> None:
    values = nested(20, 3, 0.1, 0.3)
    found = size(values, 0.09)
    assert found is not None
    assert found.more_instances is not None
    assert found.more_replicates is not None
    assert found.within is not None
    between, within = found.between, found.within
    means = [np.mean(row) for row in values.values()]
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 19) * stats.sem(means))
    variance = float(np.var(means, ddof=1))
    enough = 20 + found.more_instances
    assert half_width(variance, enough) <= 0.09 < half_width(variance, enough - 1)

    def with_replicates(r: float) -> float:
        return half_width(between**2 + within**2 / r, 20)

    assert with_replicates(3 + found.more_replicates) <= 0.09 < with_replicates(2 + found.more_replicates)


def test_replicates_alone_do_not_make_up_for_few_instances() -> None:
    found = size(nested(6, 5, 0.3, 0.05), 0.05)
    assert found is not None
    assert found.more_replicates is None
    assert found.more_instances is not None
    assert found.more_instances > 50


def test_what_is_narrow_enough_takes_nothing() -> None:
    found = size(nested(100, 2, 0.1, 0.1), 0.2)
    assert found is not None
    assert (found.more_instances, found.more_replicates, found.more_range) == (0, 0, (0, 0))
    once = size({str(i): [i / 10] for i in range(10)}, 0.1)
    assert once is not None
    assert (once.within, once.more_replicates) == (None, None)


def test_a_plan_has_the_range_that_its_pilot_leaves_open() -> None:
    draws = np.random.Generator(np.random.Philox(31))
    sigma, wanted = 0.15, 0.03
    need = next(n for n in range(6, 1000) if half_width(sigma**2, n) <= wanted)
    inside = assured = middle = 0
    for _ in range(studies := 400):
        found = size({str(i): [value] for i, value in enumerate(draws.normal(0.5, sigma, 10).tolist())}, wanted)
        assert found is not None
        low, high = found.more_range
        assert low is not None
        assert high is not None
        assert found.more_instances is not None
        assert low <= found.more_instances <= high
        inside += 10 + low <= need <= 10 + high
        assured += need <= 10 + high
        middle += need <= 10 + found.more_instances
    # Four standard errors of 400 studies are 8 points.
    assert abs(inside / studies - 0.8) <= 0.08
    assert abs(assured / studies - 0.9) <= 0.06
    assert 0.3 < middle / studies < 0.6


def test_instances_that_agree_in_their_means_alone_take_no_more() -> None:
    found = size({name: [0.0, 1.0] for name in "abcd"}, 0.05)
    assert found is not None
    assert (found.more_instances, found.more_range) == (0, (0, 0))


def test_strata_take_their_spread_out() -> None:
    values = {str(i): [0.1 * (i % 3) + 0.8 * (i % 2)] for i in range(24)}
    whole, within = size(values, 0.05), size(values, 0.05, {str(i): "ab"[i % 2] for i in range(24)})
    assert whole is not None
    assert within is not None
    assert whole.more_instances is not None
    assert within.more_instances == 0 < whole.more_instances


def test_what_cannot_be_said() -> None:
    assert size({"a": [1.0], "b": [0.0]}, 0.05) is None
    assert size({name: [1.0, 1.0] for name in "abcd"}, 0.05) is None
    with pytest.raises(ValueError, match="above 0"):
        size({}, 0.0)
    far = size({str(i): [1e6 * i] for i in range(5)}, 1e-6)
    assert far is not None
    assert far.more_instances is None


def test_the_table_has_a_row_a_cell(the_report: Report) -> None:
    table = sizes_table(RunData(the_report.manifest, the_report.cells), 0.05)
    assert len(table.rows) == len(the_report.cells)
    assert table.rows[0] == {"suite": "game/basic", "agent": "good", "instances": 4}
