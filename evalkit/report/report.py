"""`evalkit report`: everything a reader asks of a run, as tables; computed from the log again each time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evalkit.frozen.manifest import Manifest
from evalkit.frozen.question_files import ABOUT, FrozenQuestion, GivenAnswers, read_given
from evalkit.frozen.void import Void, read_voids
from evalkit.report.accounts import (
    ASK_COLUMNS,
    LOG_COLUMNS,
    caching_tables,
    completeness_table,
    money_table,
    speed_table,
)
from evalkit.report.behaviour import (
    DRIFT,
    SERVED_ASK_COLUMNS,
    SERVED_COLUMNS,
    behaviour_table,
    drift_tables,
    refusals_table,
)
from evalkit.report.extras import all_extras, refuse_clashes, refuse_tables
from evalkit.report.run_data import RunData
from evalkit.report.scores import packs_of, scores_table
from evalkit.report.tables import Column, Table, columns_of, marked
from evalkit.results.answers import QuestionAnswer, RunQuestion, best_words
from evalkit.results.asked import doubts, read_question
from evalkit.results.cells import Cell, cells
from evalkit.results.derived import read_run
from evalkit.results.endings import most_said
from evalkit.spec.decide import POINTS

ANSWERS = "answers"
"""The name of the table."""
LEANS = (
    "the run ended agents as soon as their questions were answered: a mean at such a stop is biased, and only the "
    "table of answers has intervals that take this into account"
)
"""What the table of scores must say of a run that asks a question."""


def answers_table(
    asked: RunQuestion, given: Iterable[GivenAnswers], voids: Iterable[Void], cells: Sequence[Cell]
) -> Table:
    """A row for each pair, and for each agent whose own mean is wanted."""
    frozen = asked.frozen
    return Table(
        name=ANSWERS,
        title="Answers",
        columns=(
            *([Column(key="suite", title="Suite", group=True)] if frozen.gate is not None else []),
            *columns_of(first="A", second="B", answer="Answer"),
            Column(key="estimate", title="B - A", kind="score", unit="points"),
            Column(key="interval", title="Interval", kind="interval", unit="points", equal=POINTS * frozen.margin),
            Column(key="draws", title="Draws", kind="count"),
            Column(key="answered_with", title="Answered with", kind="count", unit="draws"),
        ),
        rows=tuple(
            {
                "first": answer.subject[0],
                "second": answer.subject[1] if len(answer.subject) > 1 else None,
                "suite": answer.subject[-1],
                "answer": short(answer),
                "estimate": POINTS * answer.mean if answer.draws else None,
                "interval": (POINTS * answer.low, POINTS * answer.high) if answer.draws else None,
                "draws": answer.draws,
                "answered_with": answer.at or None,
            }
            for answer in asked.answers
            if asked.promises(answer)
        )
        + tuple({"first": agent, "answer": _place(agent, asked)} for agent in frozen.agents if asked.best is not None),
        packs=packs_of(cells),
        notes=(
            f"about {ABOUT[frozen.about]}; of {asked.draws:,} draws at most",
            f"{_rule(frozen)}; whichever comes first; scores count from {POINTS * frozen.scores[0]:g} to "
            f"{POINTS * frozen.scores[1]:g}",
            *([best_words(asked.best, frozen.margin, decided=asked.decided)] if asked.best is not None else []),
            "estimate: biased away from 0 at a stop, since that comes when luck adds to a difference; of an agent "
            "alone, its own mean; a p-value for one look would not be valid, so there is none",
            *(f"{' and '.join(one.subject)}: {cut}" for one in asked.answers if (cut := asked.cut_words(one))),
            *doubts(asked, given, voids),
        ),
    )


def _rule(frozen: FrozenQuestion) -> str:
    """When an answer is given, and what is promised."""
    if frozen.gate is not None:
        return (
            "a gate: worse: shown to be below 0; not worse: shown to be above minus the margin "
            f"({', '.join(f'{name} {POINTS * margin:g} points' for name, margin in frozen.gate.margins.items())})"
        )
    return (
        f"all intervals together hold at all looks, but for a share {frozen.alpha:g} of runs; better: shown to differ "
        f"from 0; equal: shown to be closer than {POINTS * frozen.margin:g} points"
    )


def _place(agent: str, asked: RunQuestion) -> str:
    """What a search for the best one says of an agent."""
    if agent not in (asked.best or ()):
        return "not the best"
    return "best" if asked.decided else "open"


def short(answer: QuestionAnswer) -> str:
    """An answer in a few words."""
    if len(answer.subject) == 1:
        return "known" if answer.at else "open"
    first, second = answer.subject[:2]
    if answer.answer == "undecided":
        return "open" if answer.is_open else "not needed"
    return {"above": f"{second} better", "below": f"{first} better"}.get(answer.answer, answer.answer)


SCHEMA = "evalkit.report"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A run at one moment."""

    manifest: Manifest
    cells: tuple[Cell, ...]
    tables: tuple[Table, ...]
    """`scores`, `answers` where the run asks a question, `behaviour`, `refusals`, `completeness`, `money`, `speed`, in
    this order; after them `caching` where a provider cached prompts, and those that only some environments have
    (`planning.py`)."""

    @property
    def planned(self) -> int:
        """Episodes that the run is to have."""
        return sum(cell.planned for cell in self.cells)

    @property
    def ended(self) -> int:
        """Episodes that are scored."""
        return sum(cell.ended for cell in self.cells)

    @property
    def refused(self) -> int:
        """Episodes that remain because the provider refused a request."""
        return sum(len(cell.refused) for cell in self.cells)

    @property
    def voided(self) -> int:
        """Ended episodes that count for nothing, and are not planned either."""
        return sum(len(cell.voided) for cell in self.cells)

    @property
    def refused_words(self) -> dict[str, str]:
        """By agent with refused episodes: what the provider said most often."""
        said: dict[str, list[str]] = {}
        for cell in self.cells:
            said.setdefault(cell.agent, []).extend(episode.said for episode in cell.refused)
        return {agent: most_said(words) for agent, words in said.items() if words}

    def table(self, name: str) -> Table:
        """The table of that name. Raises KeyError if there is none."""
        by_name = {table.name: table for table in self.tables}
        return by_name[name]

    def to_json(self) -> dict[str, Any]:
        """The report as plain values, for `--json`.

        schema, version   `evalkit.report`, 1. Within a version fields, tables and columns are only added.
        evalkit           version that began the run
        run               name, created_at (s since 1970), replicates, planned, ended, remaining, refused (of the
                          remaining ones), void (episodes; what is void is not planned), complete (bool);
                          refused_words (by agent, what the provider said); simulated_money (bool: nobody pays
                          it, or not all of it)
        agents            in the spec's order: name, lane, prompts, notes (bool), tags, marks
        suites            in the spec's order: name, base, axes, environment, instances (count)
        tables            by name: title; columns (key, title, kind, unit); rows (objects by column key); prompts;
                          notes; query (SQL over the views of `evalkit sql`)

        Kinds of values: `score` and `percent` 0 to 100, unrounded; `interval` [low, high] or null; `usd` whole
        pico-dollars (1e-12 USD); `p` a p-value; `seconds`; `counts` an object from names to counts; null if there
        is no value.
        Keys `axis:NAME` depend on what the sweep varied; `best_so_far_rate`, `exploration_rate` and
        `budget_utilisation` are there where an environment of the run gives them, `no_action` and `unresponsive` where
        one has periods. Tables that are there where the run has such episodes: `planning`, `planning_goal_only`,
        `planning_blocks` (each also with `_own`, for suites that are not the reference's), `planning_counts`,
        `planning_calls`, `planning_ties`, `adaptation`, `coverage`; `econ_scores`, `econ_difficulty`,
        `econ_action_quality`, `econ_exploration` (in these, columns of the environments that the run has),
        `econ_feasible`, `econ_prompts`, `econ_prompts_tests`; `answers` where the run asks a question; `drift` where a
        provider changed what it served; `caching` where one can cache prompts.
        On request, beside them: `sizes`; instead of them: `beside_NAME` for each published table,
        `TABLE_by_TAGS` for each table that has figures of agents, `quotes`.
        """
        manifest = self.manifest
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "evalkit": manifest.evalkit,
            "run": {
                "name": manifest.name,
                "created_at": manifest.created_at,
                "replicates": manifest.replicates,
                "planned": self.planned,
                "ended": self.ended,
                "remaining": self.planned - self.ended,
                "refused": self.refused,
                "refused_words": self.refused_words,
                "void": self.voided,
                "complete": self.planned == self.ended,
                "simulated_money": bool(manifest.simulated),
            },
            "agents": [
                {
                    "name": agent.name,
                    "lane": agent.lane,
                    "prompts": agent.pack,
                    "notes": agent.notes,
                    "tags": list(agent.tags),
                    "marks": list(agent.marks),
                }
                for agent in manifest.agents.values()
            ],
            "suites": [
                {
                    "name": suite.name,
                    "base": suite.base,
                    "axes": dict(suite.axes),
                    "environment": suite.environment,
                    "instances": len(suite.instances),
                }
                for suite in manifest.suites.values()
            ],
            "tables": {table.name: table.to_json() for table in self.tables},
        }


