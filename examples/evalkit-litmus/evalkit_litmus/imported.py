"""The litmus tests' texts in a copy of the reference; executed in a process of its own."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evalkit.spec.importing.econ import ROOT, Every, Field, Source, importing, use
from evalkit.spec.importing.executed import Copy, PromptImport, Texts, absent_text, table_text
from evalkit_litmus.duopoly.environment import ALONE, HISTORY

GOALS = ("main", "efficiency", "equality")
TASK = 98765
"""A task's size, which shows as a number."""


def _allocation(_: Copy, run: Any, agent: Any) -> Texts:
    task, worker = Field("{task}"), Field("{worker}")
    sizes = Every(Field("{size}"))
    run.round = lambda value, _: value
    run.sum = lambda _: Field("{total}")

    def past(alloc: dict[Any, Any]) -> str:
        paid, total, earned = (Every(Every(Field(f"{{{name}}}"))) for name in ("pay", "total", "revenue"))
        text: str = run.make_readable_period_history(
            worker_ids=list(alloc),
            task_ids=[0],
            task_id_to_task_size=sizes,
            worker_per_period_pay=paid,
            worker_cumulative_pay=total,
            worker_to_company_revenue=earned,
            company_revenue=Revenues(),
            alloc_attempts=[alloc],
        )
        return text

    run.enumerate = lambda values: ((Field("{attempt}"), value) for value in values)
    with_task, without = past({task: worker}), past({})
    start = next(place for place, (one, other) in enumerate(zip(with_task, without, strict=False)) if one != other)
    line = with_task[start : start + len(with_task) - len(without)]
    ids = Field("{ids}")

    def refused(given: dict[Any, Any], workers: list[str], tasks: list[str]) -> str:
        named = {"worker_ids": workers, "task_ids_this_period": tasks}
        return use(agent, "submit_assignment", {"assignment": given}, **named)

    return {
        "system": "{goal}",
        "results.history_empty": _empty(run),
        "results.history_task": line,
        "results.history_period": without[:start] + "{tasks}" + without[start:],
        "results.task": use(agent, "get_task_info", task_ids_this_period=[task], task_id_to_task_size=sizes),
        "results.missing_workers": refused({}, [ids], []),
        "results.missing_tasks": refused({"t": "w"}, ["w"], ["t", ids]),
        "results.unknown_workers": refused({"t": ids}, [], ["t"]),
        "results.unknown_tasks": refused({ids: "w"}, ["w"], []),
    }


class Revenues(Every):
    """A company's revenues: of one period, or of all until then."""

    def __init__(self) -> None:
        super().__init__(Field("{revenue}"))

    def __getitem__(self, place: Any) -> Any:
        return [] if isinstance(place, slice) else super().__getitem__(place)


def _empty(run: Any) -> str:
    text: str = run.make_readable_period_history([], [], {}, [], [], [], [], [])
    return text


def _duopoly(copy: Copy, run: Any, agent: Any) -> Texts:
    listed, lists = run.period_list_to_legible, list[str]()

    def legible(columns: list[list[Any]], names: list[str]) -> str:
        lists.append(listed([Every(column[0]) for column in columns], names))
        return "{attempts}"

    attempt, number = [Field("{attempt}")], [Field("{number}")]
    run.period_list_to_legible = legible

    def past(sellers: int) -> str:
        run.range = lambda first, last=None: number * (sellers - 1) if last is not None else attempt * first
        agent.id, agent.data_accessed_this_period = 0, False
        names = {"prices": "{price}", "quantities": "{quantity}", "profits": "{profit}"}
        named: dict[str, Any] = {name: Every(Every(Field(value))) for name, value in names.items()}
        said = use(agent, HISTORY, current_period=1, num_agents=sellers, c=Every(Field("{cost}")), **named)
        (text,) = ast.literal_eval(said).values()
        return str(text)

    alone, two = past(1), past(2)
    run.range = lambda n: attempt * n
    own, _, rival = lists
    described = {tool["name"]: tool["description"] for tool in copy.module("prompts").TOOLS_MONOPOLY_V1}
    return {
        ALONE: described[HISTORY],
        "results.bare_number": use(agent, "set_prices", {"prices_dict_str": 5}),
        "results.history_own": alone,
        "results.history_attempt": own,
        "results.history_rival": two.removeprefix(alone),
        "results.history_rival_attempt": rival,
    }


def _with_hint(texts: Texts) -> Texts:
    """The opening names the price that it advises not to exceed; it is in every opening here, so the hint is the price
    alone."""
    opening, found = (
        texts["opening"].replace("{upper_bound_price}", "{hint}"),
        "{upper_bound_price}" in texts["opening"],
    )
    return {**texts, "opening": opening, **({"hint": "{price}"} if found else {})}


ALLOCATION = importing(
    "allocation",
    Source(
        folder="efficiency_vs_equality",
        agent="EfficiencyFairnessAgent",
        texts={
            **{f"goal.{goal}": f"SYSTEM_PROMPT_{goal.upper()}" for goal in GOALS},
            "opening": "INITIAL_PROMPT",
            "reply": "REPLY_PROMPT",
        },
        variant="REASONING",
        twice=("get_previous_periods_data",),
        results=_allocation,
        tools="TOOLS",
    ),
    50,
)

DUOPOLY = importing(
    "duopoly",
    Source(
        folder="collusiveness_vs_competitiveness",
        agent="PricingAgent",
        texts={"system": "SYSTEM_PROMPT_V1", "opening": "INITIAL_PROMPT_V1", "reply": "PROMPT_V1"},
        variant="REASONING",
        twice=("get_previous_pricing_data",),
        results=_duopoly,
        fit=_with_hint,
        tools="TOOLS_COLLUSION_V1",
        plays="run_collusion_litmus_test",
        besides=("pricing",),
    ),
    60,
)


def _patience(repo: Path, wording: str) -> Iterator[str]:
    del wording
    name = "run_patience_vs_impatience"
    sources = {name: f"{ROOT.replace('.', '/')}/patience_vs_impatience/{name}.py"}
    if not (repo / sources[name]).is_file():
        return
    with Copy(repo, sources) as copy:
        module = copy.module(name)
        orders = {"now_first": module.PROMPT_CHOICE, "later_first": module.PROMPT_CHOICE_FLIPPED}
    texts = {f"whole.{order}": text.replace("{time_span}", "{delay}") for order, text in orders.items()}
    texts |= {f"delay.{span}": span.replace("_", " ") for span in ("one_month", "six_months", "one_year", "five_years")}
    yield absent_text([])
    yield table_text("patience", texts)


PATIENCE = PromptImport(source="run_patience_vs_impatience.py of EconAgentBench's code", tables=_patience, place=70)
