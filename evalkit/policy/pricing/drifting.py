"""Forecasting figures that drift: a straight line, a swing around a level, or where they last went.

All figures share the kind of drift and the length of the swing; each has a level, a slope or a swing of its own.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]

_LENGTHS = range(5, 41)
"""Periods of a swing that are tried."""
_FEW = 4
"""With fewer periods than this a drift is not looked for."""
_FITS = 4.0
"""Mean squared error, in units of what rounding explains, up to which a drift is believed."""
_RIDGE = 1e-9


def forecast(seen: "Doubles", errors: "Doubles", times: "Doubles", time: float) -> "Doubles":
    """The figures at a time, by figure.

    `seen`: figures by times, NaN if one was not seen; `errors`: how far each may be off, same shape; `times`: when.
    NaN for a figure that was never seen.
    """
    import numpy as np

    weight = np.where(np.isnan(seen), 0.0, 1.0 / np.maximum(errors, 1e-12) ** 2)
    last = _went(seen, times, time)
    if len(times) < _FEW:
        return last
    known = weight.sum(axis=1) > 0
    data = np.where(weight > 0, seen, 0.0)[known]
    figures, flaw = last.copy(), _FITS * int((weight > 0).sum())
    for shapes in (_line(times, time), _swings(times, time)):
        values, flaws = _fitted(shapes, data, weight[known])
        best = int(np.argmin(flaws))
        if flaws[best] < flaw:
            flaw = float(flaws[best])
            figures[known] = values[best]
    return figures


def _went(seen: "Doubles", times: "Doubles", time: float) -> "Doubles":
    """Each figure's last value, moved on by half of its last change a period."""
    import numpy as np

    figures = np.full(len(seen), np.nan)
    for i, row in enumerate(seen):
        when = np.flatnonzero(~np.isnan(row))
        if len(when):
            figures[i] = row[when[-1]]
        if len(when) > 1:
            pace = (row[when[-1]] - row[when[-2]]) / (times[when[-1]] - times[when[-2]])
            figures[i] += 0.5 * pace * min(2.0, time - times[when[-1]])
    return figures


def _line(times: "Doubles", time: float) -> "Doubles":
    """One shape: level and slope at all times, then at the time asked for. Shapes by times by terms."""
    import numpy as np

    when = (np.append(times, time) - times[0]) / max(1.0, float(times[-1] - times[0]))
    return np.stack([np.ones_like(when), when], axis=-1)[None]


def _swings(times: "Doubles", time: float) -> "Doubles":
    """One shape for each length: level, sine and cosine. Shapes by times by terms."""
    import numpy as np

    angles = np.append(times, time)[None, :] * 2 * np.pi / np.array(_LENGTHS, dtype=np.float64)[:, None]
    return np.stack([np.ones_like(angles), np.sin(angles), np.cos(angles)], axis=-1)


def _fitted(shapes: "Doubles", data: "Doubles", weight: "Doubles") -> "tuple[Doubles, Doubles]":
    """Under each shape: the figures at the last of its times (shapes by figures), and how badly it fits all others.

    A fit costs two units a term and figure, so that the more flexible shape must be the better one.
    """
    import numpy as np

    past = shapes[:, :-1]
    terms = past.shape[-1]
    squares = np.einsum("ft,sti,stj->sfij", weight, past, past, optimize=True)
    squares += _RIDGE * np.einsum("sfii->sf", squares)[..., None, None] * np.eye(terms)
    mixed = np.einsum("ft,sti->sfi", weight * data, past, optimize=True)
    coefficients = np.linalg.solve(squares, mixed[..., None])[..., 0]
    left = data - np.einsum("sfi,sti->sft", coefficients, past, optimize=True)
    flaws = (weight * left**2).sum(axis=(1, 2)) + 2.0 * terms * len(data)
    return np.einsum("sfi,si->sf", coefficients, shapes[:, -1]), flaws
