"""`python -m tests.sim.mutants`: take one mechanism at a time out of a copy, and see after how many seeds it is missed.

A simulation that finds nothing proves nothing unless it finds what is known to be wrong.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One mechanism, and how its absence is written."""

    name: str
    file: str
    old: str
    """Stands in the file once."""
    new: str


MUTANTS = (
    Mutant(
        name="a file is not synced before it is renamed",
        file="store/disk.py",
        old=(
            "            with write(aside, data) as file:\n"
            "                sync_file(file)\n"
            "            rename(aside, path)\n"
        ),
        new="            with write(aside, data):\n                pass\n            rename(aside, path)\n",
    ),
    Mutant(
        name="a folder is not synced",
        file="store/disk.py",
        old=("            _forget(aside)\n            raise\n        sync_directory(path.parent)\n"),
        new=("            _forget(aside)\n            raise\n"),
    ),
    Mutant(
        name="a file is written in place, not aside",
        file="store/disk.py",
        old=(
            '    aside = path.with_name(f".{path.name}{ASIDE}")\n'
            "    with storage_errors(path):\n"
            "        try:\n"
            "            with write(aside, data) as file:\n"
            "                sync_file(file)\n"
            "            rename(aside, path)\n"
        ),
        new=(
            "    aside = path\n"
            "    with storage_errors(path):\n"
            "        try:\n"
            "            with write(aside, data) as file:\n"
            "                sync_file(file)\n"
        ),
    ),
    Mutant(
        name="durable() returns before the commit",
        file="store/writing/writer.py",
        old=("            self._want(group.began + self._share_s)\n        await waiter\n"),
        new="            self._want(group.began + self._share_s)\n",
    ),
    Mutant(
        name="an episode goes on without waiting for its step",
        file="engine/episode.py",
        old=("        else:\n            await context.log.durable()\n        if turn"),
        new="        if turn",
    ),
    Mutant(
        name="a lease is spent before it is durable",
        file="client/budget.py",
        old=(
            "        try:\n"
            "            await shared.ledger.durable()\n"
            "        finally:\n"
            "            shared.refilling = False\n"
        ),
        new="        shared.refilling = False\n",
    ),
    Mutant(
        name="leases are not written",
        file="client/budget.py",
        old="        self.ledger.enter(\n",
        new='        kind == "lease" or self.ledger.enter(\n',
    ),
    Mutant(
        name="a charge is not booked",
        file="client/budget.py",
        old=("            self._shared.state.charged += amount\n        self.settle(amount, amount)\n"),
        new=("            self._shared.state.charged += amount\n        self.settle(amount, 0)\n"),
    ),
    Mutant(
        name="a charge is not written",
        file="client/budget.py",
        old=('            self._shared.write(\n                "charge"'),
        new=('            (lambda *a, **k: None)(\n                "charge"'),
    ),
    Mutant(
        name="crashes are not charged",
        file="engine/sweep.py",
        old=("            for row in crashes:\n                store.enter(row)\n"),
        new=(
            "            for row in crashes:\n"
            '                if row.kind != "crash":\n'
            "                    store.enter(row)\n"
        ),
    ),
    Mutant(
        name="a crash is charged at half",
        file="client/budget_state.py",
        old="    bound = sum(worst_cases)\n",
        new="    bound = sum(worst_cases) // 8\n",
    ),
    Mutant(
        name="a request is bounded by an eighth of its body",
        file="client/request.py",
        old=("        input_tokens = body_bytes + self.dialect.overhead_tokens\n        return"),
        new=("        input_tokens = body_bytes // 8\n        return"),
    ),
    Mutant(
        name="nothing is reserved",
        file="client/client.py",
        old="        if bound and not self._budget.take(bound):\n",
        new="        if bound and self._budget.take(1) and False:\n",
    ),
    Mutant(
        name="what earlier lives spent is forgotten",
        file="engine/sweep.py",
        old="                spent=session.spent_before,\n",
        new="                spent=type(session.spent_before)(0),\n",
    ),
    Mutant(
        name="no lock is taken",
        file="store/lock.py",
        old="        if locked is False or not _seize(file, path):\n",
        new="        if False:\n",
    ),
    Mutant(
        name="a resumed episode begins at its last step",
        file="engine/resume.py",
        old=("        _replay(episode, position, rows)\n        return"),
        new=("        _replay(episode, position, rows[:-1])\n        return"),
    ),
    Mutant(
        name="a failed sync is passed over",
        file="store/disk.py",
        old=(
            "            with write(aside, data) as file:\n"
            "                sync_file(file)\n"
            "            rename(aside, path)\n"
            "        except"
        ),
        new=(
            "            with write(aside, data) as file:\n"
            "                try:\n"
            "                    sync_file(file)\n"
            "                except OSError:\n"
            "                    pass\n"
            "            rename(aside, path)\n"
            "        except"
        ),
    ),
    Mutant(
        name="limits are not waited for",
        file="client/lanes/lane.py",
        old=(
            "            if wait_s(self._buckets, need, now) > 0 "
            "or not all(pool.quick(need, now) for pool in self._pools):\n"
            "                return None\n"
        ),
        new="",
    ),
    Mutant(
        name="a window lets one more in",
        file="client/lanes/window.py",
        old="        self.most = float(most)\n",
        new="        self.most = float(most + 1)\n",
    ),
    Mutant(
        name="probes go whatever the limit",
        file="client/lanes/lane.py",
        old="max(self._health.next_probe - now, wait_s(self._buckets, need, now))\n",
        new="max(0.0, self._health.next_probe - now)\n",
    ),
    Mutant(
        name="who goes home wakes nobody",
        file="engine/admit/admission_queue.py",
        old="            self.admission.close(lane)\n        self._tell()\n",
        new="            self.admission.close(lane)\n            self._tell()\n",
    ),
    Mutant(
        name="a lane has one player more than its width",
        file="engine/scheduler.py",
        old="for number in range(job.width):",
        new="for number in range(job.width + 1):",
    ),
    Mutant(
        name="a charge is not waited for before the next attempt",
        file="client/client.py",
        old="            await self._budget.durable()\n",
        new="            pass\n",
    ),
    Mutant(
        name="a request is settled twice",
        file="client/client.py",
        old="        if not self._budget.settle(asking.bound, cost):\n",
        new="        self._budget.settle(asking.bound, 0)\n        if not self._budget.settle(asking.bound, cost):\n",
    ),
    Mutant(
        name="a broken connection counts as not billed",
        file="wire/billed.py",
        old='    "reset": True,\n',
        new='    "reset": False,\n',
    ),
    Mutant(
        name="a reply without usage costs what it says",
        file="client/client.py",
        old="        cost = template.price.most(usage, input_tokens=most_input, output_tokens=bound)\n",
        new="        cost = template.price.of(usage)\n",
    ),
    Mutant(
        name="money that comes back wakes nobody",
        file="client/budget.py",
        old="        if self._shared.waiting:\n            self._shared.serve()\n        return cost <= reserved\n",
        new="        return cost <= reserved\n",
    ),
    Mutant(
        name="a log that cannot be written leaves its waiters waiting",
        file="store/writing/writer.py",
        old="            if not waiter.done():\n                waiter.set_exception(_again(self._failure))\n",
        new="            pass\n",
    ),
    Mutant(
        name="a lane that ends leaves its line waiting",
        file="waiting.py",
        old="            waiter._dismiss(copy.copy(error))\n",
        new="            pass\n",
    ),
    Mutant(
        name="a body is read once for each piece of it",
        file="client/client.py",
        old="            understood = await aside(lambda: self._understand(response), len(response.body))\n",
        new=(
            "            def again() -> tuple[Verdict, Reply | None, bool]:\n"
            "                for upto in range(0, len(response.body), 16):\n"
            "                    response.body[:upto].count(b'~')\n"
            "                return self._understand(response)\n"
            "            understood = await aside(again, len(response.body))\n"
        ),
    ),
    Mutant(
        name="money of a commit is not written",
        file="store/files/journal.py",
        old=('{"money": money_text(entries)} if entries else {}'),
        new=("{}"),
    ),
    Mutant(
        name="objects are deleted before their rows are compacted",
        file="store/writing/compact.py",
        old=("        tables = [tail.table for tail in tails if tail.table is not None]\n"),
        new=(
            "        discard(tail.segment for tail in tails)\n"
            "        tables = [tail.table for tail in tails if tail.table is not None]\n"
        ),
    ),
    Mutant(
        name="objects are deleted before files that hold them are named",
        file="store/writing/compactor.py",
        old=("        self._unnamed += [tail.segment for tail in batch]\n"),
        new=(
            "        discard(tail.segment for tail in batch)\n"
            "        self._unnamed += [tail.segment for tail in batch]\n"
        ),
    ),
    Mutant(
        name="compacted files are named by no object",
        file="store/writing/compactor.py",
        old=("        return dict(self._compacted)\n"),
        new=("        return {}\n"),
    ),
    Mutant(
        name="a journal of a dead writer is not sealed",
        file="store/files/journal.py",
        old=("        seal(run, journal.writer, by=writer)\n"),
        new="",
    ),
    Mutant(
        name="an object does not name the one before it",
        file="store/files/journal.py",
        old=('                    "before": self.before,\n'),
        new=('                    "before": "",\n'),
    ),
    Mutant(
        name="a journal does not know the journals before it",
        file="store/files/journal.py",
        old=("        heads[journal.writer] = head_of(run, journal.writer)\n"),
        new=("        head_of(run, journal.writer)\n"),
    ),
    Mutant(
        name="what a killed process has named is not made to last",
        file="store/writing/opening.py",
        old=("            disk.sync_directory(folder)\n"),
        new=("            pass\n"),
    ),
    Mutant(
        name="a journal's folder is not made to last",
        file="store/files/journal.py",
        old=("            disk.make_directories(segment.path.parent)\n"),
        new=("            segment.path.parent.mkdir(parents=True, exist_ok=True)\n"),
    ),
    Mutant(
        name="an object's link is not made to last",
        file="store/disk.py",
        old=(
            "        sync_directory(path.parent)  # also of a name that is taken: what the caller finds there lasts\n"
        ),
        new="",
    ),
    Mutant(
        name="an object is not synced before it is linked",
        file="store/disk.py",
        old=("            with write(aside, data) as file:\n                sync_file(file)\n            try:\n"),
        new=("            with write(aside, data):\n                pass\n            try:\n"),
    ),
    Mutant(
        name="a dead writer's journal is not compacted to its end",
        file="store/writing/adopt.py",
        old=(
            "    for tails in _batches(_tail(run, writer, number) for number in range(begin, end)):\n"
            "        chain.compact(tails)\n"
        ),
        new=(
            "    for tails in _batches(_tail(run, writer, number) for number in range(begin, end - 1)):\n"
            "        chain.compact(tails)\n"
        ),
    ),
    Mutant(
        name="adoption forgets where episodes stood",
        file="store/writing/adopt.py",
        old=("    states = standings(run, wanted, (writer, begin))\n"),
        new=("    standings(run, wanted, (writer, begin))\n    states: dict[str, Standing] = {}\n"),
    ),
    Mutant(
        name="totals leave out money",
        file="store/writing/writer.py",
        old=("        self._tally.money(record)\n"),
        new="",
    ),
    Mutant(
        name="totals leave out steps",
        file="store/writing/writer.py",
        old=("        self._tally.step(record)\n"),
        new="",
    ),
    Mutant(
        name="totals of a commit are those of the one before",
        file="store/writing/writer.py",
        old=("            totals=self._tally.text(),\n"),
        new=("            totals=self._journal.carried.totals,\n"),
    ),
    Mutant(
        name="compaction leaves out who has ended",
        file="store/writing/compact.py",
        old=('            "ends": settle(self.standings, touched, self.recall),\n'),
        new=('            "ends": settle(self.standings, [], self.recall),\n'),
    ),
    Mutant(
        name="compaction leaves out money",
        file="store/writing/compact.py",
        old=('            "ledger": ledger_table([entry for tail in tails for entry in tail.entries]),\n'),
        new=('            "ledger": ledger_table([]),\n'),
    ),
    Mutant(
        name="a changed footer is believed",
        file="store/files/segment.py",
        old=('    if segment.writer and says.get("check") != check_of(says):\n'),
        new=('    if segment.writer and says.get("check") is None:\n'),
    ),
    Mutant(
        name="digests are not compared",
        file="store/files/chain.py",
        old=("        changed = by is not None and found not in self.repaired.get(name, ())\n"),
        new=("        changed = False\n"),
    ),
    Mutant(
        name="a file that others name may be missing",
        file="store/files/chain.py",
        old=("        if name not in there:\n            chain.missing.append(name)\n"),
        new=("        if name not in there and not name:\n            chain.missing.append(name)\n"),
    ),
    Mutant(
        name="a repair forgets what it gave up",
        file="store/recovery/repair.py",
        old=("    charges = not_yet(charges, money.rows)\n"),
        new=("    charges = []\n"),
    ),
)


