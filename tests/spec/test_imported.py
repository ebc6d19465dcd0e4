"""The texts of procurement and pricing, from sources made up in the shape of the reference's; no sentence is theirs."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from evalkit.envs.environment import Kit, Pack
from evalkit.envs.pricing.pricing import PRICING
from evalkit.envs.procurement.plan import menu_text
from evalkit.envs.procurement.procurement import PROCUREMENT
from evalkit.errors import UsageError
from evalkit.spec.importing import executed as packing
from evalkit.spec.importing.executed import import_reference
from evalkit.spec.packs import read_pack
from tests.support.period_episodes import replying

NOTES = """
    {"name": "write_notes", "description": "Write.",
     "input_schema": {"properties": {"notes": {"type": "string", "description": "%s"}}}},
    {"name": "read_notes", "description": "Read.",
     "input_schema": {"properties": {"attempt_number": {"description": "Which."}}}},
"""
BUYING = f'''
SYSTEM_PROMPT_V1 = """
Buy with thought.
""".strip()
SYSTEM_PROMPT_V1_O3 = "Buy."
SYSTEM_PROMPT_V1_KNOWN_HORIZON = SYSTEM_PROMPT_V1 + " You have 100 tries of 1000."
SYSTEM_PROMPT_V1_GRADED_BEST = SYSTEM_PROMPT_V1 + " Of 100 tries the best counts."
INITIAL_PROMPT_V1 = "Start."
PROMPT_V1 = "On."
TOOLS_V1 = [
    {{"name": "get_budget", "description": "Money.", "input_schema": {{}}}},
    {NOTES % "Thoughts."}
    {{"name": "submit_purchase_plan", "description": "Plan.",
     "input_schema": {{"properties": {{"purchase_plan": {{"description": "As text."}}}}}}}},
]
TOOLS_V1_O3 = [TOOLS_V1[0], {NOTES % "Plans."} TOOLS_V1[-1]]
'''
BUYING_RUN = """
import gone
from prompts import PROMPT_V1
from econ_evals.experiments.procurement.opt_solver import Menu

print("no answer")


def make_readable_previous_attempts_data(alloc_attempts, alloc_costs, alloc_utilities, alloc_is_feasibles, reasons):
    output = ""
    for attempt_num in range(len(alloc_attempts)):
        output += f"No. {attempt_num}\\n"
        output += f"You said {alloc_attempts[attempt_num]}\\n"
        if alloc_is_feasibles[attempt_num]:
            output += f"Good for {alloc_utilities[attempt_num]:.2f} at {alloc_costs[attempt_num]:.2f}\\n"
        else:
            output += (
                f"Bad: {reasons[attempt_num]}\\n"
            )
        output += "\\n"
    return output


class ProcurementAgent:
    def use_tool(self, name, input, menu: Menu, budget):
        if name == "get_previous_purchase_data":
            if self.data_accessed_this_period:
                return ("SUCCESS", str({"previous_attempts_data": "Seen."}))
            return "SUCCESS", str({"previous_purchase_data": text})
        elif name == "get_equipment_information":
            if self.menu_accessed_this_period:
                return "SUCCESS", str("Menu seen.")
            return "SUCCESS", menu.to_str()
        elif name == "write_notes":
            if "notes" in input:
                return "SUCCESS", "Noted."
"""
BUYING_RULES = """
import inflect
from gone import Model, check


class Entry(Model):
    @check(mode="before")
    def checked(cls, values):
        return values

    def to_str(self):
        p = inflect.engine()
        parts = [
            f"{qty} {p.plural('unit', qty)} / {id}".format(qty=qty, id=id)
            for id, qty in self.contents.items()
        ]
        contents_str = p.join(parts)
        entry_id = self.id
        if self.type == "basic":
            return f"{entry_id} at ${self.cost:.2f}: {contents_str}"
        elif self.type == "two_part_tariff":
            return f"{entry_id} [${self.fixed_cost:.2f} first] at ${self.variable_cost:.2f}: {contents_str}"
        elif self.type == "bulk_discount":
            return f"{entry_id} [from {self.min_quantity}] at ${self.cost:.2f}: {contents_str}"
        else:
            raise NotImplementedError

    def get_cost(self, quantity):
        if self.type == "basic":
            return self.cost * quantity, ""
        elif quantity < self.min_quantity:
            return (0, f"{quantity} of {self.id}, not {self.min_quantity}")
        return self.cost * quantity, ""


