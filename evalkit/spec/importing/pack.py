"""A prompt pack from a user's copy of a reference repository, read as source text and never executed.

Each environment's record names what finds its texts there.
"""

from pathlib import Path

from evalkit.envs.named import named
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError, nearest
from evalkit.spec.importing.record import PromptImport


def import_reference(repo: Path, wording: str = "") -> str:
    """A pack's TOML text. `wording`: one that a reference compares with its plain one, in some environments.

    Nothing of the copy is executed. Raises UsageError if a file or a text that must be there is not, or there is no
    such wording.
    """
    available = (
        named(name, "prompt_import", env.presentation.prompt_import, PromptImport)
        for name, env in ENVIRONMENTS.items()
        if env.presentation.prompt_import
    )
    imports = sorted(available, key=lambda entry: entry.place)
    wordings = list(dict.fromkeys(known for entry in imports for known in entry.wordings))
    if wording and wording not in wordings:
        raise UsageError(f"The reference has no wording {wording!r}.{nearest(wording, wordings)}")
    tables = [table for entry in imports for table in entry.tables(repo, wording)]
    if not tables:
        *others, last = (entry.source for entry in imports)
        wanted = f"{', '.join(others)}, nor {last}" if others else last
        raise UsageError(f"{repo}: this is not a copy of a reference repository: it has none of {wanted}.")
    head = f"# The wording{f' {wording!r}' if wording else ''} of a copy of the reference repository."
    return "\n".join([head, "", *tables])
