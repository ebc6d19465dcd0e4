"""The final answer in a reply's text: whether it ends the episode, and which number it gives. Two rules, not one.

An episode ends if the right number of digits is between the first pair of answer tags, whatever else is there. The
number that counts is read by a stricter rule: a label of the domain's goals and the digits, in one of a few spellings.
Source: specification, sections 4.2 (a) and 4.4.
"""

import re
from functools import lru_cache

from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.costbench.domain.world import World, filled
from evalkit.envs.environment import fill

_OPEN = re.compile("<answer>", re.IGNORECASE)
_CLOSE = re.compile("</answer>", re.IGNORECASE)
_DIGIT = re.compile("[0-9]")
_THINK = ("<think>", "</think>")


def ends_turn(text: str, digits: int) -> bool:
    """Whether a text ends the episode: exactly `digits` digits between its first pair of answer tags."""
    block = _block(text)
    return block is not None and len(_DIGIT.findall(block)) == digits


def read_answer(text: str, world: World, digits: int) -> str | None:
    """The digits that a reply's text answers with; empty: none, though the text decides. None: it does not decide.

    A text decides where it has an answer tag or the word that ids of goals begin with (`Candidate`).
    """
    word, *patterns = _rules(world.catalogue, world.labels[world.goal_type], digits)
    if not _OPEN.search(text) and not word.search(text):
        return None
    if all(mark in text for mark in _THINK):
        text = text[text.rindex(_THINK[1]) + len(_THINK[1]) :]
    block = _block(text)
    if block is not None:
        for pattern in patterns:
            match = pattern.search(block)
            if match:
                return match[1]
    return ""


def _block(text: str) -> str | None:
    """What stands between the first pair of tags. Searched in two steps, which is linear in any text."""
    opened = _OPEN.search(text)
    closed = _CLOSE.search(text, opened.end()) if opened else None
    return text[opened.end() : closed.start()] if opened and closed else None


@lru_cache(maxsize=64)
def _rules(catalogue: Catalogue, own: str, digits: int) -> tuple[re.Pattern[str], ...]:
    """The word by which a text decides, then the spellings of an answer in the order in which they are tried."""
    labels, words = [own], [own]
    if catalogue.chain is not None:
        chain = catalogue.chain
        labels += [filled(chain.last.label, chain, name, 0) for name, task in catalogue.tasks.items() if not task.graph]
        words.append(fill(chain.last.label, T="").strip("_ ") or own)
    label = "(?:" + "|".join(sorted({re.escape(label) for label in labels}, key=len, reverse=True)) + ")"
    number = f"([0-9]{{{digits}}})"
    forms = [rf"\{{\s*Candidate_ID\s*:\s*{number}\s*\}}", rf"\{{\s*{number}\s*\}}", number]
    spellings = [rf"<\s*{label}\s*{form}\s*>" for form in forms]
    spellings += [rf"{label}\s*{form}" for form in forms[:2]] + [rf"{label}\s*{number}(?![0-9])"]
    word = "|".join(re.escape(word) for word in words)
    return (re.compile(word), *(re.compile(spelling) for spelling in spellings))
