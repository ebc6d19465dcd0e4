"""Inspect AI as a measured client: the same conversations by its own loop over tools, its provider, its log.

`PEER` chooses its settings: `fast` (no display, and no log while it runs: the fastest that keeps samples), `default`
(the log as it is installed, written while it runs), `cached` (that, with its cache of replies). A job that can be
resumed is played by `eval_set`, which continues the logs that it finds. `bench/job.py` says what it is asked to do.
"""

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import job

PEER = os.environ.get("PEER", "fast")
LOGS = Path(job.OUT) / "logs"


def conversations() -> Any:
    """All of them, as a task of Inspect."""
    from inspect_ai import Task, task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate, system_message, use_tools
    from inspect_ai.tool import tool

    def lookup() -> Any:
        async def execute(key: str) -> str:
            """Read what is stored under a key.

            Args:
                key: which one
            """
            del key
            return job.TOOL_TEXT

        return execute

    def made() -> Any:
        samples = [Sample(input=job.prompt(number), target="42", id=number + 1) for number in range(job.EPISODES)]
        tools = use_tools([tool(lookup)()])
        solver = [system_message(job.SYSTEM), tools, generate(cache=PEER == "cached")]
        return Task(dataset=MemoryDataset(samples), solver=solver, scorer=includes())

    return task(name="conversations")(made)()


def main() -> None:
    """Play all of them; report how many were answered."""
    os.environ |= {"STUB_API_KEY": "none", "STUB_BASE_URL": job.BASE_URL, "INSPECT_LOG_LEVEL": "error"}
    os.environ["INSPECT_CACHE_DIR"] = str(Path(job.OUT) / "cache")
    from inspect_ai import eval as play
    from inspect_ai import eval_set

    settings = {
        "model": f"openai-api/stub/{job.MODEL}",
        "max_connections": job.CONC,
        "max_samples": job.CONC,
        "display": "none",
        "log_dir": str(LOGS),
        "log_realtime": False if PEER == "fast" else None,
    }
    job.start()
    if os.environ.get("RESUMABLE") == "1":
        logs = eval_set([conversations()], **settings)[1]
    else:
        logs = play(conversations(), fail_on_error=False, **settings)
    right = logs[0].results.scores[0].metrics["accuracy"].value if logs[0].results else 0.0
    job.report(round(right * job.EPISODES), log_bytes=job.folder_bytes(LOGS))


if __name__ == "__main__":
    main()
