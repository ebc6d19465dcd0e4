"""What a user wants: preferences, the ids that go with them, and how it is said."""

from typing import Annotated

import msgspec
from msgspec import Meta

SomeText = Annotated[str, Meta(min_length=1, title="a string that is not empty")]


class Query(msgspec.Struct, frozen=True, kw_only=True, eq=False, forbid_unknown_fields=True):
    """One wish of one user."""

    id: SomeText
    """As the reference writes it: `<Query00001>`. It keys the costs."""
    preferences: dict[str, str]
    """By dimension key."""
    given: dict[str, int] = {}
    """By type, constants and context preference: the number of the id in the user's text."""
    number: Annotated[int, Meta(ge=0)] = -1
    """Of the preference that the wishes come to (`ids.py`); it runs through the chain, and the right answer has it.
    -1: a line does not say, and it is found."""
    text: str
    """The user's requirements, without ids."""
    message: str = ""
    """The whole first message, where it is not made from a prompt pack's or the catalogue's words."""
    truncated: bool = False
    """Whether the reference's text is known to be cut off in the middle of a sentence."""


class QuerySource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where an imported query comes from."""

    file: SomeText
    sha256: SomeText
    row: Annotated[int, Meta(ge=0)] = 0
