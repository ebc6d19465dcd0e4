"""An exporter: one line an episode, with its score and the last thing that the agent was told."""

from pathlib import Path

from evalkit.extend import ENVIRONMENTS, Chosen, Exporter, stream


def write(chosen: Chosen, out: Path) -> int:
    """Write the file; how many episodes are not reproduced."""
    differing, lines = 0, []
    for episode in stream(chosen, chosen.cells, ENVIRONMENTS):
        differing += not episode.reproduced
        shown = len(episode.moves[0].opening)
        lines.append(f"{episode.agent.name} {episode.result.instance} {episode.result.score:.3f} {shown}\n")
    with out.open("x", encoding="utf-8") as file:
        file.writelines(sorted(lines))
    return differing


LINES = Exporter(name="lines", help="one line an episode", write=write)
