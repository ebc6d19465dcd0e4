"""Golden cases of scheduling that are whole episodes, played through the real environment, reply by reply.

Feedback streams and score replays submit recorded assignments; in forced walks the policy `knuth` plays. Compared are
the facts that a run's log would hold.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evalkit.dialogue import Reply, Request, ToolCall
from evalkit.envs.arguments import ParsedValue, Refusal, read_mapping
from evalkit.envs.environment import Facts, Kit
from evalkit.envs.mersenne import RandomStateStream
from evalkit.envs.replay import Position, advance, begin
from evalkit.envs.scheduling import assignment
from evalkit.envs.scheduling.instance import SchedulingInstance, load
from evalkit.envs.scheduling.scheduling import ACTION, RULES, SCHEDULING
from evalkit.policy.conversation import answer
from evalkit.policy.table import player
from evalkit.seeds import derive
from evalkit.spec.packs import read_pack
from tests.conform.compare import pricing, procurement
from tests.conform.compare.goldens import (
    EQUAL,
    GoldenVerdict,
    Row,
    differing,
    documented,
    judged,
    out_of_scope,
    parting,
)
from tests.conform.compare.scheduling import Level, of_row, sampled

REFERENCE_PERIODS = 100

ARGUMENT = RULES.argument

STATUS = {"stable": "Successfully found stable matching", "complete": "Exited normally"}
"""The reference's words for an episode's ending."""

_NO_BYTES = b""
"""Stands for a reply as the log holds it: only digests are made of it, and nobody reads them here."""


@dataclass(slots=True)
class Played:
    """An episode that was played: where it stands, and what was said of it."""

    position: Position
    facts: list[Facts] = field(default_factory=list)
    """Of every step."""
    submitted: list[Mapping[str, str]] = field(default_factory=list)
    """The accepted assignments, in order."""

    @property
    def actions(self) -> list[Mapping[str, Any]]:
        """The facts of the accepted assignments, in order."""
        return [facts["action"] for facts in self.facts if "action" in facts]


def feedback_streams(row: Row, data: Path | None) -> GoldenVerdict:
    """Recorded assignments in a row: how many pairs block each, which are shown, and the generator's next draw."""
    del data
    at = of_row(row)
    assignments = [step["matching"] for step in row["steps"]]
    played = submit_all(target(at), assignments)
    actions = [*played.actions, *_past_the_end(played.position, assignments[len(played.actions) :])]
    steps = [
        {"matching": submitted, "num_blocking": action["blocking"], "feedback": action["shown"]}
        for submitted, action in zip(assignments, actions, strict=True)
    ]
    ours = {"difficulty": at.name.title(), "seed": at.seed, "k": at.k, "steps": steps}
    ours["rng_probe_next_double"] = RandomStateStream(played.position.state.world.random_state).double()
    return judged(row, ours)


def forced_walk(row: Row, data: Path | None) -> GoldenVerdict:
    """The heuristic from the identity where one pair is shown: nothing is left to chance, so every step is known."""
    del data
    at = of_row(row)
    if at.k != 1:
        return out_of_scope("with more than one pair shown, the heuristic's walk is not determined")
    played = play_knuth(target(at))
    ours = {
        "seed": at.seed,
        "periods": len(played.actions),
        "blocking_counts": [action["blocking"] for action in played.actions],
        "shown": [pair for action in played.actions for pair in action["shown"]],
        "final": played.submitted[-1],
        "stable": played.position.ending == assignment.STABLE,
    }
    return judged({key: value for key, value in row.items() if key != "difficulty"}, ours)