def report(run: Path, *, judged: Mapping[str, Mapping[str, int]] | None = None) -> Report:
    """The report of a run directory, also of one that is being written.

    `judged`: how many paths judges counted in a visible plan, by what they counted and by episode id.
    Raises RunError if it is none, CorruptLogError if its log is damaged.
    """
    from evalkit.store.files.schema import ledger_table
    from evalkit.store.reading.reader import read_ledger, scan_all, scan_asks

    manifest, steps, results = read_run(run, SERVED_COLUMNS)
    # Read after the steps: of a run that is being written, what was paid for may be more than they say, and not less.
    logged = {"steps": steps, "log": scan_all(run, LOG_COLUMNS), "ledger": ledger_table(read_ledger(run))}
    if any(agent.code is not None for agent in manifest.agents.values()):
        logged["asks"] = scan_asks(run, tuple(dict.fromkeys((*ASK_COLUMNS, *SERVED_ASK_COLUMNS))))
    voids = read_voids(run)
    run_cells = cells(manifest, results, voids)
    made = build_report(RunData(manifest, run_cells, logged, judged or {}))
    asked = read_question(run, manifest, results)
    return made if asked is None else _answered(made, answers_table(asked, read_given(run), voids.values(), run_cells))


def _answered(made: Report, answers: Table) -> Report:
    """The report of a run that asks a question, with its answers after the scores."""
    scores, *others = made.tables
    return replace(made, tables=(replace(scores, notes=(*scores.notes, LEANS)), answers, *others))


def build_report(source: RunData) -> Report:
    """The report of a source with `steps` (`episodes.NUMBERS`, `behaviour.SERVED_COLUMNS`), `ledger` and `log`
    (`accounts.LOG_COLUMNS`)."""
    drift = drift_tables(source)
    flags = tuple(note for table in drift for note in table.notes if note.startswith(DRIFT))
    scores = scores_table(source)
    tables = (
        replace(scores, notes=(*scores.notes, *flags)),
        behaviour_table(source),
        refusals_table(source),
        completeness_table(source),
        money_table(source),
        speed_table(source),
        *drift,
    )
    environments = [cell.suite.environment for cell in source.cells]
    refuse_clashes(environments)
    builders = dict.fromkeys(extras.tables for extras in all_extras(source.cells) if extras.tables)
    special = [table for build in builders for table in build(source)]
    tables += caching_tables(source)
    refuse_tables((table.name for table in tables), (table.name for table in special), environments)
    every = tuple(marked(table, source.manifest.simulated) for table in (*tables, *special))
    return Report(manifest=source.manifest, cells=source.cells, tables=every)
