"""What all Gymnasium environments share: the suite, the game, rewards that add up to the score, the ending.

An episode is an `evalkit.game`; an environment says which reply an action is, and what is observed of the turn.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import gymnasium
import numpy as np

from evalkit.api.games import Game, Instance, env, game, suite
from evalkit.dialogue import Reply, ToolCall
from evalkit.envs.environment import Environment, Score
from evalkit.envs.replay import Turn
from evalkit.envs.rules import Rules
from evalkit.errors import UsageError
from evalkit.policy.conversation import action_arguments

SizeT = TypeVar("SizeT")


class GameEnv(gymnasium.Env[Any, Any]):
    """A suite as a Gymnasium environment: `reset` draws one of its instances, `step` gives one reply.

    suite         a suite's name or file
    reward        `score`: by how much the score so far has changed, so that rewards add up to the episode's score;
                  `terminal`: the score, at the end
    render_mode   None or `ansi`
    instances     ids of the suite's instances to draw from (default: all)
    parameters    of the suite's environment, each with a value or a list of values, as a sweep varies them

    `reset(options={"instance": ID})` chooses an instance by its id, or by its place in the suite. `info` has
    `instance` after `reset`; `outcomes`, `period` and `step` after each step; and `score`, `solved`, `ending` and
    `metrics` at the end. `game` is the `evalkit.Game` that is played. `truncated` is always False.

    Raises UsageError for an unknown suite, instance, parameter or reward.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012
    rewards: ClassVar[tuple[str, ...]] = ("score", "terminal")
    environment: ClassVar[str] = ""
    """Whose suites it plays; empty: any suite."""

    def __init__(
        self,
        suite: str,
        *,
        reward: str = "score",
        render_mode: str | None = None,
        instances: Sequence[str] = (),
        **parameters: Any,
    ) -> None:
        """As the class says."""
        if reward not in self.rewards:
            raise UsageError(f"reward: expected {' or '.join(self.rewards)}, got {reward!r}.")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise UsageError(f"render_mode: expected None or 'ansi', got {render_mode!r}.")
        self.render_mode = render_mode
        self.reward = reward
        self.instances = _chosen(suite, instances, parameters, self.environment)
        self.game: Game
        self._paid = 0.0
        """Rewards so far, added up in order."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of `options["instance"]`, or of an instance that is drawn."""
        super().reset(seed=seed)
        wanted = (options or {}).get("instance")
        if wanted is None:
            wanted = int(self.np_random.integers(len(self.instances)))
        self.game = game(self._instance(wanted))
        self._paid = 0.0
        self.begun()
        info = {"instance": self.game.instance.id, "period": self.game.period, "step": self.game.step}
        return self.observed(None), info | self.told(None)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Give the reply that the action stands for. Raises ValueError if the episode has ended."""
        turn = self.game.reply(self.answer(action))
        outcomes = [call["outcome"] for call in turn.facts.get("calls", ())]
        info: dict[str, Any] = {"outcomes": outcomes, "period": self.game.period, "step": self.game.step}
        # Only an action changes a score; to compute it costs more the longer the episode is.
        score = self.game.score() if turn.ending or (turn.acted and self.reward != "terminal") else None
        if score is not None and turn.ending:
            info |= _result(score, turn.ending)
        return self.observed(turn), self.earned(turn, score), bool(turn.ending), False, info | self.told(turn)

    def render(self) -> str | None:
        """The last message of the chat, and where the episode is."""
        if self.render_mode is None:
            return None
        return f"{self.game.messages[-1].text}\n{self.game!r}"

    def begun(self) -> None:
        """An episode has begun."""

    def answer(self, action: Any) -> Reply | Sequence[ToolCall] | str:
        """The reply that an action stands for."""
        raise NotImplementedError

    def observed(self, turn: Turn | None) -> Any:
        """What is observed after a turn; None: at the beginning."""
        raise NotImplementedError

    def told(self, turn: Turn | None) -> dict[str, Any]:
        """What `info` has in addition."""
        del turn
        return {}

    def earned(self, turn: Turn, score: Score | None) -> float:
        """The reward of a turn. `score`: after it; None: it has not changed."""
        del turn
        if score is None:
            return 0.0
        reward = difference(score.value, self._paid)
        self._paid += reward
        return reward

    def acting(self, name: str, arguments: str) -> tuple[ToolCall, ...]:
        """A reply that calls one tool."""
        return (ToolCall(id=f"call_{self.game.step}", name=name, arguments=arguments),)

    def same(self, what: str, size: Callable[[Any], SizeT]) -> SizeT:
        """What is the same in all instances, as they are loaded. Raises UsageError where it is not."""
        definition: Environment[Any, Any] = env(self.environment)
        sizes = {size(definition.load(one.line)): one.id for one in self.instances}
        if len(sizes) > 1:
            (first, one), (second, other) = list(sizes.items())[:2]
            raise UsageError(
                f"suite: its instances differ in {what} ({one}: {first}, {other}: {second}), and so would observations "
                "and actions. Choose instances that are alike, with `instances` or parameters."
            )
        return next(iter(sizes))

    def largest(self, size: Callable[[Any], int]) -> int:
        """The largest of all instances."""
        definition: Environment[Any, Any] = env(self.environment)
        return max(size(definition.load(one.line)) for one in self.instances)

    def loaded(self) -> Any:
        """The instance that is played, as its environment knows it."""
        return env(self.environment).load(self.game.instance.line)

    def _instance(self, wanted: object) -> Instance:
        if isinstance(wanted, str):
            found = [one for one in self.instances if one.id == wanted]
            if len(found) == 1:
                return found[0]
            flaw = "several variants have that id: give its place" if found else "there is none of that id"
            raise UsageError(f"options: instance {wanted!r}: {flaw}.")
        try:
            place = operator.index(wanted)  # type: ignore[arg-type]
            if 0 <= place < len(self.instances):
                return self.instances[place]
        except TypeError:
            pass
        raise UsageError(f"options: instance: expected an id or 0 to {len(self.instances) - 1}, got {wanted!r}.")


def difference(target: float, so_far: float) -> float:
    """What, added to `so_far`, is `target` in doubles, or as close to it as there is a double."""
    change = target - so_far
    near = (change, math.nextafter(change, math.inf), math.nextafter(change, -math.inf))
    return min(near, key=lambda one: abs(so_far + one - target))


def _chosen(name: str, instances: Sequence[str], parameters: Mapping[str, Any], environment: str) -> list[Instance]:
    """The instances that are played. Raises UsageError if there are none, or they are another environment's."""
    vary = {key: value if isinstance(value, list | tuple) else [value] for key, value in parameters.items()}
    found = suite(name, instances=instances, vary=vary)
    if not found:
        raise UsageError(f"suite: {name} has no instances.")
    other = next((one.environment for one in found if environment and one.environment != environment), "")
    if other:
        raise UsageError(f"suite: expected a suite of {environment}, got {name}, which {other} plays.")
    return found


def _result(score: Score, ending: str) -> dict[str, Any]:
    return {
        "score": score.value,
        "solved": score.solved,
        "ending": ending,
        "metrics": {name: float(value) for name, value in score.metrics.items()},
    }


# What the environments of periods share: a step is a period, by one call of the tool that acts.


class PeriodsEnv(GameEnv):
    """A suite whose episodes are periods; a step is a period."""

    rules: ClassVar[Rules[Any]]

    def submitting(self, mapping: Mapping[str, object]) -> tuple[ToolCall, ...]:
        """The reply that acts, in the form that the tool asks for."""
        tool = next(tool for tool in self.game.tools if tool.name == self.rules.action)
        return self.acting(tool.name, action_arguments(tool, mapping))

    def period(self, turn: Turn | None) -> np.int64:
        """The period that comes next; at the end, how many there were."""
        return np.int64(self.game.period if turn is None or not turn.ending else turn.period + 1)
