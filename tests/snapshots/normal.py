"""The one place that says which parts of an output are no part of a golden, and why."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import evalkit

PROJECT = Path(evalkit.__file__).resolve().parent.parent

Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str], str]


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.10g}"


RULES: Sequence[Rule] = (
    (
        re.compile(r'(?<="elapsed_s":)\d+\.?\d*(?:e-?\d+)?'),
        "0",
        "how long a call of `run` took depends on the machine",
    ),
    (
        re.compile(r"(?<= steps in )[\d,.]+ s"),
        "0 s",
        "likewise, in words",
    ),
    (
        re.compile(r"played\s+at\s+(?:the\s+same\s+time|different\s+times),[^\"]*?\bUTC\b *"),
        "played at some time",
        "what lies between a run that is played here and a stored one is the age of the latter",
    ),
    (
        re.compile(r"\d{4}-\d\d-\d\d\s+\d\d:\d\d(?=\s+to\s+\d{4}-)|(?<=to )\d{4}-\d\d-\d\d\s+\d\d:\d\d"),
        "YYYY-MM-DD HH:MM",
        "when a run was played: now, if it is played here",
    ),
    (
        re.compile(r'^\{"event": ?"progress",.*\}\n', re.MULTILINE),
        "",
        "how often a call of `run` tells its progress, every few seconds, depends on the machine",
    ),
    (
        re.compile(r"-?\d+\.\d{9,}(?:e[-+]?\d+)?"),
        _rounded,
        "the last digits of a float depend on how a library was compiled: ten are compared",
    ),
    (
        re.compile(r"(?<=[\s,:=(\[])-0(?:\.0+)?(?![\d.])"),
        lambda number: number[0][1:],
        "the sign of a zero depends on the order of a sum",
    ),
)
"""(what is meant, what stands in its place, why)."""


def normal(text: str, folder: Path | None = None) -> str:
    """A text as goldens hold it. `folder`: where the command was called; it and the project lie anywhere."""
    places = {} if folder is None else {str(folder.resolve()): "FOLDER", str(folder): "FOLDER"}
    for place, name in {**places, str(PROJECT): "PROJECT"}.items():
        text = text.replace(place, name)
    for pattern, instead, _ in RULES:
        text = pattern.sub(instead, text)
    return text
