"""A sweep over three dialects' lanes under everything at once: faults, limits that bind, kills, a budget that runs out.

The server's bill is the truth. It is read first and the run's disk behind it, so what the disk accounts for must be at
least the bill, at every instant.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalkit.frozen.manifests import is_run
from evalkit.store.reading.accounts import accounts
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import scan
from tests.provider.serving import simulated
from tests.support.patience import PATIENCE_S

LANES: Mapping[str, tuple[str, str]] = {
    "chat": ("openai_chat", "knuth"),
    "responses": ("openai_responses", "random"),
    "messages": ("anthropic_messages", "noisy"),
}
"""By provider: dialect and model."""

FAULTS = (
    {"429": 0.2, "500": 0.1, "early_reset": 0.1, "reset": 0.05, "stream_crlf": 0.1},
    {"503": 0.1, "529": 0.1, "truncated": 0.1, "html_200": 0.05, "drip": 0.05, "stream_comments": 0.1,
     "stream_joined": 0.1},
    {"502": 0.1, "html_502": 0.1, "stall": 0.05, "empty": 0.05, "unmetered": 0.05, "refusal": 0.05,
     "stream_silent": 0.05},
    {"429": 0.1, "invalid_json": 0.05, "huge": 0.05, "length": 0.1, "reset": 0.1, "truncated": 0.05,
     "stream_reset": 0.05},
    {"content_filter": 0.05, "context_length": 0.05, "500": 0.2, "stream_end": 0.1, "stream_stall": 0.05},
    {"408": 0.05, "504": 0.1, "524": 0.05, "502": 0.1, "early_reset": 0.1, "stream_error": 0.1},
)  # fmt: skip
"""All faults at 5 to 20 %, in turns: together they would leave nothing that works."""

PRICE = "1:4:0.1:1.25"
LIMITS = {"rpm": 600, "itpm": 500_000, "otpm": 240_000}
"""Of each model, as the server has them and as the client is told. The first two are felt. The third has room for a
reply of the greatest length that is lost on its way: nobody can know of its tokens."""
STREAMS = ("on", "off", "on", "auto")
"""Of the lanes, in turns."""

PROVIDER = """
dialect = "{dialect}"
url = "{url}"
timeout_s = 2
stream = "{stream}"
[limits]
requests_per_minute = {rpm}
input_tokens_per_minute = {itpm}
output_tokens_per_minute = {otpm}
[usd_per_mtok]
input = "1"
output = "4"
cached_read = "0.1"
cached_write = "1.25"
source = "made up, 2026-11-21"
"""
AGENT = """
[[agents]]
name = "{name}"
provider = "{name}"
model = "{model}"
"""
SUITE = """
[[suites]]
name = "scheduling/basic"
instances = [{instances}]
vary = {{ periods = [{periods}] }}
"""


@dataclass(slots=True, kw_only=True)
class Chaos:
    """One such sweep and what was seen of it."""

    folder: Path
    width: int
    replicates: int
    instances: int
    periods: int
    limits: Mapping[str, int]
    draw: random.Random
    budget: int = 0
    """In pico-dollars, of the current life."""
    lives: int = 0
    kills: int = 0
    looks: int = 0
    ran_out: int = 0
    codes: list[int] = field(default_factory=list)

    @property
    def bill_file(self) -> Path:
        return self.folder / "bill.jsonl"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def episodes(self) -> int:
        return len(LANES) * self.instances * self.replicates

    def write_spec(self) -> None:
        agents = "".join(AGENT.format(name=name, model=model) for name, (_, model) in LANES.items())
        names = ", ".join(f'"seed-{number}"' for number in range(self.instances))
        head = f"replicates = {self.replicates}\nwidth = {self.width}\n"
        (self.folder / "providers").mkdir(parents=True)
        (self.folder / "sweep.toml").write_text(head + agents + SUITE.format(instances=names, periods=self.periods))

    def write_providers(self, url: str) -> None:
        for place, (name, (dialect, _)) in enumerate(LANES.items()):
            # In each life some lanes stream and others do not; which ones changes with every life.
            stream = STREAMS[(self.lives + place) % len(STREAMS)]
            text = PROVIDER.format(dialect=dialect, url=url, stream=stream, **self.limits)
            (self.folder / "providers" / f"{name}.toml").write_text(text)

    def bill(self) -> list[dict[str, Any]]:
        """All lines that are whole so far."""
        if not self.bill_file.exists():
            return []
        return [json.loads(line) for line in self.bill_file.read_bytes().split(b"\n") if line.endswith(b"}")]

    def look(self) -> None:
        """At this instant: the bill is covered by what is on disk, and neither passes the budget."""
        billed = sum(line["cost"] for line in self.bill())
        covered = self.covered() if is_run(self.run) else 0
        assert billed <= covered, f"life {self.lives}: billed {billed}, on disk {covered}"
        assert billed <= self.budget, f"life {self.lives}: billed {billed} of a budget of {self.budget}"
        self.looks += 1

    def covered(self) -> int:
        """What steps, charges, crash charges and leases that are still open account for."""
        index = read_index(self.run)
        total = index.totals["cost"]
        for account in accounts(index.ledger, index.cost_by_worker).values():
            open_lease = 0 if account.closed else max(0, account.leased - account.settled - account.charged)
            total += account.charged + account.crashed - account.released + open_lease
        return total

    def live(self, kill_after_s: float | None) -> int | None:
        """One call of `evalkit run`, watched; None if it was killed, else its exit code."""
        faults: Mapping[str, Any] = FAULTS[self.lives % len(FAULTS)]
        options = {f"fault_{kind}": share for kind, share in faults.items()} | dict(self.limits)
        options |= {"burst": "5s", "latency": "lognormal:60ms:0.5", "retry_after": "200ms", "drip": "500ms"}
        options |= {"cache": "5m", "price": PRICE, "seed": self.lives, "bill": str(self.bill_file)}
        # Every other life bills the failures too that a client must take to be billed.
        options["bill_failures"] = bool(self.lives % 2)
        self.lives += 1
        with simulated(options) as url:
            self.write_providers(url)
            code = self._watch(kill_after_s)
        self.look()
        if code is None:
            self.kills += 1
        else:
            self.codes.append(code)
        return code

    def _watch(self, kill_after_s: float | None) -> int | None:
        command = [sys.executable, "-m", "evalkit", "run", "sweep.toml", "--dir", "run", "--json"]
        command += ["--budget", f"{self.budget / 1e12:.12f}"]
        with (self.folder / "out.log").open("a") as out:
            process = subprocess.Popen(command, cwd=self.folder, stdout=out, stderr=out)
            try:
                return self._until(process, kill_after_s)
            finally:
                if process.poll() is None:
                    os.kill(process.pid, signal.SIGKILL)
                    process.wait(PATIENCE_S)

    def _until(self, process: subprocess.Popen[bytes], kill_after_s: float | None) -> int | None:
        since, first = len(self.bill()), None
        while process.poll() is None:
            time.sleep(0.25)
            if first is None and len(self.bill()) > since:
                first = time.monotonic()
            if kill_after_s is not None and first is not None and time.monotonic() - first >= kill_after_s:
                os.kill(process.pid, signal.SIGKILL)
                process.wait(PATIENCE_S)
                self.look()
                return None
            self.look()
        return process.returncode

    def finish(self, kills: int, budgets: Sequence[int]) -> None:
        """Live until everything has ended: killed so often at random moments, with budgets that run out in turn."""
        left = list(budgets)
        self.budget = left.pop(0)
        while True:
            wait_s = self.draw.uniform(0.1, 4.0) if self.kills < kills else None
            code = self.live(wait_s)
            if code == 0:
                return
            assert code in (None, 3), (self.folder / "out.log").read_text()[-3000:]
            if code == 3 and '"reason":"budget"' in (self.folder / "out.log").read_text().splitlines()[-1]:
                self.ran_out += 1
                assert left, "out of money more often than planned"
                self.budget = left.pop(0)
            assert self.lives < 100, (self.folder / "out.log").read_text()[-3000:]

    def over_limit(self) -> list[dict[str, Any]]:
        """Requests that the server refused because they were too much; injected ones are none."""
        return [line for line in self.bill() if line["limit"]]

    def held_back(self) -> int:
        """Steps that waited for a limit."""
        return sum(seconds > 0.02 for seconds in scan(self.run, ["queue_s"]).column("queue_s").to_pylist())

    def excess(self) -> dict[str, tuple[int, int]]:
        """By cause, what is on the books beyond the price of replies: (charged, billed), in pico-dollars.

        Causes: `charge: REASON` of attempts without a reply, `unmetered` of replies without usage, `crash` of what a
        kill left in flight. A request that was billed and that no row names was in flight at a kill.
        """
        billed = Counter[str]()
        for line in self.bill():
            billed[line["request_id"]] += line["cost"]
        index, found = read_index(self.run), Counter[tuple[str, bool]]()
        for row in scan(self.run, ["episode", "step", "attempts", "cost"]).to_pylist():
            words = row["attempts"].split(",")
            place = f"{row['episode']}/{row['step']}/{len(words) - 1}"
            paid = min(billed[place], row["cost"])
            billed[place] -= paid
            if paid != row["cost"]:
                found[words[-1], True] += row["cost"]
                found[words[-1], False] += paid
        for row in index.ledger:
            if row.kind == "charge":
                place = f"{row.episode}/{row.step}/{row.attempt}"
                paid = min(billed[place], row.amount)
                billed[place] -= paid
                found[f"charge: {row.reason}", True] += row.amount
                found[f"charge: {row.reason}", False] += paid
            elif row.kind in ("crash", "release"):
                found["crash", True] += row.amount if row.kind == "crash" else -row.amount
        found["crash", False] += billed.total()
        causes = sorted({cause for cause, _ in found}, key=lambda cause: found[cause, False] - found[cause, True])
        return {cause: (found[cause, True], found[cause, False]) for cause in causes}

    def mispriced(self) -> list[str]:
        """Steps whose cost is not what the server billed for the attempt that brought their reply."""
        billed = {line["request_id"]: line for line in self.bill()}
        wrong = []
        for row in scan(self.run, ["episode", "step", "attempts", "cost"]).to_pylist():
            words = row["attempts"].split(",")
            line = billed.get(f"{row['episode']}/{row['step']}/{len(words) - 1}")
            good = words[-1] == "ok"
            if good and (line is None or line["cost"] != row["cost"]):
                wrong.append(f"{row} {line}")
            if words[-1] == "unmetered" and (line is None or line["cost"] > row["cost"]):
                wrong.append(f"{row} {line}")
        return wrong
