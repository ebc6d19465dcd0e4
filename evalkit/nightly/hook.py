"""The words of an alarm for people, and its facts for the user's command."""

import os
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import orjson

from evalkit.engine.view import View
from evalkit.errors import EvalkitError, UsageError
from evalkit.money import show_usd, usd_number
from evalkit.nightly.history_files import nights, spans_of
from evalkit.report.nights.history import AlarmNote, CellNight, NightRecord
from evalkit.spec.model import Sweep
from evalkit.text import visible

HOOK_WITHIN_S = 60.0
"""A hook that takes longer is stopped."""


def facts(
    name: str, run: Path, night: str, cells: Sequence[CellNight], history: Sequence[NightRecord]
) -> dict[str, Any]:
    """A night's alarms as plain values: `version` 1; scores 0 to 100. `cells`: those with an alarm."""
    alarms = []
    for cell in cells:
        assert cell.alarm is not None
        alarm = cell.alarm
        before = [known for record in history if record.night in alarm.was[-1:] for known in record.cells]
        alarms.append(
            {
                "agent": cell.agent,
                "suite": cell.suite,
                "since": alarm.since,
                "new": alarm.since == night,
                "before": None if alarm.before is None else 100 * alarm.before,
                "now": None if alarm.now is None else 100 * alarm.now,
                "nights": alarm.nights,
                "p": alarm.p,
                "threshold": alarm.threshold,
                "by": alarm.by,
                "evidence": alarm.evidence,
                "visible_fall": None if alarm.visible is None else 100 * alarm.visible,
                **({"alarm": cell.alarm_word} if cell.litmus is True else {}),
                "words": cell.why,
                "served": list(cell.served),
                "served_before": [model for known in before if known.cell == cell.cell for model in known.served],
                "compare": compare_words(run, cell),
            }
        )
    rises = [
        {"agent": cell.agent, "suite": cell.suite, "words": words}
        for record in history[-1:]
        if record.night == night
        for cell, words in record.rises
    ]
    return {"version": 1, "sweep": name, "night": night, "run": str(run), "alarms": alarms, "dearer": rises}


def compare_words(run: Path, cell: CellNight) -> list[str]:
    """The `evalkit compare` of the nights that the alarm compares; empty if those of a side are gone."""
    assert cell.alarm is not None
    sides = compared(cell.alarm, nights(run.parent))
    return ["evalkit", "compare", *(f"{run.parent / side}:{cell.agent}" for side in sides)] if all(sides) else []


def compared(alarm: AlarmNote, night_names: Sequence[str]) -> tuple[str, str]:
    """The nights before the fall and those of the window, as `history_files.spans_of` writes them."""
    return spans_of(alarm.was, night_names), spans_of(alarm.window, night_names)


def message(payload: Mapping[str, Any]) -> list[str]:
    """The alarms in lines for people."""
    lines = []
    for alarm in payload["alarms"]:
        since = "" if alarm["new"] else f" (since {alarm['since']})"
        lines.append(
            f"{alarm.get('alarm', 'regression').upper()}{since}: {visible(alarm['agent'])} on {visible(alarm['suite'])}"
        )
        least = f" (alarm at {alarm['threshold']:.2g})" if alarm["by"] == "windows" else ""
        lines.append(f"  {alarm['words']}{least}")
        if alarm["served"] and alarm["served_before"] and alarm["served"] != alarm["served_before"]:
            before, served = (", ".join(map(visible, alarm[key])) for key in ("served_before", "served"))
            lines.append(f"  the provider serves another model: {served}; before: {before}")
        if alarm["compare"]:
            lines.append(f"  look: {shlex.join(alarm['compare'])}")
    return lines + [
        f"DEARER: {visible(one['agent'])} on {visible(one['suite'])}: {one['words']}" for one in payload["dearer"]
    ]