class Menu:
    def __init__(self, entries):
        self.entries = entries

    def to_str(self):
        s = ""
        for entry in self.entries:
            s += "* " + entry.to_str() + ";\\n"
        return s


def evaluate_alloc(menu, alloc, item_groups, item_to_effectiveness, budget, agg_type, group_weights):
    assert item_groups and item_to_effectiveness and agg_type in ("min", "prod") and sum(group_weights) == 1
    total_cost, invalid_reason = 0, ""
    for entry in menu.entries:
        entry_cost, invalid_reason_temp = entry.get_cost(alloc[entry.id])
        total_cost += entry_cost
        if invalid_reason_temp:
            invalid_reason += invalid_reason_temp + "!\\n"
    if total_cost > budget:
        invalid_reason += f"{total_cost:.2f} is over {budget:.2f}\\n"
    return not invalid_reason, invalid_reason, total_cost, 0
"""
SELLING = f'''
SYSTEM_PROMPT_V1 = "Sell with thought."
SYSTEM_PROMPT_V1_REASONING = "Sell."
INITIAL_PROMPT_V1 = """
Start.

Never above {{upper_bound_price}}.
""".strip()
PROMPT_V1 = "On."
COMMON = [
    {{"name": "get_product_ids", "description": "Ids.", "input_schema": {{}}}},
    {NOTES % "Thoughts."}
    {{"name": "set_prices", "description": "Set.",
     "input_schema": {{"properties": {{"prices_dict_str": {{"description": "As text."}}}}}}}},
]
COMMON_REASONING = [{NOTES % "Plans."}]
TOOLS_V1 = [{{"name": "get_previous_pricing_data", "description": "Look.", "input_schema": {{}}}}] + COMMON
TOOLS_V1_REASONING = [TOOLS_V1[0]] + COMMON_REASONING
'''
SELLING_RUN = """
def make_readable_previous_attempts_data(prices_list, quantities_list, profits_list, costs, product_ids):
    output = ""
    for i in range(len(prices_list)):
        output += f"No. {i}\\n"
        for j in range(len(product_ids)):
            output += f"{product_ids[j]}: "
            output += f"{prices_list[i][product_ids[j]]:.2f}, {quantities_list[i][product_ids[j]]:.2f}, "
            output += f"{profits_list[i][product_ids[j]]:.2f}, {costs[product_ids[j]]:.2f}\\n"
        output += "--\\n"
    return output


class PricingAgent:
    def use_tool(self, name, input, prices_list):
        if name == "get_previous_pricing_data":
            if self.data_accessed_this_period:
                return ("SUCCESS", str({"previous_pricing_data": "Seen."}))
        elif name == "write_notes":
            return "SUCCESS", "Noted."
        elif name == "set_prices":
            prices = input.get("prices_dict_str")
            if isinstance(prices, float) or isinstance(prices, int):
                return ("RETRY_ERROR", "Not {'a': 1} but a number.")
            prices = parse_dict(prices)
            unpriced_products = set(self.product_ids).difference(prices)
            if unpriced_products:
                return ("RETRY_ERROR", f"Lacking: {unpriced_products}")
            extra_products = set(prices).difference(self.product_ids)
            if extra_products:
                return ("RETRY_ERROR", f"Unknown: {extra_products}")
"""


def write_repository(folder: Path) -> Path:
    """The made-up copy's files."""
    files = {
        "procurement/prompts.py": BUYING,
        "procurement/run_procurement_experiment.py": BUYING_RUN,
        "procurement/opt_solver.py": BUYING_RULES,
        "pricing/prompts.py": SELLING,
        "pricing/run_pricing_experiment.py": SELLING_RUN,
    }
    for name, text in files.items():
        path = folder / "econ_evals" / "experiments" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return write_repository(tmp_path / "reference")


