"""Inspect AI: each suite is a task, and each policy is a model.

    inspect eval evalkit/scheduling_basic --model openai/gpt-5-mini
    inspect eval evalkit/pricing_hard -T periods=20 --model evalkit/myopic

Inspect finds this module by the entry point `evalkit`. A suite's task has its name, with `_` for other signs. Needs the
extra `inspect`.
"""

from evalkit.integrations import missing

try:
    import inspect_ai  # noqa: F401 - only to see whether it is there
except ModuleNotFoundError as absent:
    raise missing("Inspect AI", "inspect") from absent

from evalkit.integrations.inspect.chats import evalkit
from evalkit.integrations.inspect.solver import TASKS, exact_score, play_episode, suite_task

__all__ = ["TASKS", "evalkit", "exact_score", "play_episode", "suite_task"]
