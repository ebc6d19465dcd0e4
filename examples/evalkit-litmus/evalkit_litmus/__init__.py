"""Litmus tests: which of two ends a model prefers where neither is right, as environments of evalkit.

Source: the litmus tests in the code of the authors of EconAgentBench, after their description; the wording is our own.
"""

from importlib.resources import files

_HERE = files("evalkit_litmus")
EQUALITY_FIRST = _HERE / "prompts" / "equality_first.toml"
ALLOCATION_SUITES = _HERE / "suites" / "allocation"
PATIENCE_SUITES = _HERE / "suites" / "patience"
DUOPOLY_SUITES = _HERE / "suites" / "duopoly"