def main() -> int:
    """0: each mutant was found; 1: some were not."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="after how many seeds a mutant counts as not found")
    parser.add_argument("--only", default="", help="those whose name holds this")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    chosen = [one for one in MUTANTS if given.only in one.name]
    missed = 0
    with ThreadPoolExecutor(given.processes) as pool:
        for mutant, found in zip(chosen, pool.map(lambda one: hunted(one, given.seeds), chosen), strict=True):
            missed += found is None
            after = "NOT FOUND" if found is None else f"{found[0]:5} seeds"
            print(f"{after:>12}  {mutant.name}" + ("" if found is None else f": {found[1]}"), flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return 1 if missed else 0


def hunted(mutant: Mutant, seeds: int) -> tuple[int, str] | None:
    """After how many seeds a promise breaks, and which; None: none did."""
    with tempfile.TemporaryDirectory(prefix="evalkit-mutant-") as name:
        folder = Path(name)
        shutil.copytree(PROJECT / "evalkit", folder / "evalkit", ignore=shutil.ignore_patterns("__pycache__"))
        for other in ("tests", "providers", "instances", "runs", "pyproject.toml"):
            (folder / other).symlink_to(PROJECT / other)
        path = folder / "evalkit" / mutant.file
        text = path.read_text(encoding="utf-8")
        if text.count(mutant.old) != 1:
            raise SystemExit(
                f"{mutant.name}: its text stands {text.count(mutant.old)} times in {mutant.file}, not once"
            )
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "tests.sim",
            "--seeds",
            str(seeds),
            "--stop",
            "1",
            "--processes",
            "1",
            "--plain",
        ]
        ran = subprocess.run(
            command, cwd=folder, env={**os.environ, "PYTHONPATH": name}, capture_output=True, text=True, check=False
        )
    found = re.search(r"^seed (\d+): (.*)$", ran.stdout, re.MULTILINE)
    if found is None and ran.returncode:
        raise SystemExit(f"{mutant.name}: the simulation itself failed:\n{ran.stderr[-2000:]}")
    return None if found is None else (int(found[1]) + 1, found[2])


if __name__ == "__main__":
    sys.exit(main())
