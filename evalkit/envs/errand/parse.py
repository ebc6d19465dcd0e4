"""What the free text of an errand's reply comes to. Total: any text gives a value or None, in linear time.

Source: specification of CostBench, section 3.3 step 2 (forms of a verdict, the first match wins) and section 7.5.
Differs: what fits no form is not a verdict (None), where the reference would keep the query.
"""

import re

_BOLD_VERDICT = re.compile(r"\*\*\W{0,8}(no\s{1,8}conflict|conflict)\W{0,8}\*\*", re.IGNORECASE)
_LINE_VERDICT = re.compile(r"^[^\w\n]{0,8}(no[ \t]{1,8}conflict|conflict)[^\w\n]{0,8}$", re.IGNORECASE | re.MULTILINE)
_PLAIN_VERDICT = re.compile(r"\b(no\s{1,8}conflict|conflict)\b", re.IGNORECASE)
_DENIED = re.compile(r"\b(?:no|not|any|never|without|nor|neither|whether|if|\w+n['’]t)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?\n]")

_DIGITS = r"((?<![0-9.,])(?:[0-9]{1,3}(?:,[0-9]{3}){1,2}|[0-9]{1,9})(?![.,]?[0-9]))"
_COUNTS = tuple(
    re.compile(form, re.IGNORECASE | re.MULTILINE)
    for form in (
        rf"\*\*\s{{0,8}}{_DIGITS}\s{{0,8}}\*\*",
        rf"^[^\w\n]{{0,8}}{_DIGITS}[^\w\n]{{0,8}}$",
        rf"\b(?:answer|total|count|paths)\b\W{{0,8}}(?:is\b\W{{0,8}})?{_DIGITS}",
    )
)
_ANY_COUNT = re.compile(_DIGITS)

_THOUGHT = "</think>"


def written(text: str) -> str:
    """The reply without the thinking that some models write before it, and without white space around it."""
    return text.rpartition(_THOUGHT)[2].strip()


def verdict_in(text: str) -> bool | None:
    """Whether wishes conflict, as a validator said it: `**no conflict**`, then a line of its own, then in a sentence.

    None if nothing of that kind is said. Chosen: in a sentence, a `conflict` after a negation (`no real conflict`,
    `do not conflict`) or a condition is neither verdict.
    """
    for form in (_BOLD_VERDICT, _LINE_VERDICT):
        match = form.search(text)
        if match:
            return _is_conflict(match[1])
    for match in _PLAIN_VERDICT.finditer(text):
        before = _SENTENCE_END.split(text[max(0, match.start() - 200) : match.start()])[-1]
        if not _DENIED.search(before):
            return _is_conflict(match[1])
    return None


def _is_conflict(words: str) -> bool:
    return not words.lower().startswith("no")


def count_in(text: str) -> int | None:
    """The whole number that a judge said: `**15**`, else on a line of its own, else after `total` or the like.

    Of each form the last in the text counts, since judges number what they list. Else the only number there is.
    """
    for form in _COUNTS:
        matches = form.findall(text)
        if matches:
            return _whole(matches[-1])
    numbers = {_whole(digits) for digits in _ANY_COUNT.findall(text)}
    return numbers.pop() if len(numbers) == 1 else None


def _whole(digits: str) -> int:
    return int(digits.replace(",", ""))
