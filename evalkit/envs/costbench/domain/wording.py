"""A user's words: wishes said vaguely, as people say them, and the first message around them.

Every sentence comes from the catalogue; a wish is hinted at by one of its value's phrases and never by its identifier.
Source: section 3.3 of the paper; specification, section 3.3. Differs: the reference has a language model write them.
"""

from collections.abc import Mapping

from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.costbench.domain.ids import show_id
from evalkit.envs.costbench.domain.query import Query
from evalkit.envs.costbench.domain.world import context_type, filled
from evalkit.envs.environment import fill
from evalkit.seeds import Stream


def requirements(catalogue: Catalogue, task: str, preferences: Mapping[str, str], draws: Stream) -> str:
    """What a user says of the wishes: an opening, the wishes in random order, each in a frame of its own, a closing.

    A frame comes again only when all have been used. A value without phrases is named with spaces for underscores.
    """
    words, definition = catalogue.words, catalogue.tasks[task]
    sentences = [fill(words.openings[draws.below(len(words.openings))], about=definition.about)]
    keys = catalogue.keys
    frames: list[int] = []
    for position in draws.permutation(len(keys)):
        key = keys[position]
        phrases = definition.phrases.get(key, {}).get(preferences[key]) or (preferences[key].replace("_", " "),)
        if not frames:
            frames = draws.permutation(len(words.joins))
        phrase = phrases[draws.below(len(phrases))]
        sentences.append(fill(words.joins[frames.pop()], phrase=phrase))
    sentences.append(words.closings[draws.below(len(words.closings))])
    return " ".join(sentence[:1].upper() + sentence[1:] for sentence in sentences)


def message(catalogue: Catalogue, split: str, query: Query) -> str:
    """The user's whole first message: the ids that are given, constants first, and the requirements.

    A query that brings its own message keeps it.
    """
    if query.message:
        return query.message
    digits = catalogue.digits[split]
    ids = [
        fill(catalogue.words.given[name], id=show_id(name, query.given[name], digits))
        for name in catalogue.constants
        if name in query.given
    ]
    if context := context_given(catalogue, query):
        label, number = context
        ids.append(fill(catalogue.words.given["context"], id=show_id(label, number, digits)))
    return fill(catalogue.words.request, ids=" ".join(ids), requirements=query.text)


def context_given(catalogue: Catalogue, query: Query) -> tuple[str, int] | None:
    """How ids of the context preference begin, and the number of the one given with a query; None: it has none."""
    if not catalogue.context or context_type(catalogue) not in query.given:
        return None
    return context_label(catalogue), query.given[context_type(catalogue)]


def context_label(catalogue: Catalogue) -> str:
    """How ids of the context's preference begin. Only for catalogues with a context."""
    chain = catalogue.links
    return filled(chain.first.label, chain, catalogue.context, 0)