def imported(repository: Path, environment: str, variant: str = "", wording: str = "") -> Pack:
    path = repository.parent / "paper.toml"
    path.write_text(import_reference(repository, wording=wording), encoding="utf-8")
    return read_pack(str(path), environment, variant)


def absent(repository: Path, environment: str) -> str:
    """What the pack says it could not find, for one environment."""
    lines = import_reference(repository).splitlines()
    return lines[lines.index(f"[{environment}]") - 1]


def test_procurement_s_prompts_and_tools_are_imported(repository: Path) -> None:
    texts, thinking = (imported(repository, "procurement", variant).texts for variant in ("", "reasoning"))
    assert texts.keys() == PROCUREMENT.texts.all.keys()
    assert (texts["system"], texts["opening"], texts["reply"]) == ("Buy with thought.", "Start.", "On.")
    assert (thinking["system"], thinking["opening"]) == ("Buy.", "Start.")
    assert texts["tools.submit_purchase_plan.purchase_plan"] == "As text."
    assert (texts["tools.write_notes.notes"], thinking["tools.write_notes.notes"]) == ("Thoughts.", "Plans.")
    overlay = tomllib.loads(import_reference(repository))["procurement"]["reasoning"]
    assert overlay == {"system": "Buy.", "tools": {"write_notes": {"notes": "Plans."}}}


def test_procurement_s_other_wordings_are_packs_of_their_own(repository: Path) -> None:
    known = imported(repository, "procurement", wording="known_horizon")
    assert known.texts["system"] == "Buy with thought. You have {periods} tries of 1000."
    goal = imported(repository, "procurement", "reasoning", "known_horizon_goal").texts
    assert goal["system"] == "Buy with thought. Of {periods} tries the best counts."
    assert goal["tools.write_notes.notes"] == "Plans."
    plain = imported(repository, "procurement").texts
    assert {key for key in plain if plain[key] != known.texts[key]} == {"system"}
    assert imported(repository, "pricing", wording="known_horizon") == imported(repository, "pricing")
    with pytest.raises(UsageError, match=r"no wording 'known_horizn'\. Did you mean 'known_horizon'"):
        import_reference(repository, wording="known_horizn")


def test_procurement_s_results_read_as_the_reference_renders_them(repository: Path) -> None:
    texts = imported(repository, "procurement").texts
    assert texts["results.history_supported"] == ("No. {attempt}\nYou said {plan}\nGood for {workers} at {cost}\n\n")
    assert texts["results.history_invalid"] == "No. {attempt}\nYou said {plan}\nBad: {reasons}\n\n"
    assert texts["results.under_minimum"] == "{quantity} of {deal}, not {least}!\n"
    assert texts["results.over_budget"] == "{cost} is over {budget}\n"
    assert texts["results.repeat_access"] == "Seen."
    assert (texts["results.notes_written"], texts["results.notes_empty"]) == ("Noted.", "")
    assert (texts["results.style"], texts["results.history_empty"]) == ("repr", "")


def test_procurement_s_menu_reads_as_the_reference_s(repository: Path) -> None:
    texts = imported(repository, "procurement").texts
    [line] = PROCUREMENT.generate({"categories": 3}, 1, 5)
    state = PROCUREMENT.start(PROCUREMENT.load(line), Kit(pack=imported(repository, "procurement")))
    shown = menu_text(state.world.market, texts)
    assert shown == state.world.menu
    assert all(row.startswith("* Offer_") and row.endswith(";") and "at $" in row for row in shown.splitlines())
    assert [piece for piece in (" [from ", " first] at $", "1 unit / ", "2 units / ") if piece not in shown] == []
    assert (texts["results.menu_pair"], texts["results.menu_list"]) == ("{first} and {last}", "{first}, and {last}")


