"""Sources of a made-up copy of CostBench's reference repository: what `costbench_copy.py` writes."""

OLDER = '                print(f"price {tool["function"]["description"]}")\n'
"""A line that Python reads from 3.12 on."""

RUN = (
    """
import random

import gone
from env.settings import load_config
from env.core.base_types import Tool

ID_LENGTH = load_config().runtime.id_length


async def run_single_query(client, query_dict, args, query_index, tool_creation_seed):
    task = query_dict.get("task")
    system_prompt = QUERY_INSTRUCTION.format(
        task=task.capitalize(),
        need_loc_pref="the LocationPreference, " if task.lower() != "location" else "",
    )
    while True:
        try:
            if args.print_tool_interface:
"""
    + OLDER
    + """
            if calls:
                if pending:
                    tool_result = {"role": "tool", "content": _msg_rng.choice(SENTENCES) + " Cost: 1"}
                elif args.use_blocker and blocker.should_tool_call_fail(tool_name):
                    tool_result = {
                        "content": _msg_rng.choice(SENTENCES) + f" Cost: {tool_obj.cost}!" if tool_obj else ""
                    }
                else:
                    tool_obj = _find(tool_name)
                    if tool_obj:
                        if precheck_failed:
                            tool_result = {
                                "role": "tool",
                                "content": (
                                    f"[ERROR] '{tool_name}' wants {sorted(list(required_types))} "
                                    f"and finds {sorted(list(current_types))}"
                                    f" Cost: {tool_obj.cost}!" if tool_obj is not None and tool_obj.has_cost() else ""
                                ),
                            }
                        else:
                            tool_result = {"role": "tool", "content": tool_output}
                    else:
                        tool_result = {"role": "tool", "content": f"[ERROR] '{tool_name}' is nobody's name."}
                for extra_call in tool_calls_list[1:]:
                    results.append({"role": "tool", "content": "[ERROR] One after the other, please."})
                if changed:
                    location_pref_str = (f"Off to {pref_loc} now. ") if (task and task.lower() != "location") else ""
                    new_user_message = f"{location_pref_str}" + final_blocking_result.get("new_user_requirement", "") \\
                        + f" TimeInfo as before."
        except Exception:
            break


def _execute_tool_simulation(tool_obj, arguments_str, refinement_level, available_tools):
    formatted_output = tool_obj.process_output(None, refinement_level, available_tools)
    formatted_output += (" Cost: " + str(tool_obj.cost)) if (tool_obj is not None and tool_obj.has_cost()) else ""
    return formatted_output


def get_tool_types_str(args) -> str:
    return "wish, find, sieve, take" if args.refinement_level != 0 else "wish, find, take"


QUERY_INSTRUCTION = "You plan {task} matters. \\
\\n Get `Travel{task}` (<{task}Candidate{{Candidate_ID}}>) in {tool_num_str} acts: {tool_types_str}. \\
{refinement_content} \\
\\n From the text: {task}Tier, {need_loc_pref}TimeInfo. {composite_concept_content} \\
{task_atomic_tool_sequence_str} \\n All `{{}}` are gaps. {example_content} \\
"

COMPOSITE_CONCEPT_CONTENT = "**Kinds**. Big tools do what small ones do in a row."

TASK_ATOMIC_TOOL_SEQUENCE_TEMPLATE = "**Row**. In a row: {atomic_tool_sequence}. Big ones may be cheaper."

REFINEMENT_CONTENT_TEMPLATE = "Sieve the {task} finds {num_dimensions} times, by {refinement_dimensions_str}."
"""
)

