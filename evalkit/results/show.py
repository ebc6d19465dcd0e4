"""`evalkit show RUN EPISODE`: find one episode in a run and render its trajectory."""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import RunError, nearest
from evalkit.frozen.manifest import Manifest, load_target
from evalkit.frozen.manifests import read_manifest
from evalkit.money import show_usd, simulated_words
from evalkit.results.episodes import COLUMNS as RESULT_COLUMNS
from evalkit.results.episodes import (
    Environments,
    EpisodeResult,
    episode_results,
    require_environments,
    result,
    spot_without_steps,
)
from evalkit.results.moves import Ask, Move, ask_of, moves
from evalkit.results.trajectory import Trajectory, folded, trajectory_parts, unfolded
from evalkit.text import BOUND, many, seconds, visible

if TYPE_CHECKING:
    import pyarrow as pa

    from evalkit.store.reading.reader import ReplayRow

KEYS = ("episode", "agent", "suite", "instance", "replicate")
SHOWN = (*RESULT_COLUMNS, "tokens_reasoning", "raw")
"""What of the log is read of the episode, but for its texts."""
NAMED = 8
"""Episodes that a message lists at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeKey:
    """One episode of a run, as people name it."""

    id: str
    agent: str
    suite: str
    instance: str
    replicate: int

    @property
    def place(self) -> str:
        """`agent:suite:instance:replicate`."""
        return f"{self.agent}:{self.suite}:{self.instance}:{self.replicate}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedEpisode:
    """One episode of a run with all of its moves."""

    result: EpisodeResult
    target: Any = field(repr=False)
    """The instance that it was played on."""
    pack: str
    """The name of its prompt pack."""
    simulated: str
    """Whether the run's money is real, as of its manifest."""
    moves: tuple[Move, ...] = field(repr=False)
    asks: tuple[Ask, ...] = field(default=(), repr=False)
    """What its agent's code asked, also on its way to a step that is not there yet."""

    @property
    def pending(self) -> tuple[Ask, ...]:
        """Of these, the ones that have not led to a step yet."""
        return tuple(ask for ask in self.asks if ask.step >= len(self.moves))


def show(run: Path, episode: str, *, period: int | None = None, full: bool = False) -> Trajectory:
    """One episode of a run, or one period of it; `full`: no text is cut, tools say what they are, and
    facts stand there as JSON too.

    `episode` is its id, the beginning of one, or `agent:suite:instance:replicate`. Raises RunError if no episode, or
    more than one, is meant by it, or if it has no such period; CorruptLogError if its rows cannot be read.
    """
    return trajectory_of(open_episode(run, episode), period=period, full=full)


def open_episode(run: Path, episode: str) -> ReplayedEpisode:
    """One episode of a run, replayed. `episode` and what is raised: as for `show`."""
    from evalkit.store.reading.reader import asks_made, replay_rows, scan, scan_all

    manifest = read_manifest(run)
    # A run may hold a million steps: who knows the id waits for no look at all of them.
    known, steps = episode, scan(run, SHOWN, episode)
    if not steps.num_rows:
        key = find_episode(_keys(scan_all(run, KEYS)), episode)
        known, steps = key.id, scan(run, SHOWN, key.id)
        if not steps.num_rows:
            return _without_steps(manifest, key, tuple(map(ask_of, asks_made(run, {known: None})[known])))
    rows = replay_rows(run, {known})[known]
    coded = manifest.agents[steps.column("agent")[0].as_py()].code is not None
    asks = tuple(map(ask_of, asks_made(run, {known: rows[0].base_take})[known])) if coded else ()
    return replayed(manifest, steps, rows, ENVIRONMENTS, asks)


def _keys(table: "pa.Table") -> list[EpisodeKey]:
    import pyarrow as pa

    from evalkit.store.files.schema import STEPS

    # Files of a log have dictionaries of their own, and pyarrow does not group by columns whose dictionaries differ.
    plain = table.select(KEYS).cast(pa.schema([STEPS.field(name) for name in KEYS]))
    rows = plain.group_by(list(KEYS)).aggregate([]).to_pylist()
    return [EpisodeKey(id=row.pop("episode"), **row) for row in rows]


