"""Fills docs/add-an-environment.md with the project that `evalkit new --plugin` writes. `make docs` calls it.

A block whose first line names a file of the project has that file behind it; all other text is written by hand.
"""

import re
from pathlib import Path

from evalkit.cli.play.new import project_files

PAGE = Path(__file__).resolve().parent.parent / "add-an-environment.md"
NAME = "offers"
_BLOCK = re.compile(r"^(```(?:python|toml)\n# (\S+)\n)(.*?)^```$", re.MULTILINE | re.DOTALL)


def page() -> str:
    """The whole page, its files as they are. Raises KeyError for a block of a file that the project lacks."""
    files = project_files(NAME)
    return _BLOCK.sub(lambda block: f"{block[1]}{files[block[2]]}```", PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
