"""CostBench's lines by hand, and a catalogue that has a graph beside its chains."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.costbench.domain.catalogue_files import parse_catalogue, shipped
from evalkit.envs.costbench.domain.ids import preferences_at
from evalkit.envs.costbench.domain.query import Query
from evalkit.envs.costbench.instances.instance import PlanningProblem

GRAPH = "parcel"
TRAVEL = shipped("travel")
DECIDE, SEARCH, STEP1, STEP2, SELECT = (
    "Decide_Dining_Preference",
    "Search_Dining_Candidates",
    "Dining_Refinement_Step1",
    "Dining_Refinement_Step2",
    "Select_Final_Dining",
)
ATOMIC = (DECIDE, SEARCH, STEP1, STEP2, SELECT)
"""The atomic tools of dining in five calls, in order."""

DINING: dict[str, Any] = {
    "id": "dining",
    "environment": "costbench",
    "task": "dining",
    "query": {
        "id": "<Query00007>",
        "preferences": {
            "category": "bakery",
            "feature_package": "unique_themed_environment",
            "style": "value_for_money_priority",
            "tier": "simple_and_budget_eats",
        },
        "given": {"TimeInfo": 3119, "LocationPreference": 2},
        "number": 512,
        "text": "Somewhere cheap with cakes.",
    },
}
"""The last combination of wishes at the second place to travel to."""


def alternative(number: int, context: int = 1) -> dict[str, Any]:
    """Another query of dining: its combination's number from 1, at one place to travel to."""
    return {
        "id": f"<Query{number:05d}>",
        "preferences": preferences_at(TRAVEL, "dining", "test", number - 1),
        "given": {"TimeInfo": 5, "LocationPreference": context},
        "number": (context - 1) * 256 + number,
        "text": "On second thoughts.",
    }


CHANGED: dict[str, Any] = {
    **DINING,
    "block": "preference_change",
    "alternatives": [alternative(1), alternative(9, context=3)],
}
REFERENCE: dict[str, Any] = {**CHANGED, "generator": "reference", "seed": 42, "alternatives_seed": 42, "blocks": 2}


def bare_query(number: int) -> Query:
    """A query of which only its number matters."""
    return Query(id=f"<Query{number:05d}>", preferences={}, given={}, number=number, text="")


def bare_instance(**given_fields: Any) -> PlanningProblem:
    """An instance of dining over bare queries; every field may be given otherwise."""
    fields: dict[str, Any] = {
        "id": "one",
        "catalogue": TRAVEL,
        "catalogue_name": "travel",
        "task": "dining",
        "length": 5,
        "split": "test",
        "query": bare_query(1),
        "generator": "native",
        "seed": 42,
        "low": 15,
        "high": 25,
        "noise": 0.1,
        "distribution": "uniform",
        "whole": False,
        "alternatives": tuple(bare_query(900 + i) for i in range(8)),
    }
    return PlanningProblem(**{**fields, **given_fields})


def plain_catalogue(steps: int = 0) -> dict[str, Any]:
    """The travel catalogue with a graph task added, as plain values; `steps`: tools that need nothing of each other."""
    plain: dict[str, Any] = msgspec.to_builtins(TRAVEL)
    tools = [
        {"name": "Pack_And_Send", "inputs": ["ParcelTier"], "output": "Sent", "components": ["Pack", "Send"]},
        {"name": "Pack", "inputs": ["ParcelTier"], "output": "Packed"},
        {"name": "Send", "inputs": ["Packed"], "output": "Sent"},
        {"name": "Weigh", "inputs": ["TimeInfo"], "output": "Weighed"},
        {"name": "Bill", "inputs": ["Sent", "Weighed", *(f"Part{i}x" for i in range(steps))], "output": "Billed"},
        *({"name": f"Make{i}", "inputs": ["ParcelTier"], "output": f"Part{i}x"} for i in range(steps)),
    ]
    plain["tasks"][GRAPH] = {
        "about": "a parcel on its way",
        "test": plain["tasks"]["dining"]["test"],
        "graph": {
            "start": ["TimeInfo", "ParcelCategory", "ParcelTier", "ParcelStyle", "ParcelFeaturePackage"],
            "goal": "Billed",
            "tools": [{**tool, "text": "Does it."} for tool in tools],
        },
    }
    return plain


@lru_cache(maxsize=1)
def catalogue_with_a_graph() -> Catalogue:
    """`plain_catalogue()` as a catalogue."""
    return parse_catalogue(plain_catalogue(), "test")


PARCEL: dict[str, Any] = {
    "id": "parcel",
    "environment": "costbench",
    "catalogue": plain_catalogue(),
    "task": GRAPH,
    "query": {**DINING["query"], "given": {"TimeInfo": 3119}, "number": 256},
}


def again(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line as a file gives it back."""
    found: dict[str, Any] = orjson.loads(orjson.dumps(line))
    return found
