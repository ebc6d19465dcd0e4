"""What lasts of a run, as the disk has seen it: steps, asks of agents that are code, and charges."""

from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.store.files.record import ASK
from tests.sim.checks import Broken, charges
from tests.sim.players import Place, address

if TYPE_CHECKING:
    from tests.sim.world import World

STEPS = {"steps", "log"}
"""Folders of files with rows of steps."""


def lasted(world: "World", names: list[Path]) -> None:
    """New files of a folder last from now on: note the steps and asks in them."""
    _seals(world, names)
    for path in names:
        if (
            path.suffix != ".parquet"
            or not {path.parent.name, path.parent.parent.name} & STEPS
            or not path.exists()
            or path in world.harmed
        ):
            continue
        if world.checks.suspended:
            continue  # what a repair leaves counts once it has ended
        if path.parent.parent.name == "log":
            world.charged[path] = charges(path)
        columns = world.memory.columns(path, "episode", "step", "row_kind", "ask_key", "ask_n").columns
        for episode, step, kind, key, n in zip(*(column.to_pylist() for column in columns), strict=True):
            if kind == ASK:
                place = step, address(key, n)
                world.asked.setdefault(episode, set()).add(place)
                if world.process is not None:
                    world.process.knows_asks.add((episode, place))
                continue
            world.durable.setdefault(episode, set()).add(step)
            if world.process is not None:
                world.process.knows.add((episode, step))


def _seals(world: "World", names: list[Path]) -> None:
    """Whoever puts an object into another's journal has ended it."""
    for path in names:
        owner = world.owner(path) if path.parent.parent.name == "log" else None
        if owner is not None and world.process is not None and owner is not world.process:
            owner.sealed.setdefault(path.parent.name, world.process.number)
            world.say(f"the journal of process {owner.number} has been ended: {path.name}")
            world.counts["zombie"] += not owner.dead


def answered(world: "World", episode: str, place: Place) -> None:
    """An agent that is code has the reply to an ask."""
    world.counts["asks"] += 1
    if not world.checks.suspended and place not in world.asked.get(episode, set()):
        world.flaws.append(Broken(f"{episode}/{place[0]} {place[1]} is answered before its reply is durable"))