def test_pricing_s_prompts_and_results_are_imported(repository: Path) -> None:
    texts, thinking = (imported(repository, "pricing", variant).texts for variant in ("", "reasoning"))
    assert texts.keys() == PRICING.texts.all.keys()
    assert (texts["system"], thinking["system"]) == ("Sell with thought.", "Sell.")
    assert (texts["opening"], texts["hint"]) == ("Start.{hint}", "\n\nNever above {price_short}.")
    assert (texts["tools.write_notes.notes"], thinking["tools.write_notes.notes"]) == ("Thoughts.", "Plans.")
    assert texts["tools.get_previous_pricing_data.description"] == "Look."
    assert texts["results.history_attempt"] == "No. {attempt}\n{products}--\n"
    assert texts["results.history_product"] == (
        "{product}: {price_signed}, {quantity_signed}, {profit_signed}, {cost}\n"
    )
    assert texts["results.missing_products"] == "Lacking: {{ids}}"
    assert texts["results.unknown_products"] == "Unknown: {{ids}}"
    assert texts["results.repeat_access"] == "Seen."


def test_pricing_opens_with_the_hint_where_there_is_one(repository: Path) -> None:
    kit = Kit(pack=imported(repository, "pricing"))
    [line] = PRICING.generate({}, 1, 5)
    said = [
        PRICING.opening(PRICING.start(PRICING.load({**line, "hint": hint}), kit)).messages[-1].text
        for hint in (True, False)
    ]
    assert re.fullmatch(r"Start\.\n\nNever above [0-9.]+\.", said[0])
    assert said[1] == "Start."


@pytest.mark.parametrize("no_action", ["keep", "restart"])
def test_what_a_chat_asks_for_twice_is_refused_in_each_tool_s_own_words(repository: Path, no_action: str) -> None:
    [line] = PROCUREMENT.generate({"no_action": no_action}, 1, 5)
    state = PROCUREMENT.start(PROCUREMENT.load(line), Kit(pack=imported(repository, "procurement")))
    twice: list[tuple[str, dict[str, Any]]] = [
        ("get_previous_purchase_data", {}),
        ("get_equipment_information", {}),
    ] * 2
    _, seen = PROCUREMENT.step(state, replying(*twice))
    assert [message.text for message in seen.messages[2:4]] == ["{'previous_attempts_data': 'Seen.'}", "Menu seen."]


def test_pricing_prints_numbers_as_the_reference_does(repository: Path) -> None:
    kit = Kit(pack=imported(repository, "pricing"))
    lines = PRICING.generate({"products": 1}, 400, 5)
    states = [PRICING.start(PRICING.load(line), kit) for line in lines]
    hints = [PRICING.opening(state).messages[-1].text.split()[-1][:-1] for state in states]
    assert all(hint == str(float(hint)) for hint in hints)
    assert any(re.fullmatch(r"\d+\.\d", hint) for hint in hints)  # 77.2 where two decimals would be 77.20
    after, _ = PRICING.step(states[0], replying(("set_prices", {"prices_dict_str": "{'Product_1': -0.001}"})))
    assert "Product_1: -0.00, " in after.history
    plain = Kit(pack=read_pack("standard", "pricing"))
    [line] = PRICING.generate({"products": 1}, 1, 5)
    bare = PRICING.start(PRICING.load(line), plain)
    after, _ = PRICING.step(bare, replying(("set_prices", {"prices_dict_str": "{'Product_1': -0.001}"})))
    assert "-0.00" not in after.history
    assert re.search(r"\d+\.\d\d\b", PRICING.opening(bare).messages[-1].text)


def test_a_bare_number_as_price_is_answered_under_the_reference_s_restarts(repository: Path) -> None:
    for pack, said in (
        (imported(repository, "pricing"), "Not {'a': 1} but a number."),
        (read_pack("standard", "pricing"), None),
    ):
        outcomes = {}
        for no_action in ("keep", "restart"):
            [line] = PRICING.generate({"no_action": no_action}, 1, 5)
            state = PRICING.start(PRICING.load(line), Kit(pack=pack))
            _, seen = PRICING.step(state, replying(("set_prices", {"prices_dict_str": 12.5})))
            outcomes[no_action] = seen.facts["calls"][0]["outcome"]
            assert not seen.new_chat
            assert seen.messages[0].text
            if no_action == "restart" and said is not None:
                assert seen.messages[0].text == said
        assert outcomes == {"keep": "wrong_type", "restart": "bare_number"}
        _, seen = PRICING.step(state, replying(("set_prices", {"prices_dict_str": "12.5"})))
        assert seen.facts["period_end"] == "restart"


