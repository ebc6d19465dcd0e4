"""Procurement's texts in a copy of the reference; executed in the child."""

import re
import sys
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

from evalkit.spec.importing.econ import Every, Field, Source, importing
from evalkit.spec.importing.executed import Copy, Texts

ATTEMPTS = 100
"""How many attempts the texts speak of there."""
ITEM, MANY = "qqitemqq", 98765


def _answers(copy: Copy, run: Any, _: Any) -> Texts:
    seen = list[str]()
    sys.modules["inflect"] = _inflect(seen)
    rules = copy.module("opt_solver")
    names = {
        "id": Field("{deal}"),
        "cost": Field("{price}"),
        "variable_cost": Field("{price}"),
        "fixed_cost": Field("{fixed}"),
    }

    def past(feasible: bool) -> str:
        shown = (Every(Field(f"{{{name}}}")) for name in ("plan", "cost", "workers"))
        text: str = run.make_readable_previous_attempts_data(*shown, Every(feasible), Every(Field("{reasons}")))
        return text

    def line(kind: str, contents: Mapping[str, int]) -> str:
        deal = SimpleNamespace(**names, min_quantity=Field("{least}"), type=kind, contents=contents)
        deal.to_str = lambda: rules.Entry.to_str(deal)
        return str(rules.Menu([deal]).to_str())

    texts = {"results.history_supported": past(True), "results.history_invalid": past(False)}
    texts["results.menu_basic"] = line("basic", {ITEM: 1, ITEM * 2: MANY})
    for key, text in zip(("unit", "units"), seen, strict=True):
        texts[f"results.menu_{key}"] = (
            text.replace(ITEM * 2, "{item}").replace(ITEM, "{item}").replace(str(MANY), "{units}")
        )
    # Joined by a library, in the one way it has.
    texts |= {"results.menu_pair": "{first} and {last}", "results.menu_list": "{first}, and {last}"}
    texts |= {f"results.menu_{kind}": line(kind, {}) for kind in ("two_part_tariff", "bulk_discount")}
    deal = SimpleNamespace(id=Field("{deal}"), type="bulk_discount", cost=1, min_quantity=MANY + 1, contents={ITEM: 1})
    deal.get_cost = lambda n: rules.Entry.get_cost(deal, n)
    shown = {f"{MANY + 2}.00": "{cost}", f"{MANY}.00": "{budget}", str(MANY + 1): "{least}", str(MANY): "{quantity}"}
    for key, count in (("over_budget", MANY + 2), ("under_minimum", MANY)):
        text = rules.evaluate_alloc(rules.Menu([deal]), {deal.id: count}, [[ITEM]], {ITEM: 1}, MANY, "min", [1])[1]
        for number, name in shown.items():
            text = text.replace(number, name)
        texts[f"results.{key}"] = text
    return texts


def _inflect(seen: list[str]) -> ModuleType:
    """In place of the library that words a list, so that the list is a field; `seen` gets what it was given."""
    module = ModuleType("inflect")

    def join(parts: list[str]) -> str:
        seen[:] = parts
        return "{contents}"

    engine = SimpleNamespace(join=join, plural=lambda word, n: word if n == 1 else f"{word}s")
    module.__dict__["engine"] = lambda: engine
    return module


IMPORT = importing(
    "procurement",
    Source(
        folder="procurement",
        agent="ProcurementAgent",
        texts={"system": "SYSTEM_PROMPT_V1", "opening": "INITIAL_PROMPT_V1", "reply": "PROMPT_V1"},
        variant="O3",
        twice=("get_previous_purchase_data", "get_equipment_information"),
        results=_answers,
        # The reference says how many attempts there are in its text, we fill the number in.
        fit=lambda texts: {**texts, "system": re.sub(rf"\b{ATTEMPTS}\b", "{periods}", texts["system"])},
        wordings={
            "known_horizon": "SYSTEM_PROMPT_V1_KNOWN_HORIZON",
            "known_horizon_goal": "SYSTEM_PROMPT_V1_GRADED_BEST",
        },
    ),
    20,
)
