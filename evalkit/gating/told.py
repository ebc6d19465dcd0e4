"""A gate's verdict for people and forges: a table, a figure of differences in text, Markdown, and JUnit's XML."""

import math
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from evalkit.frozen.manifests import read_manifest
from evalkit.gating.gate import GateCheck, GateOutcome
from evalkit.money import money_words
from evalkit.report.tables import Column, Table, as_cell_text, columns_of, markdown, marked
from evalkit.text import bounded, visible

ROOM = 41
"""Columns of the figure's axis; odd, so that 0 has one."""
NAMES_MOST = 40
SIGNS = {"pass": "✅", "fail": "❌", "undecided": "❔"}
MARK = "<!-- evalkit gate -->"
"""The first line of the Markdown: by it a comment is found and written anew instead of a second one."""


def gate_table(gated: GateOutcome) -> Table:
    """A row for each new agent, old agent and suite."""
    rows = [
        {
            "suite": check.suite,
            "new": check.new,
            "old": check.old,
            "was": _points(check.was),
            "now": _points(check.now),
            "difference": _points(check.answer.mean),
            "interval": (100 * check.answer.low, 100 * check.answer.high) if check.answer.draws else None,
            "margin": 100 * check.answer.wanted,
            "pairs": check.answer.draws,
            "dearer": check.dearer,
            "broken": check.broken,
            "verdict": check.verdict,
        }
        for check in gated.checks
    ]
    table = Table(
        name="gate",
        title="Gate",
        columns=(
            Column(key="suite", title="Suite", group=True),
            *columns_of(new="Agent", old="Against", verdict="Verdict"),
            *columns_of("score", "%", was="Old", now="New"),
            Column(key="difference", title="New - old", kind="score", unit="points"),
            Column(key="interval", title="Interval", kind="interval", unit="points"),
            Column(key="margin", title="Margin", kind="score", unit="points"),
            *columns_of("count", pairs="Pairs"),
            Column(key="dearer", title="Dearer (%)", kind="percent", unit="%"),
            Column(key="broken", title="Broken (%)", kind="percent", unit="% of calls"),
        ),
        rows=tuple(rows),
        packs=tuple(dict.fromkeys(_packs(gated))),
        notes=(
            "interval: each end holds at every look; pass: the low end is above minus the margin; fail: the high end "
            "is below 0; whichever came first",
            "dearer: of a new episode beside the old one; broken: of its calls those that were refused or missing",
            *gated.notes,
        ),
    )
    return marked(table, gated.outcome.simulated)


def _packs(gated: GateOutcome) -> Iterator[str]:
    if gated.checks:
        manifest = read_manifest(gated.outcome.place)
        for check in gated.checks:
            yield manifest.packs[manifest.agents[check.new].packs[manifest.suites[check.suite].environment]].name


def _points(share: float) -> float | None:
    return None if math.isnan(share) else 100 * share


def figure_lines(checks: Sequence[GateCheck]) -> list[str]:
    """The differences with their intervals over one axis in points; `│` is 0, `┊` minus the margin."""
    known = [check for check in checks if check.answer.draws]
    if not known:
        return []
    ends = [abs(end) for check in known for end in (check.answer.low, check.answer.high, check.answer.wanted)]
    most = next(one for one in (2, 5, 10, 20, 50, 100, 1000) if one >= min(1000, 100 * max(ends)))

    def at(value: float) -> int:
        return round((min(max(100 * value, -most), most) / most + 1) * (ROOM // 2))

    names = [visible(f"{check.suite}  {check.new}")[:NAMES_MOST] for check in known]
    room = max(map(len, names))
    lines = [f"{'':{room}}  {f'{-most:+d}':<{ROOM // 2 - 1}} 0 {f'{most:+d} points':>{ROOM // 2 - 1}}"]
    for name, check in zip(names, known, strict=True):
        axis = [" "] * ROOM
        low, high = at(check.answer.low), at(check.answer.high)
        axis[low : high + 1] = "─" * (high - low + 1)
        axis[at(0.0)] = "│"
        axis[at(-check.answer.wanted)] = "┊"
        axis[at(check.answer.mean)] = "●"
        lines.append(f"{name:{room}}  {''.join(axis)}  {check.verdict}")
    return lines


def money_line(gated: GateOutcome) -> str:
    """What was spent, and what was spared."""
    outcome = gated.outcome
    words = f"{outcome.ended:,} of {outcome.episodes:,} episodes ended; "
    words += money_words(outcome.spent, outcome.budget, outcome.simulated)
    return f"{words}." if not outcome.spared else f"{words}; {outcome.spared:,} episodes were not needed."


def gate_markdown(gated: GateOutcome) -> bytes:
    """For a pull request's comment: nothing of it is read as markup, or calls a person by name."""
    lines = [MARK, f"## {SIGNS[gated.verdict]} evalkit gate: {gated.verdict}", "", as_cell_text(gated.sentence), ""]
    figure = figure_lines(gated.checks)
    if figure:
        fenced = [line.replace("`", "'") for line in figure]
        lines += ["```text", *fenced, "```", ""]
    if gated.checks:
        lines += ["<details><summary>Table</summary>", "", markdown(gate_table(gated)), "</details>", ""]
        lines += [as_cell_text(money_line(gated)), ""]
    return "\n".join(lines).replace("@", "@\u2060").encode()


def junit(gated: GateOutcome) -> bytes:
    """One test case for each check; `undecided` is skipped, or what the policy counts it as."""
    suite = Element(
        "testsuite", name="evalkit gate", tests=str(len(gated.checks)), time=f"{gated.outcome.elapsed_s:.3f}"
    )
    counts = {"failures": 0, "skipped": 0}
    for check in gated.checks:
        name = f"{check.new} against {check.old}"
        case = SubElement(suite, "testcase", classname=visible(check.suite), name=visible(name))
        counted = gated.policy.undecided if check.verdict == "undecided" else check.verdict
        words = check.words if check.verdict != "undecided" else f"{check.words} {check.takes}."
        if counted != "pass":
            kind = "failure" if counted == "fail" else "skipped"
            counts["failures" if counted == "fail" else "skipped"] += 1
            SubElement(case, kind, message=bounded(words))
    if not gated.checks:
        case = SubElement(suite, "testcase", classname="gate", name="gate")
        SubElement(case, "skipped", message=bounded(gated.sentence))
        counts["skipped"] = 1
    for key, count in counts.items():
        suite.set(key, str(count))
    root = Element("testsuites")
    root.append(suite)
    indent(root)
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"