def test_a_pack_without_the_optional_texts_reads_as_before(repository: Path) -> None:
    pack = imported(repository, "procurement")
    older = {key: text for key, text in pack.texts.items() if key not in PROCUREMENT.texts.later}
    assert older.keys() < pack.texts.keys()
    [line] = PROCUREMENT.generate({}, 1, 5)
    kit = Kit(pack=Pack(name="older", digest="d", texts=older))
    twice: list[tuple[str, dict[str, Any]]] = [
        ("get_previous_purchase_data", {}),
        ("get_equipment_information", {}),
    ] * 2
    _, seen = PROCUREMENT.step(PROCUREMENT.start(PROCUREMENT.load(line), kit), replying(*twice))
    assert [message.text for message in seen.messages[2:4]] == ["{'previous_purchase_data': 'Seen.'}", "Seen."]


def test_what_the_copy_does_not_say_stays_in_our_wording_and_is_named(repository: Path) -> None:
    assert "results.negative" in absent(repository, "procurement")
    assert "results.history" not in absent(repository, "procurement").replace("results.history_no_action", "")
    assert "hint" not in absent(repository, "pricing")
    path = repository / "econ_evals" / "experiments" / "pricing" / "prompts.py"
    path.write_text(SELLING.replace("{upper_bound_price}", "nothing"))
    assert "hint" in absent(repository, "pricing")
    assert imported(repository, "pricing").texts["hint"] == read_pack("standard", "pricing").texts["hint"]


def test_code_that_fails_is_named_with_its_line(repository: Path) -> None:
    path = repository / "econ_evals" / "experiments" / "procurement" / "run_procurement_experiment.py"
    path.write_text(BUYING_RUN.replace("{alloc_costs[", "{costs["))
    with pytest.raises(UsageError, match=r"run_procurement_experiment\.py, line \d+: NameError: name 'costs'"):
        import_reference(repository)
    path.unlink()
    with pytest.raises(UsageError, match=r"run_procurement_experiment\.py cannot be read"):
        import_reference(repository)


def test_a_copy_gets_a_bounded_time_and_no_keys(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = repository / "econ_evals" / "experiments" / "procurement" / "prompts.py"
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    path.write_text(f"{BUYING}\nimport os\nPROMPT_V1 = ' '.join(sorted(os.environ.values())) + os.getcwd()")
    said = imported(repository, "procurement").texts["reply"]
    assert "secret" not in said
    assert str(Path.cwd()) not in said
    path.write_text(f"{BUYING}\nimport os\nos.write(1, b'{{}}')\nPROMPT_V1 = 'long' * {packing.MOST_BYTES}")
    with pytest.raises(UsageError, match="says more than it may"):
        import_reference(repository)
    path.write_text("import subprocess\nsubprocess.run(['sleep', '600'])")
    monkeypatch.setattr(packing, "LONGEST_S", 0.1)
    with pytest.raises(UsageError, match="takes longer than"):
        import_reference(repository)


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("pricing", "Start.\n\nNever above", "Never above", "in exactly one paragraph, and not in the first"),
        ("pricing", "INITIAL_PROMPT_V1 =", "OPENING =", "INITIAL_PROMPT_V1 cannot be read: it is missing"),
        ("procurement", "SYSTEM_PROMPT_V1 =", "ROLE =", "line 6: NameError: name 'SYSTEM_PROMPT_V1' is not defined"),
    ],
)
def test_prompts_that_are_not_there_are_named(repository: Path, name: str, old: str, new: str, words: str) -> None:
    path = repository / "econ_evals" / "experiments" / name / "prompts.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UsageError, match=words):
        import_reference(repository)


def test_a_wording_whose_text_is_not_there_is_refused(repository: Path) -> None:
    path = repository / "econ_evals" / "experiments" / "procurement" / "prompts.py"
    path.write_text(BUYING.replace("SYSTEM_PROMPT_V1_GRADED_BEST", "OTHER"))
    assert import_reference(repository, wording="known_horizon")
    with pytest.raises(UsageError, match="SYSTEM_PROMPT_V1_GRADED_BEST cannot be read: it is missing"):
        import_reference(repository, wording="known_horizon_goal")