TYPES = '''
import json
from abc import ABC

JSON_DECODE_ERROR_OUTPUT = "[ERROR] These are no arguments."


def parse_model_outputs(model_outputs, function, task):
    return json.loads(model_outputs)


class Tool(ABC):
    def generate_interface(self, provide_composite_concept=False):
        """What a model is shown."""
        properties = {}
        for input_type in self.input_types:
            if input_type.endswith("Preference"):
                properties[input_type] = {
                    "type": "string",
                    "description": f"Wish {input_type} for {input_type.replace('Preference', '').lower()}",
                }
            elif "Candidate_L" in input_type and input_type.endswith("_Available"):
                properties[input_type] = {"type": "string", "description": f"{input_type}, once sieved"}
            elif input_type == "TimeInfo":
                properties[input_type] = {"type": "string", "description": "When, more or less"}
            elif input_type in ["LocationTier", "LocationCategory", "DiningTier", "DiningCategory"] or (
                input_type.endswith("Tier") or input_type.endswith("Category") or input_type.endswith("Style")
                or input_type.endswith("FeaturePackage")
            ):
                from env.domains.travel.enums import ENUM_DIRECT_MAPPINGS
                enum_class = ENUM_DIRECT_MAPPINGS[input_type]
                enum_values = [e.value for e in enum_class]
                base_type = input_type.replace("Category", "").replace("Tier", "").lower()
                properties[input_type] = {
                    "type": "string",
                    "enum": enum_values,
                    "description": f"One {base_type} word of {', '.join(enum_values)}",
                }
            else:
                properties[input_type] = {"type": "string", "description": f"Some {input_type}"}
        type_extra = ""
        component_extra = ""
        if provide_composite_concept:
            tool_type = self.get_tool_type()
            type_extra = f" A {tool_type} one:"
            if tool_type == "composite":
                try:
                    component_names = getattr(self, "component_tool_names", [])
                    if component_names:
                        joined = ", ".join(component_names)
                        component_extra = f" Made of: {joined}. So much for parts."
                except Exception:
                    pass
        cost_description = f" Each call costs {self.cost} coins." if self.cost is not None else ""
        output_type_description = f" Its output type: {self.output_type}."
        whole = type_extra + self.description + component_extra + cost_description + output_type_description
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": whole,
                "parameters": {"type": "object", "properties": properties, "required": list(self.input_types)},
            },
        }


class AtomicTool(Tool):
    def __init__(self, name="", input_types=(), output_type="", description=""):
        self.name, self.input_types, self.output_type = name, input_types, output_type
        self.description = description

    def process_input(self, model_outputs):
        self_task = self.get_self_task()
        self_function = ""
        for function in ["decide", "search", "refine", "select"]:
            if function.lower() in self.name.lower():
                self_function = function
                break
        if not self_task:
            return {"error_message": f"[ERROR] What task?"}
        parsed_outputs = parse_model_outputs(model_outputs, self_function, self_task)
        if isinstance(parsed_outputs, str):
            return {"error_message": parsed_outputs}
        if self_function == "decide":
            from env.domains.travel.enums import ENUM_DIRECT_MAPPINGS
            result = {}
            for type_name in self.input_types:
                if type_name not in parsed_outputs:
                    return {"error_message": f"[ERROR] Give {type_name}"}
                if type_name != "LocationPreference":
                    enum_class = ENUM_DIRECT_MAPPINGS[type_name]
                    if parsed_outputs[type_name] not in [member.value for member in enum_class]:
                        return {"error_message": f"[ERROR] {type_name} is never {parsed_outputs[type_name]} "
                                f"but of {[member.value for member in enum_class]}"}
            return result

    def process_output(self, tool_output, refinement_level, available_tools):
        if tool_output is None:
            return "[ERROR] Nothing came."
        elif isinstance(tool_output, str) and tool_output.startswith("[ERROR]"):
            return tool_output
        if hasattr(tool_output, "unique_id"):
            uid = tool_output.unique_id
        else:
            uid = str(tool_output)
        final_output = ""
        task = self.get_self_task()
        if "Decide" in self.name:
            final_output = f"Noted {uid} ({self.output_type}) for {task}; keep it. "
        elif "Search" in self.name:
            id_number = get_all_digits(uid)
            processed_uid = f"<{task.capitalize()}CandidateSet{id_number}>"
            if self.is_last_refinement_step(refinement_level):
                final_output = f"Found all, done: {processed_uid} as {self.output_type}"
            else:
                final_output = f"Found all: {processed_uid} as {self.output_type}"
        elif "Refinement" in self.name:
            filter_dimension_map = {1: "dates", 2: "ways", 3: "praise", 4: "bans", 5: "worth"}
            current_step = int(get_all_digits(self.output_type))
            current_filtering_dimension = filter_dimension_map[current_step]
            past_filtered_dimensions = ""
            for step in range(1, current_step + 1):
                past_filtered_dimensions += filter_dimension_map[step] + ", "
            processed_uid = f"<{task.capitalize()}CandidateSet{get_all_digits(uid)}>"
            if self.is_last_refinement_step(refinement_level):
                final_output = f"Filtered by {current_filtering_dimension}. Last sieve: {processed_uid} " \\
                    f"({past_filtered_dimensions[:-2]}; {self.output_type})"
            else:
                final_output = f"Filtered by {current_filtering_dimension}. Sieved: {processed_uid} " \\
                    f"({past_filtered_dimensions[:-2]}; {self.output_type})"
        elif "Select" in self.name:
            processed_uid = f"<{task.capitalize()}Candidate{get_all_digits(uid)}>"
            final_output = f"Took a {task}: {processed_uid}, {self.output_type}."
        else:
            raise ValueError(self.name)
        from env.run import ID_LENGTH
        if get_all_digits(final_output) == "":
            return "[ERROR] No number anywhere."
        elif len(get_all_digits(uid)) != ID_LENGTH:
            return "[ERROR] A number too long or short."
        return final_output

    def is_last_refinement_step(self, refinement_level):
        if refinement_level == 0 and "Search" in self.name:
            return True
        elif "Refinement" in self.name and refinement_level == int(get_all_digits(self.output_type)):
            return True
        return False


def get_all_digits(source_str):
    for char in source_str:
        if not char.isdigit():
            source_str = source_str.replace(char, "")
    return source_str


def get_id_from_search_space(search_space_path, task, LocationPreferenceID=None):
    import json
    with open(search_space_path) as f:
        search_space = json.load(f)
    if LocationPreferenceID not in search_space:
        return f"[ERROR] '{LocationPreferenceID}' is nowhere."
    return search_space[LocationPreferenceID]
'''

