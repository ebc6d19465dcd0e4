"""Playing procurement by hand in tests, and lines to play."""

from typing import Any

from evalkit.envs.procurement.generate import DIFFICULTIES
from evalkit.envs.procurement.procurement import ACTION, HISTORY, PROCUREMENT
from tests.support.episode_loop import kit
from tests.support.period_episodes import Game

KIT = kit("procurement")
PACK = KIT.pack
# Two categories of two items. Within 20.00, one of `one` and eight of `three` are best: 26 * 101.
MENU = [
    {"id": "one", "kind": "basic", "price": 2, "contents": [["A1", 2], ["B2", 1]]},
    {"id": "two", "kind": "two_part_tariff", "price": "1.50", "fixed": 7, "contents": [["A2", 4]]},
    {"id": "three", "kind": "bulk_discount", "price": 2.25, "least": 3, "contents": [["B1", 1], ["A2", 1], ["B2", 2]]},
]
ITEMS = [[["A1", 1], ["A2", 3]], [["B1", 2], ["B2", 5]]]
SMALL: dict[str, Any] = {
    "id": "small",
    "environment": "procurement",
    "generator": "explicit",
    "items": ITEMS,
    "menu": MENU,
    "budget": 20,
}
NATIVE: dict[str, Any] = {"id": "native", "environment": "procurement", "generator": "native", "seed": 4}


def reference(difficulty: str, seed: int, **more: Any) -> dict[str, Any]:
    """The line of a reference instance."""
    shape = DIFFICULTIES[difficulty]
    names = ("categories", "products", "p_items", "p_quantity", "p_budget", "effectiveness_most")
    line = {"id": f"{difficulty}-{seed}", "environment": "procurement", "generator": "reference", "seed": seed}
    return {**line, **{name: getattr(shape, name) for name in names}, **more}


class Play(Game):
    """One episode of procurement."""

    environment, action, argument, getter = PROCUREMENT, ACTION, "purchase_plan", HISTORY

    def buy(self, plan: object) -> Any:
        """The facts of a plan that is accepted."""
        return self.submit(plan)["action"]


buying = Play.acting
