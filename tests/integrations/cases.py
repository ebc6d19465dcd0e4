"""Episodes that every integration must score alike: policies' replies, and hostile ones, as a run has played them."""

import json
from functools import lru_cache
from typing import Any

import evalkit

NESTED = '{"a": ' * 400

WRONG: tuple[str, ...] = ("", "{", "[]", "null", "{}", "\u0000\u2028", NESTED, json.dumps({"x": "y" * 5000}))
"""Arguments that are none."""


def _calls(tools: tuple[str, ...], arguments: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{"calls": [{"name": name, "arguments": text}]} for name in tools for text in arguments]


def hostile(*tools: str) -> dict[str, Any]:
    """A script of replies that no agent should give: calls of tools that are not there and of these, in many wrong
    ways; texts that look like calls; many calls at once."""
    loud = [{"name": name, "arguments": "{}"} for name in (*tools, "nope") * 40]
    texts: list[Any] = ['{"name": "nope", "arguments": {}}', "[]", '{"text": 1}', "<answer></answer>\u00e9\ufffd"]
    said = [{"text": text, "calls": [{"name": tools[0], "arguments": "{}"}]} for text in texts]
    return {
        "replies": [{"calls": loud}, *_calls(tools[-1:], WRONG), *said, *_calls(("nope", *tools[:-1]), WRONG), *texts]
    }


PERIODS = {"periods": [4], "queries": [40]}
"""Short episodes of the environments of periods."""

Case = tuple[str, str, str, dict[str, Any]]

CASES: tuple[Case, ...] = (
    *(("scheduling/basic", "seed-3", agent, {}) for agent in ("knuth", "noisy", "random", "oracle")),
    *(("pricing/basic", "seed-3", agent, {}) for agent in ("learner", "fixed", "noisy", "random", "oracle")),
    *(("procurement/basic", "seed-3", agent, {}) for agent in ("climber", "noisy", "random", "oracle")),
    *(
        ("costbench/basic", "location-0000", agent, {})
        for agent in ("planner", "replanner", "greedy", "noisy", "random", "oracle")
    ),
    ("scheduling/basic", "seed-3", "scripted", hostile("get_worker_ids", "submit_assignment")),
    ("pricing/basic", "seed-3", "scripted", hostile("get_product_ids", "set_prices")),
    ("procurement/basic", "seed-3", "scripted", hostile("get_budget", "submit_purchase_plan")),
    (
        "costbench/basic",
        "location-0000",
        "scripted",
        hostile("Location_Refinement_Step1", "Decide_Location_Preference"),
    ),
)
"""(suite, instance, policy, its settings)"""


def case_id(case: Case) -> str:
    """`pricing-scripted`"""
    return f"{case[0].partition('/')[0]}-{case[2]}"


def instance_of(suite: str, name: str) -> evalkit.Instance:
    """The instance, with short episodes where it has periods."""
    periods = "periods" in evalkit.env(suite.partition("/")[0]).parameters
    (found,) = evalkit.suite(suite, instances=[name], vary=PERIODS if periods else {})
    return found


@lru_cache
def _played(place: int) -> evalkit.Episode:
    suite, name, agent, params = CASES[place]
    return evalkit.play(agent, instance_of(suite, name), params=params)


def played(case: Case) -> evalkit.Episode:
    """The episode as a run plays it, once in a process."""
    return _played(CASES.index(case))
