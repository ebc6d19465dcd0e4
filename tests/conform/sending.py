"""What is kept for good of what evalkit sends: request bytes by environment, dialect and prompt pack; ids of episodes;
digests of steps. A change of any of them makes new runs other runs than those before it.

    python -m tests.conform.sending [requests|texts|ids|steps|sent ...]

writes the files in `sent/` again, for a change that is meant.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalkit.dialogue import Reply, ToolCall
from evalkit.engine.freezing.freeze import resolve
from evalkit.envs.environment import Environment, Kit, Pack
from evalkit.envs.replay import advance, begin
from evalkit.envs.table import ENVIRONMENTS
from evalkit.replies import encode_reply
from evalkit.spec.packs import read_pack
from evalkit.spec.sweep import find_sweep, read_sweep
from evalkit.wire.dialect import Quirks
from evalkit.wire.table import DIALECTS
from tests.support import dialect_sweep
from tests.support.dialect_sweep import SWEEPS, bodies_sent, digests, in_order, inside, lay, play, short_digest
from tests.support.kept_values import write_kept

SENT = Path(__file__).resolve().parent / "sent"

SUITES = ("scheduling", "procurement", "pricing", "costbench")
"""The environments."""

IN_TEXT = {
    "scheduling": "openai_chat",
    "procurement": "openai_responses",
    "pricing": "anthropic_messages",
    "costbench": "gemini",
}
"""By environment, a dialect of which the last request is kept as readable text too."""

CHOICES: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "-required": {"tool_choice": "required", "max_tokens": 512},
    "-none": {"tool_choice": "none"},
}
"""By ending of a pack's name: what an agent asks for instead of its environment's defaults."""


def scripted(environment: str) -> tuple[dict[str, Any], list[Reply]]:
    """(an instance's line, the replies of an episode on it): kept, so that no policy decides what is sent."""
    kept = json.loads((SENT / "replies" / f"{environment}.json").read_text())
    replies = [
        Reply(text=one["text"], calls=tuple(ToolCall(**call) for call in one["calls"]), finish=one["finish"])
        for one in kept["replies"]
    ]
    return kept["line"], replies


def bodies(
    environment: str, dialect: str, pack: Pack, *, notes: bool = True, overrides: Mapping[str, Any] | None = None
) -> list[bytes]:
    """Every request's body of the scripted episode, as the engine puts them together."""
    env: Environment[Any, Any] = ENVIRONMENTS[environment]
    speaks = DIALECTS[dialect]
    line, replies = scripted(environment)
    position = begin(env, env.load(line), Kit(pack=pack, notes=notes))
    head = speaks.head("model-1", env.defaults.with_overrides(overrides or {}), Quirks())
    made: list[bytes] = []
    parts: list[bytes] = []
    chat, joined = position.messages, 0
    tools, encoded = position.tools, speaks.encode_tools(position.tools)
    for reply in replies:
        if position.ending:
            break
        if position.messages is not chat:
            parts, chat, joined = [], position.messages, 0
        if position.tools is not tools:
            tools, encoded = position.tools, speaks.encode_tools(position.tools)
        speaks.join(parts, chat[joined:])
        joined = len(chat)
        made.append(speaks.body(head, encoded, parts, 1000 + position.step))
        advance(env, position, reply, encode_reply(reply))
    return made


def packs(environment: str) -> Iterator[tuple[str, Pack, bool]]:
    """(name, pack, with notes?): evalkit's own, and one that was imported."""
    standard = read_pack("standard", environment)
    yield "standard", standard, True
    yield "standard-no-notes", standard, False
    yield "standard-reasoning", read_pack("standard", environment, "reasoning"), True
    horizon = read_pack("known_horizon", environment)
    yield "known_horizon", horizon, True
    yield "known_horizon-no-notes", horizon, False
    yield "known_horizon_goal", read_pack("known_horizon_goal", environment), True
    yield "imported", read_pack(str(SENT / "packs" / "imported.toml"), environment), True
    if environment == "costbench":
        yield "explicit", read_pack("explicit", environment), True


def of_requests(folder: Path) -> list[str]:
    """A line a request of an episode: environment, dialect, pack, step, number of bytes and digest."""
    return [
        f"{environment} {dialect} {name}{ending} {step} {len(body)} {short_digest(body)}"
        for environment in SUITES
        for dialect in dialect_sweep.DIALECTS.values()
        for name, pack, notes in packs(environment)
        for ending, overrides in (CHOICES.items() if name == "standard" else [("", CHOICES[""])])
        for step, body in enumerate(bodies(environment, dialect, pack, notes=notes, overrides=overrides))
    ]


def of_texts(folder: Path) -> list[str]:
    """The last request of an episode on each environment, to be read."""
    lines: list[str] = []
    for environment, dialect in IN_TEXT.items():
        last = bodies(environment, dialect, read_pack("standard", environment))[-1]
        lines += [
            f"{environment}, {dialect}:",
            *json.dumps(json.loads(last), indent=1, ensure_ascii=False).splitlines(),
        ]
    return lines


def of_ids(folder: Path) -> list[str]:
    """A line an episode of these sweeps in admission order; of long ones, one line with their number and a digest."""
    lines: list[str] = []
    for name in (*SWEEPS, "quickstart", "baselines", "nightly"):
        place = folder / name
        if name in SWEEPS:
            lay(place, SWEEPS[name])
        place.mkdir(exist_ok=True)
        with inside(place):
            found = in_order(resolve(read_sweep(find_sweep("sweep.toml" if name in SWEEPS else name))).manifest)
        if len(found) > 100:
            some = "\n".join(sorted(line.split()[0] for line in found))
            order = "".join(f"{line}\n" for line in found)
            found = [f"{len(found)} {short_digest(some.encode())} in order {short_digest(order.encode())}"]
        lines += [f"{name} {line}" for line in found]
    return lines


def of_steps(folder: Path) -> list[str]:
    """A line an episode of each sweep, played today: digests of its requests, observations and steps."""
    lines: list[str] = []
    for name, sweep in SWEEPS.items():
        lay(folder / name, sweep)
        play(folder / name, folder / name / "run")
        lines += [f"{name} {line}" for line in digests(folder / name / "run")]
    return lines


def of_sent(folder: Path) -> list[str]:
    """A line a request of the sweep with models in all dialects, played today."""
    lay(folder, SWEEPS["dialects"])
    return bodies_sent(folder / "run", play(folder, folder / "run").sent)


MAKERS = {"requests": of_requests, "texts": of_texts, "ids": of_ids, "steps": of_steps, "sent": of_sent}
"""What makes the values in `sent/NAME.txt`."""


def kept(name: str, first: str) -> list[str]:
    """The values in `sent/NAME.txt` that begin with a word, without it."""
    lines = (SENT / f"{name}.txt").read_text().splitlines()
    return [line.removeprefix(f"{first} ") for line in lines if line.startswith(f"{first} ")]


if __name__ == "__main__":
    write_kept(SENT, MAKERS)
