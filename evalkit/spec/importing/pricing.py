"""Pricing's texts in a copy of the reference; executed in the child."""

from typing import Any

from evalkit.envs.pricing.prices import BARE_NUMBER
from evalkit.errors import UsageError
from evalkit.spec.importing.econ import Every, Field, Source, importing, parted, use
from evalkit.spec.importing.executed import Copy, Texts

BOUND, GAP = "{upper_bound_price}", "\n\n"
"""What the opening has there in place of the price that it advises not to exceed; between paragraphs."""


def _answers(_: Copy, run: Any, agent: Any) -> Texts:
    def past(n: int) -> str:
        shown = (Every(Every(Field(f"{{{name}}}"))) for name in ("price_signed", "quantity_signed", "profit_signed"))
        text: str = run.make_readable_previous_attempts_data(
            *shown, Every(Field("{cost}")), Every(Field("{product}"), n)
        )
        return text

    def refused(given: Any, *products: str) -> str:
        agent.product_ids = list(products)
        return use(agent, "set_prices", {"prices_dict_str": given})

    attempt, product = parted(past, "{products}")
    return {
        "results.history_attempt": attempt,
        "results.history_product": product,
        f"results.{BARE_NUMBER}": refused(5),
        "results.missing_products": refused({}, Field("{ids}")),
        "results.unknown_products": refused({Field("{ids}"): 1}),
    }


def _part_hint(texts: Texts) -> Texts:
    """Pricing's: the paragraph of the opening that names a price is a text of its own, since it can be left out.

    Raises UsageError if it is not a paragraph of its own.
    """
    first, *paragraphs = texts["opening"].split(GAP)
    naming = [index for index, paragraph in enumerate(paragraphs) if BOUND in paragraph]
    if BOUND in first or len(naming) > 1:
        raise UsageError(f"pricing's opening must have {BOUND} in exactly one paragraph, and not in the first.")
    if not naming:
        return texts
    hint = GAP + paragraphs.pop(naming[0]).replace(BOUND, "{price_short}")
    before, after = paragraphs[: naming[0]], paragraphs[naming[0] :]
    return {**texts, "opening": GAP.join([first, *before]) + GAP.join(["{hint}", *after]), "hint": hint}


IMPORT = importing(
    "pricing",
    Source(
        folder="pricing",
        agent="PricingAgent",
        texts={"system": "SYSTEM_PROMPT_V1", "opening": "INITIAL_PROMPT_V1", "reply": "PROMPT_V1"},
        variant="REASONING",
        twice=("get_previous_pricing_data",),
        results=_answers,
        fit=_part_hint,
    ),
    30,
)
