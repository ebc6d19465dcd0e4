"""Playing pricing by hand in tests, lines to play, and golden rows."""

import json
from pathlib import Path
from typing import Any

from evalkit.envs.pricing.instance import DIFFICULTIES
from evalkit.envs.pricing.pricing import ACTION, HISTORY, PRICING
from tests.support.episode_loop import kit
from tests.support.period_episodes import Game

KIT = kit("pricing")
PACK = KIT.pack
SMALL = {"id": "small", "environment": "pricing", "generator": "native", "seed": 3, "products": 3, "groups": 2}


def reference(difficulty: str, seed: int, **more: Any) -> dict[str, Any]:
    """The line of a reference instance."""
    line = {"id": "r", "environment": "pricing", "generator": "reference", "seed": seed}
    return {**line, "products": DIFFICULTIES[difficulty.lower()], **more}


def rows(shared: Path, name: str) -> list[dict[str, Any]]:
    """A golden file's rows."""
    return [json.loads(row) for row in (shared / "goldens/econagentbench" / name).read_text().splitlines()]


def priced(*prices: object) -> dict[str, object]:
    """A mapping of prices by product: `priced(2, 3.5)` is Product_1 at 2, Product_2 at 3.5."""
    return {f"Product_{i}": price for i, price in enumerate(prices, 1)}


class Play(Game):
    """One episode of pricing."""

    environment, action, argument, getter = PRICING, ACTION, "prices_dict_str", HISTORY


setting = Play.acting