COMPOSITE = """
import json


def parse_model_outputs_composite(model_outputs):
    return json.loads(model_outputs)


class CompositeTool:
    def _validate_component_tools(self, available_tools):
        return bool(available_tools)

    def process_input(self, model_outputs):
        model_outputs = parse_model_outputs_composite(model_outputs)
        from env.core.base_types import JSON_DECODE_ERROR_OUTPUT
        if isinstance(model_outputs, str) and model_outputs == JSON_DECODE_ERROR_OUTPUT:
            return {"error_message": model_outputs}
        from env.core.data_types import DATA_TYPE_REGISTRY
        result = {}
        for input_type in self.input_types:
            if input_type in model_outputs:
                identifier = model_outputs[input_type]
                from env.domains.travel.enums import ENUM_DIRECT_MAPPINGS
                known = input_type in DATA_TYPE_REGISTRY
                TypeClass = DATA_TYPE_REGISTRY.get(input_type) if known else ENUM_DIRECT_MAPPINGS[input_type]
                if input_type.endswith("Category") or input_type.endswith("Tier"):
                    if identifier not in [member.value for member in TypeClass]:
                        print("wrong")
                        return {"error_message": f"[ERROR] '{identifier}' is no {input_type} at all."}
            else:
                return {"error_message": f"[ERROR] Where is '{input_type}'?"}
        return result

    def execute(self, input_data, available_tools):
        from env.domains.travel.tool_registry import get_all_tools
        all_tools = get_all_tools(self.refinement_level)
        if not self._validate_component_tools(available_tools=all_tools):
            return "[ERROR] Parts are missing."
        if "error_message" in input_data:
            return input_data["error_message"]
        available_inputs = input_data.copy()
        current_output = None
        for i, tool_name in enumerate(self.component_tool_names):
            tool = available_tools[tool_name]
            tool_input = {}
            for input_type in tool.input_types:
                tool_input[input_type] = available_inputs[input_type]
            current_output = tool.execute(input_data=tool_input, available_tools=available_tools)
            if isinstance(current_output, str) and current_output.startswith("[ERROR]"):
                return f"[ERROR] {self.name} cannot use that."
        return current_output

    def process_output(self, tool_output, refinement_level, available_tools):
        if isinstance(tool_output, str) and tool_output.startswith("[ERROR]"):
            return tool_output
        from env.domains.travel.atomic_tools import get_all_dynamic_atomic_tools
        all_tools = get_all_dynamic_atomic_tools(self.refinement_level)
        last_tool_name = self.component_tool_names[-1]
        if last_tool_name not in all_tools:
            return "[ERROR] Gone."
        last_tool = available_tools[last_tool_name]
        final_output_description = last_tool.process_output(
            tool_output=tool_output, refinement_level=self.refinement_level, available_tools=available_tools
        )
        intermediate_steps = []
        for tool_name in self.component_tool_names[:-1]:
            if "Decide" in tool_name:
                intermediate_steps.append("Wished")
            elif "Search" in tool_name:
                intermediate_steps.append("Looked")
            elif "Refinement" in tool_name:
                tool = available_tools.get(tool_name)
                if tool:
                    try:
                        filter_dimension_map = {1: "dates", 2: "ways", 3: "praise", 4: "bans", 5: "worth"}
                        from env.core.base_types import get_all_digits
                        step_num = int(get_all_digits(tool.output_type))
                        dimension = filter_dimension_map.get(step_num, "sieve")
                        intermediate_steps.append(f"Sieved for {dimension}")
                    except Exception:
                        intermediate_steps.append("Sieved")
        if "Refinement" in last_tool_name:
            filter_dimension_map = {1: "dates", 2: "ways", 3: "praise", 4: "bans", 5: "worth"}
            from env.core.base_types import get_all_digits
            last_step_num = int(get_all_digits(available_tools.get(last_tool_name).output_type))
            last_dimension = filter_dimension_map.get(last_step_num, "sieve")
            intermediate_steps.append(f"Sieved for {last_dimension}")
            if isinstance(final_output_description, str) and final_output_description.startswith("Filtered by "):
                dot_idx = final_output_description.find(".")
                if dot_idx != -1:
                    final_output_description = final_output_description[dot_idx+1:].lstrip()
        elif "Select" in last_tool_name:
            intermediate_steps.append("Taken")
        process_summary = " => ".join(intermediate_steps)
        return f"Did {process_summary}. {final_output_description}"
"""