def unmeasured(record: NightRecord) -> list[str]:
    """In lines for people, what a night could not measure, and why: an agent's lines are one where they are alike."""
    missing: dict[tuple[str, str], list[str]] = {}
    for cell in record.cells:
        if cell.why_unmeasured:
            missing.setdefault((cell.agent, cell.why_unmeasured), []).append(cell.suite)
    return [
        f"no measurement: {visible(agent)} on {visible(', '.join(suites))}: {visible(why)}"
        for (agent, why), suites in missing.items()
    ]


def split_command(command: str) -> list[str]:
    """A command line as a shell would split it. Raises UsageError."""
    try:
        words = shlex.split(command)
    except ValueError as flaw:
        raise UsageError(f"--on-alarm: {command!r} cannot be read: {flaw}.") from flaw
    if not words:
        raise UsageError("--on-alarm: the command is empty.")
    return words


class BudgetAlert:
    """Shows a run, and tells once when it has spent a share of its budget."""

    def __init__(self, show: Callable[[View], None], sweep: Sweep, run: Path, hook: Sequence[str] | None) -> None:
        """`hook`: the command that is told, beside the run; None: the words at the end alone."""
        self._show, self._sweep, self._run, self._hook = show, sweep, run, hook
        self._before: bool | None = None
        self._call: Thread | None = None
        self.words = ""
        """What was told; empty: nothing."""
        self.flaw = ""
        """Why the command was not told."""

    def __call__(self, view: View) -> None:
        """Show a view, the first of them too: what an earlier call had spent it has told."""
        self._show(view)
        share = self._sweep.alert_at
        if share is None or not view.budget or self.words:
            return
        beyond = view.spent >= share * view.budget
        if beyond and self._before is False:
            self.words = (
                f"{100 * share:g} % of the budget are spent: {show_usd(view.spent)} of {show_usd(view.budget)}."
            )
            self._call = Thread(target=self._tell, args=(view.spent, view.budget))
            self._call.start()
        self._before = beyond

    def end(self) -> list[str]:
        """Wait for the command; what was told, as lines."""
        if self._call is not None:
            self._call.join()
        return list(filter(None, [self.words, self.flaw]))

    def _tell(self, spent: int, budget: int) -> None:
        if self._hook is None:
            return
        money = {"spent_usd": usd_number(spent), "budget_usd": usd_number(budget)}
        about = {"version": 1, "sweep": self._sweep.name, "night": "", "run": str(self._run), "alarms": []}
        try:
            call_hook(self._hook, {**about, "summary": self.words, **money})
        except EvalkitError as error:
            self.flaw = f"evalkit: {error}"


def call_hook(words: Sequence[str], payload: Mapping[str, Any]) -> None:
    """Run the command with the facts as JSON on its standard input and in its environment; no shell.

    Raises EvalkitError if it cannot be run, fails, or takes longer than `HOOK_WITHIN_S`.
    """
    new = [alarm for alarm in payload["alarms"] if alarm["new"]]
    more = {
        "EVALKIT_SWEEP": payload["sweep"],
        "EVALKIT_NIGHT": payload["night"],
        "EVALKIT_RUN": payload["run"],
        "EVALKIT_ALARMS": str(len(new)),
        "EVALKIT_SUMMARY": payload.get("summary")
        or "; ".join(f"{alarm['agent']} on {alarm['suite']}: {alarm['words']}" for alarm in new),
    }
    name = words[0]
    try:
        done = subprocess.run(  # noqa: S603 - the user's own command, split and without a shell
            list(words), input=orjson.dumps(payload), env={**os.environ, **more}, timeout=HOOK_WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise EvalkitError(f"--on-alarm: {name} took longer than {HOOK_WITHIN_S:g} s and was stopped.") from None
    except OSError as flaw:
        raise EvalkitError(f"--on-alarm: {name} cannot be run: {flaw.strerror}.") from flaw
    if done.returncode:
        raise EvalkitError(f"--on-alarm: {name} exited with code {done.returncode}. The next call tries again.")
