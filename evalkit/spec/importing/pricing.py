"""Pricing's texts from a copy of the reference."""

import ast

from evalkit.envs.pricing.prices import BARE_NUMBER
from evalkit.errors import UsageError
from evalkit.spec.importing.econ import Source, importing
from evalkit.spec.importing.record import Texts
from evalkit.spec.importing.results import SAME, Read, nested_history, notices

# Expressions of the reference -> fields of ours.
_PRICES = {
    "i": "{attempt}",
    "product_ids[j]": "{product}",
    "prices_list[i][product_ids[j]]": "{price_signed}",
    "quantities_list[i][product_ids[j]]": "{quantity_signed}",
    "profits_list[i][product_ids[j]]": "{profit_signed}",
    "costs[product_ids[j]]": "{cost}",
}
_REASONS = {
    "unpriced_products": "results.missing_products",
    "extra_products": "results.unknown_products",
}
"""What holds the offending ids there; they are shown as a set."""

BOUND = "{upper_bound_price}"
"""What pricing's opening there has in place of the price that it advises not to exceed."""
GAP = "\n\n"


def results_of(read: Read) -> Texts:
    """Pricing's: history, notices, and why prices are refused."""
    texts = dict(SAME)
    run = read("run_pricing_experiment.py")
    if run is not None:
        texts |= nested_history(run, _PRICES, "product", "{products}")
        texts |= notices(run)
        texts |= _price_refusals(run)
    return texts


def _price_refusals(code: ast.Module) -> Texts:
    """Why prices are refused: a text for a bare number, and formatted strings that end in the offending ids, which are
    shown as a set."""
    texts: Texts = {}
    for node in ast.walk(code):
        match node:
            case ast.If(
                test=test,
                body=[ast.Return(value=ast.Tuple(elts=[ast.Constant(), ast.Constant(value=str(text))]))],
            ) if "isinstance" in ast.unparse(test):
                texts.setdefault(f"results.{BARE_NUMBER}", text)
            case ast.JoinedStr(values=[ast.Constant(value=str(text)), ast.FormattedValue(value=ast.Name(id=name))]) if (
                name in _REASONS
            ):
                texts[_REASONS[name]] = text + "{{ids}}"
    return texts


def _part_hint(texts: Texts) -> Texts:
    """Pricing's: the paragraph of the opening that names a price is a text of its own, since it can be left out.

    Raises UsageError if it is not a paragraph of its own.
    """
    paragraphs = texts["opening"].split(GAP)
    naming = [index for index, paragraph in enumerate(paragraphs) if BOUND in paragraph]
    if not naming:
        return texts
    if len(naming) > 1 or naming[0] == 0:
        raise UsageError(f"pricing's opening must have {BOUND} in exactly one paragraph, and not in the first.")
    index = naming[0]
    hint = (GAP + paragraphs[index]).replace(BOUND, "{price_short}")
    return {
        **texts,
        "opening": GAP.join(paragraphs[:index]) + GAP.join(["{hint}", *paragraphs[index + 1 :]]),
        "hint": hint,
    }


IMPORT = importing(
    "pricing",
    Source(
        folder="pricing",
        texts={"system": "SYSTEM_PROMPT_V1", "opening": "INITIAL_PROMPT_V1", "reply": "PROMPT_V1"},
        tools="TOOLS_V1",
        variant_texts={"system": "SYSTEM_PROMPT_V1_REASONING"},
        variant_tools="TOOLS_V1_REASONING",
        results=results_of,
        fit=_part_hint,
    ),
    30,
)