def find_episode(keys: Iterable[EpisodeKey], wanted: str) -> EpisodeKey:
    """The one episode that is meant. Raises RunError naming the candidates."""
    known = sorted(keys, key=lambda key: (key.place, key.id))
    if not known:
        raise RunError("The run holds no steps yet, so there is no episode to show.")
    matches = [key for key in known if wanted in (key.place, key.id)]
    if not matches and wanted:
        matches = [key for key in known if key.id.startswith(wanted)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        named = "".join(f"\n  {key.id}  {key.place}" for key in matches[:NAMED])
        more = f"\n  and {len(matches) - NAMED:,} more" if len(matches) > NAMED else ""
        raise RunError(f"{wanted!r} is the beginning of {len(matches):,} episodes; write more of it:{named}{more}")
    parts = [*wanted.split(":"), "0"][:4]  # without a replicate, the first is meant
    right = [sum(map(eq, parts, key.place.split(":"))) for key in known]
    closest = [key.place for key, most in zip(known, right, strict=True) if most == max(right)]
    hint = nearest(":".join(parts), closest) if ":" in wanted else ""
    if len(hint) > 200:
        hint = f" One that the run holds: {closest[0]}"
    form = "Write an id, the beginning of one, or agent:suite:instance:replicate."
    raise RunError(f"The run holds no episode {wanted!r}.{hint or f' {form}'}")


def replayed(
    manifest: Manifest,
    steps: "pa.Table",
    replay: "Sequence[ReplayRow]",
    environments: Environments,
    asks: Sequence[Ask] = (),
) -> ReplayedEpisode:
    """The episode of these rows in effect.

    `steps` holds the columns that its result is made of, `replay` the rest of the same rows in step order.
    """
    suites = [manifest.suites[name] for name in steps.column("suite").unique().to_pylist() if name in manifest.suites]
    require_environments(manifest, (suite.environment for suite in suites), environments)
    (found,) = episode_results(steps, manifest, environments)
    counted = ["tokens_in", "tokens_out", "tokens_reasoning", "cost", "latency_s", "attempts", "raw"]
    counted = [name for name in counted if name in steps.column_names]
    numbers = steps.sort_by("step").select(counted).to_pylist()
    rows = [{**asdict(row), **more} for row, more in zip(replay, numbers, strict=False)]
    agent, suite = manifest.agents[found.agent], manifest.suites[found.suite]
    kit = manifest.kit_of(agent, suite.environment)
    env = environments[suite.environment]
    target = load_target(env, manifest.targets([(suite.name, found.instance)])[suite.name, found.instance][1])
    played = tuple(moves(env, target, kit, rows, asks))
    return ReplayedEpisode(
        result=found, target=target, pack=kit.pack.name, simulated=manifest.simulated, moves=played, asks=tuple(asks)
    )


def _without_steps(manifest: Manifest, key: EpisodeKey, asks: tuple[Ask, ...]) -> ReplayedEpisode:
    """An episode whose agent's code has asked, and not acted yet."""
    spot = spot_without_steps(
        asdict(key) | {"episode": key.id},
        manifest,
        cost=sum(ask.cost_pico_usd for ask in asks),
        tokens_in=sum(ask.tokens_in for ask in asks),
        tokens_out=sum(ask.tokens_out for ask in asks),
        latency_s=math.fsum(ask.latency_s for ask in asks),
    )
    environment = spot.suite.environment
    require_environments(manifest, [environment], ENVIRONMENTS)
    pack = manifest.kit_of(manifest.agents[spot.agent], environment).pack
    target = load_target(ENVIRONMENTS[environment], spot.target)
    return ReplayedEpisode(
        result=result(spot, None), target=target, pack=pack.name, simulated=manifest.simulated, moves=(), asks=asks
    )


def trajectory_of(episode: ReplayedEpisode, *, period: int | None = None, full: bool = False) -> Trajectory:
    """An episode rendered, as `show` gives it. Raises RunError if it has no such period."""
    last = episode.result.periods - 1
    if period is not None and not 0 <= period <= last:
        raise RunError(f"The episode has periods 0 to {last}, so there is no period {period} to show.")
    most = sys.maxsize if full else BOUND
    parts = tuple(trajectory_parts(episode.moves, period=period, most=most, pending=episode.pending))
    shown = tuple(map(unfolded if full else folded, parts))
    return Trajectory(header=_header(episode.result, episode.pack, simulated_words(episode.simulated)), parts=shown)


def _header(result: EpisodeResult, pack: str, money: str) -> dict[str, str]:
    score = (
        "none: the episode has not ended"
        if result.score is None
        else f"{100 * result.score:.1f}" + (" (solved)" if result.solved else "")
    )
    lines = {
        "episode": result.id,
        "agent": f"{result.agent} (prompts: {pack})",
        "instance": f"{result.suite} {result.instance}, replicate {result.replicate}",
        "score": score,
        "ending": result.ending or "none yet",
        "length": f"{many(result.steps, 'step')} in {many(result.periods, 'period')}",
        "cost": f"{show_usd(result.cost)}{money} for {result.tokens_in:,} tokens in, {result.tokens_out:,} out",
        "latency": f"{seconds(result.latency_s)} of replies",
    }
    return {name: visible(value) for name, value in lines.items()}
