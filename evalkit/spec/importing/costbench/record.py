"""CostBench's texts from a copy of its reference."""

from collections.abc import Iterator
from pathlib import Path

from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.spec.importing.costbench.results import results_texts
from evalkit.spec.importing.costbench.texts import DESCRIPTIONS, UNUSED, Copy, costbench_texts, is_copy
from evalkit.spec.importing.record import PromptImport, absent_text, table_text


def _tables(repo: Path, wording: str) -> Iterator[str]:
    """The table, with what could not be found in the code that makes results."""
    del wording  # its reference has one alone
    if not is_copy(repo):
        return
    texts = costbench_texts(repo)
    results, missed = results_texts(Copy(repo))
    texts |= results
    yield absent_text(COSTBENCH.texts.all.keys() - texts.keys() - UNUSED)
    yield from (f"# Not understood: {' '.join(what.split())}." for what in missed)
    yield table_text(COSTBENCH.name, texts)


IMPORT = PromptImport(source=f"{DESCRIPTIONS} of CostBench", tables=_tables, place=40)
