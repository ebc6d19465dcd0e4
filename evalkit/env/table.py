"""All environments by name. A plain table: adding an environment is adding a line here and a folder beside it."""

from collections.abc import Mapping
from typing import Any

from evalkit.env.environment import Environment
from evalkit.env.scheduling.scheduling import SCHEDULING

ENVIRONMENTS: Mapping[str, Environment[Any, Any]] = {"scheduling": SCHEDULING}
