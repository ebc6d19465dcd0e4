"""Sweeps as mappings, for tests of the interface."""

from typing import Any

KNUTH = "knuth:scheduling/basic?periods=4:seed-0:0"


def policies(
    name: str = "mine", *, replicates: int = 1, agents: tuple[str, ...] = ("knuth", "random")
) -> dict[str, Any]:
    """Policies in this process on two small instances."""
    return {
        "name": name,
        "replicates": replicates,
        "agents": [{"policy": agent} for agent in agents],
        "suites": [{"name": "scheduling/basic", "instances": ["seed-0", "seed-3"], "vary": {"periods": [4]}}],
    }


LAB = """
dialect = "openai_chat"
url = "{url}"
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-11-21"
"""
"""A provider's file: a simulated one that somebody else has started."""


def served(name: str = "mine", **more: Any) -> dict[str, Any]:
    """Policies served as models of the provider `lab`."""
    return {
        "name": name,
        "agents": [{"provider": "lab", "model": "knuth"}, {"provider": "lab", "model": "random"}],
        "suites": [{"name": "scheduling/basic", "vary": {"periods": [12]}}],
        **more,
    }
