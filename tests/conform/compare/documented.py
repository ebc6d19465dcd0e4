"""Where evalkit computes something else than the reference code, on purpose. Each has an id and a reason.

A checker may name a difference only after it has shown that the golden value follows from the reference's rule: nothing
else may hide behind an id.
"""

from collections.abc import Mapping

DOCUMENTED: Mapping[str, str] = {
    "action-crash": "what ends the reference's run with an unhandled exception is refused with a text to the agent",
    "action-bounded": "an action of more than 64 KiB, or nested more than 100 deep, is refused unread",
    "own-denominator-and-exploration": (
        "the score's denominator is the exact expectation, not the mean of 10,000 samples; the exploration rate is "
        "distinct over submitted assignments, where the reference's u / (u + 1) counts the nulls of its query rows too"
    ),
    "call-beside-answer": (
        "a call in the reply that answers is not carried out and does not count; the reference, which does not carry "
        "it out either, counts it as a valid call of cost 0 and puts it into the agent's path"
    ),
    "malformed-id-to-a-composite": (
        "a composite that is called with a malformed id is refused free of charge; the reference, whose result then "
        "does not begin with `[ERROR]`, charges it, puts it into the path and gives its output type. "
        'malformed_ids = "charged" plays by that rule, as do the sweeps of the paper\'s tables'
    ),
    "banned-name-of-no-tool": (
        "a banned name that no tool has is told the same sentence each time; the reference breaks on the second call "
        "and counts what it then says as a success. Path, cost and all other figures are the same"
    ),
    "searched-price": (
        "both prices of a duopoly are roots of equations; the reference's numerical search ends up to 4e-6 of alpha "
        "away. Profits at its own prices, hints and quantities are the same"
    ),
    "exact-reliability": (
        "reliabilities of rates are exact fractions; the reference adds up floats, and its last digits differ by 1e-15"
    ),
    "whole-quantities": (
        "a purchase plan with negative or fractional quantities is refused with a text to the agent; the reference "
        "takes it, and such a plan may support more workers than the optimum, or a complex number of them"
    ),
    "budget-in-cents": (
        "a plan that costs exactly the budget can be bought; the reference adds up floats, which may come out above it"
    ),
    "solver-gap": (
        "the reference's solver stops within its default gap and may miss the best plan; evalkit's is proven, can be "
        "bought by the reference's own rule, and supports more workers by it"
    ),
    "exploration-by-what-is-bought": (
        "two plans are the same if they buy the same; the reference compares how they are written, order of deals and "
        "zeros included. Its figure is the metric exploration_rate_text"
    ),
    "no-feasible-plan": (
        "a run without a feasible plan scores 0; the reference leaves it out of its means, as does reference_score"
    ),
    "closed-form-optimum": (
        "pricing's optimum is a closed form; the reference's numerical search stops up to 4e-13 of the profit, and "
        "4e-7 of a price, away from it, and so does every score that is divided by its optimum"
    ),
}
