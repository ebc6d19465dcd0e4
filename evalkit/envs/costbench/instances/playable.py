"""Whether an instance's events can be played: they have the queries they need, and leave a way to the goal."""

from evalkit.envs.costbench.domain.world import World
from evalkit.envs.costbench.instances.blocks import planned_blocks
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.planning.solvable import fewest_breaks
from evalkit.errors import UsageError


def check_events(instance: PlanningProblem, world: World) -> None:
    """Raises UsageError naming the field that asks for what cannot be played."""
    if instance.schedule and instance.block != "none":
        raise UsageError("block: a schedule says all that happens; leave `block` and `blocks` out beside it.")
    if instance.block in ("preference_change", "mixed"):
        _check_seed(instance)
    _check_way(instance, world)


def _check_seed(instance: PlanningProblem) -> None:
    drawn_for = instance.alternatives_seed
    if instance.generator == "reference" and drawn_for != instance.seed:
        raise UsageError(
            f"alternatives_seed: the reference draws alternatives by seed, and these were drawn for "
            f"{'no seed that the line says' if drawn_for is None else drawn_for}, not for {instance.seed}. "
            "Import or generate the suite again with that seed."
        )


def _check_way(instance: PlanningProblem, world: World) -> None:
    """Whether a way to the goal is left whichever tools an agent's calls ban (B.5 of the paper)."""
    blocks = planned_blocks(instance, world)
    bans = sum(block.kind == "ban_tool" for block in blocks)
    where = "schedule" if instance.schedule else "blocks"
    for size in sorted({0, *(block.size for block in blocks)}) if bans or not world.chain else ():
        stands = fewest_breaks(world, size, bans) - 1
        hidden = f"once those of {size} components are removed" if size else ""
        if stands < 0:
            raise UsageError(
                f"{where}: no way to the goal is left among the tools of task {instance.task!r}, {hidden}."
            )
        if stands < bans:
            raise UsageError(
                f"{where}: {counted(bans, 'ban')} may leave no way to the goal; the tools of task {instance.task!r} "
                f"stand {stands or 'none'}{f', {hidden}' if hidden else ''} (appendix B.5 of the paper). Ask for fewer"
                f"{', or for a longer chain' if world.chain else ''}."
            )


def counted(number: int, what: str) -> str:
    """A number and what it counts: `1 ban`, `2 bans`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
