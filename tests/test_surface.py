"""How much there is to know: names of the Python interface, fields of an environment, keys of files.

A change that raises a bound names what it adds, and why it cannot replace something.
"""

from dataclasses import fields

import evalkit
from evalkit import extend, testing
from evalkit.spec.catalogue import LaneFile, LongPromptFile, ModelFile, PriceFile, ProviderFile, ServerFile
from evalkit.spec.decide import DecideTable
from evalkit.spec.gate import GateTable
from evalkit.spec.model import Limits
from evalkit.spec.sweep import AgentFile, AlertsTable, MachinesTable, SuiteTable, SweepFile


def test_names_of_the_python_interface() -> None:
    names = [*evalkit.__all__, *extend.__all__, *testing.__all__]
    assert len(names) <= 70
    assert len(set(names)) == len(names)


def test_fields_of_an_environment() -> None:
    assert len(fields(evalkit.Environment)) <= 23


def test_keys_of_a_sweep() -> None:
    tables = (SweepFile, AgentFile, SuiteTable, MachinesTable, DecideTable, LaneFile, GateTable, AlertsTable)
    # 40, what a suite counts as the model's doing, the tier of an agent and of a lane, how long a lane's cache lasts, a
    # question's scope, what a gate lets pass: margins of all suites and of single ones, costs, broken calls, what no
    # answer counts as; when money is told of.
    assert sum(len({*table.__struct_fields__}) for table in tables) <= 53


def test_keys_of_a_provider() -> None:
    tables = (ProviderFile, ServerFile, ModelFile, Limits, PriceFile, LongPromptFile)
    # 30, what tiers are called and cost, which is asked for, where requests ask to be answered, how long caches last.
    assert len({key for table in tables for key in table.__struct_fields__}) <= 35
