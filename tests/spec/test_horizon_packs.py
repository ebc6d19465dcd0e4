"""The packs for the paper's prompt variants: procurement's standard text, and what each of them adds."""

import pytest

from evalkit.envs.environment import Kit
from evalkit.envs.procurement.procurement import PROCUREMENT
from evalkit.envs.table import ENVIRONMENTS
from evalkit.spec.identity import REASONING
from evalkit.spec.packs import pack_names, read_pack

NAMES = ("known_horizon", "known_horizon_goal")
LINE = {"id": "small", "environment": "procurement", "generator": "native", "seed": 3, "periods": 7}


def told(name: str, notes: bool = True) -> str:
    """The system message at the start of an episode of 7 periods."""
    kit = Kit(pack=read_pack(name, "procurement"), notes=notes)
    return PROCUREMENT.opening(PROCUREMENT.start(PROCUREMENT.load(LINE), kit)).messages[0].text


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("variant", ["", REASONING])
def test_they_replace_procurements_system_text_alone(name: str, variant: str) -> None:
    assert name in pack_names()
    for environment in ENVIRONMENTS:
        standard, pack = (read_pack(one, environment, variant) for one in ("standard", name))
        changed = {key for key, text in pack.texts.items() if standard.texts[key] != text}
        assert changed == ({"system"} if environment == "procurement" else set())
        assert (pack.digest == standard.digest) == (environment != "procurement")
        assert pack.name == (name if environment == "procurement" else "standard")


@pytest.mark.parametrize("notes", [True, False])
def test_each_says_what_the_one_before_says_and_more(notes: bool) -> None:
    standard, horizon, goal = (told(name, notes) for name in ("standard", *NAMES))
    assert horizon.startswith(standard)
    assert goal.startswith(horizon)
    assert "7" not in standard
    assert "There are 7 attempts in all." in horizon
    assert "get_attempt_number" in horizon.removeprefix(standard)
    assert "judged" not in horizon
    assert "judged" in goal.removeprefix(horizon)
    assert "best one you submitted" in goal.removeprefix(horizon)
    assert "{" not in goal
