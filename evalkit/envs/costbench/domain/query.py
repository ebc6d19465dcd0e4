"""What a user wants: preferences, the ids that go with them, and how it is said."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Query:
    """One wish of one user."""

    id: str
    """As the reference writes it: `<Query00001>`. It keys the costs."""
    preferences: Mapping[str, str]
    """By dimension key."""
    given: Mapping[str, int]
    """By type, constants and context preference: the number of the id in the user's text."""
    number: int
    """Of the preference that the wishes come to (`ids.py`); it runs through the chain, and the right answer has it."""
    text: str
    """The user's requirements, without ids."""
    message: str = ""
    """The whole first message, where it is not made from a prompt pack's or the catalogue's words."""
    truncated: bool = False
    """Whether the reference's text is known to be cut off in the middle of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySource:
    """Where an imported query comes from."""

    file: str
    sha256: str
    row: int = field(default=0)