def score_replays(row: Row, data: Path | None) -> GoldenVerdict:
    """A hundred recorded actions: each period's feedback, then the score by the reference's rule and by ours."""
    others = {"procurement": procurement.replay, "pricing": pricing.replay}
    if row["env"] in others:
        return others[row["env"]](row, data)
    at = of_row(row)
    instance = target(at)
    played = submit_all(instance, row["actions"])
    per_period = [[action["blocking"], action["shown"]] for action in played.actions]
    if found := parting(row["per_period"], per_period, "per_period"):
        return differing(found)
    golden = row["notebook"]
    by_reference = reference_figures(at, played)
    if found := parting({key: golden[key] for key in by_reference}, by_reference, "notebook"):
        return differing(found)
    ours = SCHEDULING.score(instance, played.facts)
    if ours.solved != golden["solved"]:
        return differing(f"solved: golden {golden['solved']}, ours {ours.solved}")
    same = ours.value == golden["final_score"] and ours.metrics["exploration_rate"] == golden["exploration_rate"]
    return EQUAL if same else documented("own-denominator-and-exploration")


def reference_figures(at: Level, played: Played) -> dict[str, Any]:
    """What the reference's notebook would say of our facts: with its sampled denominator, and its exploration rate."""
    final = played.actions[-1]["blocking"]
    baseline = float(sampled(at).mean())
    value = 1 - final / baseline
    # The reference tells assignments apart by their text, order of workers included.
    distinct = len({str(dict(submitted)) for submitted in played.submitted})
    return {
        "final_num_blocking_pairs": final,
        "baseline_num_blocking_pairs": baseline,
        "final_score": value,
        "final_score_floor": max(0.0, value),
        "exploration_rate": distinct / (distinct + 1),
        "solved": value == 1,
        "status": STATUS[played.position.ending],
    }


def target(at: Level) -> SchedulingInstance:
    """The reference's instance, as a suite's line would give it."""
    line = {"id": f"{at.name}-{at.seed}", "generator": "reference", "seed": at.seed, "n": at.n, "k": at.k}
    return load({**line, "periods": REFERENCE_PERIODS})


def submit_all(instance: SchedulingInstance, assignments: Sequence[Mapping[str, str]]) -> Played:
    """Submit assignments, one a period, until they or the episode end."""
    played = _begin(instance)
    for submitted in assignments:
        if played.position.ending:
            break
        arguments = json.dumps({ARGUMENT: repr(dict(submitted))})
        _reply(played, Reply(calls=(ToolCall(id="call", name=ACTION, arguments=arguments),)), submitted)
    return played


def play_knuth(instance: SchedulingInstance) -> Played:
    """The policy `knuth`, from what the conversation shows, to the episode's end."""
    played, play = _begin(instance), player("knuth", "scheduling")
    while not played.position.ending:
        position = played.position
        request = Request(
            messages=tuple(position.messages),
            tools=position.tools,
            sampling=SCHEDULING.defaults,
            seed=derive("conform", instance.id, position.step),
        )
        reply = answer("knuth", play, request)
        texts = [json.loads(call.arguments) for call in reply.calls if call.name == ACTION]
        submitted = read_mapping(texts[0][ARGUMENT]) if texts else None
        _reply(played, reply, submitted.value if isinstance(submitted, ParsedValue) else {})
    return played


def _begin(instance: SchedulingInstance) -> Played:
    return Played(begin(SCHEDULING, instance, Kit(pack=read_pack("standard", SCHEDULING.name, ""))))


def _reply(played: Played, reply: Reply, submitted: Mapping[str, str]) -> None:
    """Answer once; an action that was accepted is kept with what was submitted."""
    turn = advance(SCHEDULING, played.position, reply, _NO_BYTES)
    played.facts.append(turn.facts)
    if "action" in turn.facts:
        played.submitted.append(submitted)


def _past_the_end(position: Position, assignments: Sequence[Mapping[str, str]]) -> list[Mapping[str, Any]]:
    """Facts of assignments behind a stable one: the reference's streams go on where an episode of either is over."""
    actions = []
    for submitted in assignments:
        judged_so = assignment.submit(position.state, submitted)
        if isinstance(judged_so, Refusal):
            raise ValueError(f"the assignment is refused: {judged_so.outcome}")
        position.state = replace(position.state, world=judged_so.world)
        actions.append(judged_so.facts)
    return actions
