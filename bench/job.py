"""What a measured client is asked to do, and how it reports: the environment's variables, and one line of output.

A client holds `EPISODES` conversations of `TURNS` requests with a server at `BASE_URL` that speaks OpenAI's chat
completions, at most `CONC` at a time, and writes below `OUT_DIR`. Its first user message holds `episode-<number>`, so
that the server can tell conversations apart; the result of its one tool is `RESULT_CHARS` long. It calls `start` when
it is ready and `report` when it has finished. A harness that sets these variables and reads that line runs it.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path

BASE_URL = os.environ.get("BASE_URL", "http://127.0.0.1:18080/v1")
EPISODES = int(os.environ.get("EPISODES", "64"))
TURNS = int(os.environ.get("TURNS", "10"))
CONC = int(os.environ.get("CONC", "64"))
OUT = os.environ.get("OUT_DIR", "bench-out")
RESUME = os.environ.get("RESUME") == "1"
"""Whether the job goes on that a killed process has begun in `OUT_DIR`."""
STREAM = os.environ.get("STREAM") == "1"
"""Whether replies are streamed."""
EVENTS = int(os.environ.get("EVENTS", "0"))
"""Words of the text beside each call."""
MODEL = f"stub-t{TURNS}"
SYSTEM = "Find the number that is asked for. Look keys up until you know it."
TOOL_TEXT = "nothing here ".ljust(int(os.environ.get("RESULT_CHARS", "200")), ".")
TOOL_NAME = "lookup"
TOOL_DESCRIPTION = "Read what is stored under a key."
TOOL_PARAMETERS = {
    "type": "object",
    "properties": {"key": {"type": "string", "description": "which one"}},
    "required": ["key"],
    "additionalProperties": False,
}

_started: list[float] = []


def prompt(number: int) -> str:
    """The first user message of a conversation."""
    return f"episode-{number:06d}: which number is stored? Look up one key at a time."


def start() -> None:
    """The work begins: imports and set-up are done."""
    _started[:] = [time.perf_counter(), _cpu_s()]


def report(ok: int, **more: object) -> None:
    """The work has ended, and `ok` conversations came to their answer."""
    began, cpu_s = _started
    result = {"ok": ok, "work_wall_s": time.perf_counter() - began, "work_cpu_s": _cpu_s() - cpu_s, **more}
    print(f"RESULT {json.dumps(result)}", flush=True)


def folder_bytes(folder: Path) -> int:
    """The size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def peak_mb(usage: resource.struct_rusage) -> float:
    """The most memory a process held, in MB (2**20 bytes); macOS counts bytes, others KiB."""
    return usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def _cpu_s() -> float:
    """User and system seconds of this process and of its children that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)