EXAMPLE = """
HEADER = "An example: "


def _enumerate(n):
    results = []

    def dfs(remaining, acc):
        if remaining == 0:
            if len(acc) >= 2:
                results.append(acc.copy())
            return
        for part in range(1, remaining + 1):
            acc.append(part)
            dfs(remaining - part, acc)
            acc.pop()

    dfs(n, [])
    return results


def _sorted(n):
    return sorted(_enumerate(n), key=lambda blocks: (-len(blocks), tuple(blocks)))


def generate(num_atoms: int) -> str:
    if num_atoms < 2:
        raise ValueError("too few")
    names = [chr(ord("a") + i) for i in range(num_atoms)]
    lines = []
    for idx, blocks in enumerate(_sorted(num_atoms), start=1):
        i, parts = 0, []
        for size in blocks:
            name = "".join(names[i : i + size])
            parts.append(f"{name}[{name}-price]")
            i += size
        lines.append(f"({idx}) {' then '.join(parts)};")
    return HEADER + ", ".join(names) + ":\\n" + "\\n".join(lines) + "\\nEnd of {it}."


def example_for_refinement_level(refinement_level: int) -> str:
    return generate(refinement_level + 3)
"""

STEPS = """
REFINEMENT_DIMENSION_MAPPING = {0: "", 1: "days", 2: "roads", 3: "fame", 4: "laws", 5: "thrift"}

ATOMIC_SEQUENCE_MAPPING = {
    %s
}
"""

CONFIG = """
runtime:
  id_length: 5

messages:
  # What is said when a tool is out.
  ban_tool_return_sentences:
%s
  # And when people think again.
  preference_change_user_message_templates:
%s

prompts:
  other: "x"
"""

PROMPTS = """
QUERY_GENERATION_INSTRUCTION = "Put a {task} wish into words. Kinds: {category_candidates}. " \\
    "Ranks: {tier_candidates}. Ways: {style_candidates}. More: {features_candidates}. {{}} stays.\\n"
QUERY_GENERATION_PROMPT = "{task}: {category}, {tier}, {style}, {features}.\\nIn words: "
QUERY_VALIDATION_INSTRUCTION = "Do they fit?\\n"
QUERY_VALIDATION_PROMPT = "{task}: {category}, {tier}, {style}, {features}. Verdict: "
COUNT_COVERAGE_INSTRUCTION = "How many ways are listed? {} is none."
COUNT_COVERAGE_PROMPT = "Plan: {model_plan}. Ways: "
"""
