"""Mechanisms of the log, each with the text whose absence the simulation must find."""

from tests.sim.mechanisms import Mutant

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
        needs=("dies_compacting",),
    ),
    Mutant(
        name="durable() returns before the commit",
        file="store/writing/writer.py",
        old=("            self._want(group.began + self._pace.wait_s)\n        await group.waiters.wait()\n"),
        new="            self._want(group.began + self._pace.wait_s)\n",
    ),
    Mutant(
        name="no lock is taken",
        file="store/lock.py",
        old="        if locked is False or not _seize(file, path):\n",
        new="        if False:\n",
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
        needs=("sync_fails", "die_turn", "power"),
    ),
    Mutant(
        name="a log that cannot be written leaves its waiters waiting",
        file="store/writing/writer.py",
        old="            waiters.dismiss(_again(self._failure))\n",
        new="            pass\n",
        needs=("EIO",),
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
        needs=("die_disk",),
    ),
    Mutant(
        name="objects are deleted before files that hold them are named",
        file="store/writing/adopt.py",
        old=("        self._unnamed += [tail.segment for tail in batch]\n"),
        new=(
            "        discard(tail.segment for tail in batch)\n"
            "        self._unnamed += [tail.segment for tail in batch]\n"
        ),
        needs=("die_disk", "die_turn", "power"),
    ),
    Mutant(
        name="compacted files are named by no object",
        file="store/writing/adopt.py",
        old=("        return dict(self._compacted)\n"),
        new=("        return {}\n"),
    ),
    Mutant(
        name="a journal of a dead writer is not sealed",
        file="store/files/journal.py",
        old=("        seal(run, other, by=writer)\n"),
        new="",
        needs=("die_turn",),
    ),
    Mutant(
        name="an object does not name the one before it",
        file="store/files/journal.py",
        old=('                    "before": self.before,\n'),
        new=('                    "before": "",\n'),
        needs=("files_gone", "flips"),
    ),
    Mutant(
        name="a journal does not know the journals before it",
        file="store/files/journal.py",
        old="    own.heads = heads\n",
        new="",
        needs=("files_gone", "die_turn"),
    ),
    Mutant(
        name="what a killed process has named is not made to last",
        file="store/writing/opening.py",
        old=("            disk.sync_directory(folder)\n"),
        new=("            pass\n"),
        needs=("dies_naming",),
    ),
    Mutant(
        name="a journal's folder is not made to last",
        file="store/files/journal.py",
        old=("    disk.make_directories(run / LOG / writer)\n"),
        new=("    (run / LOG / writer).mkdir(parents=True, exist_ok=True)\n"),
        needs=("power", "die_turn"),
    ),
    Mutant(
        name="an object's link is not made to last",
        file="store/disk.py",
        old=("        sync_directory(path.parent)  # also if the name is taken: the caller relies on that file\n"),
        new="",
        needs=("power", "die_turn"),
    ),
    Mutant(
        name="an object is not synced before it is linked",
        file="store/disk.py",
        old=("            with write(aside, data) as file:\n                sync_file(file)\n            try:\n"),
        new=("            with write(aside, data):\n                pass\n            try:\n"),
        needs=("power", "die_turn"),
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
        needs=("die_turn",),
    ),
    Mutant(
        name="adoption forgets where episodes stood",
        file="store/writing/adopt.py",
        old=("    states = standings(run, wanted, (writer, begin))\n"),
        new=("    standings(run, wanted, (writer, begin))\n    states: dict[str, Standing] = {}\n"),
        needs=("die_turn",),
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
        old=("            self._tally.step(record)\n"),
        new="            pass\n",
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
        old='    if says.get("check") != check_of(says):\n',
        new='    if says.get("check") is None:\n',
        needs=("altered",),
    ),
    Mutant(
        name="digests are not compared",
        file="store/files/chain.py",
        old=("        changed = by is not None and actual not in self.repaired.get(name, ())\n"),
        new=("        changed = False\n"),
        needs=("altered",),
    ),
    Mutant(
        name="a file that others name may be missing",
        file="store/files/chain.py",
        old=("        if name not in there:\n            chain.missing.append(name)\n"),
        new=("        if name not in there and not name:\n            chain.missing.append(name)\n"),
        needs=("files_gone",),
    ),
    Mutant(
        name="a taken number is overwritten",
        file="store/disk.py",
        old="                link(aside, path)\n            except FileExistsError",
        new="                rename(aside, path)\n            except FileExistsError",
        needs=("taken_over",),
    ),
    Mutant(
        name="a taken number is passed over as one's own",
        file="store/files/journal.py",
        old="            if disk.read_whole(segment.path) != bytes(data):",
        new="            if False:",
        needs=("taken_over",),
    ),
    Mutant(
        name="a writer that was fenced goes on",
        file="store/writing/writer.py",
        old="            self._fail(flaw)\n            group.waiters.dismiss(_again(flaw))\n",
        new=(
            '            if type(flaw).__name__ == "FencedError":\n'
            "                return group.waiters.release()\n"
            "            self._fail(flaw)\n            group.waiters.dismiss(_again(flaw))\n"
        ),
        needs=("taken_over",),
    ),
    Mutant(
        name="a journal without objects is not sealed",
        file="store/files/journal.py",
        old="if one.writer != writer and one.writer not in heads]:\n",
        new="if one.writer != writer and one.writer not in heads and one.numbers]:\n",
        needs=("taken_over",),
    ),
    Mutant(
        name="a journal's folder comes with its first object",
        file="store/files/journal.py",
        old="    disk.make_directories(run / LOG / writer)\n",
        new="",
        needs=("taken_over",),
    ),
    Mutant(
        name="a writer does not look who has begun meanwhile",
        file="store/files/journal.py",
        old="    newer = [other for other in others if began(other) > began(writer)]\n",
        new="    newer = list[str]()\n",
        needs=("at_once",),
    ),
    Mutant(
        name="folders that a stopped process has made are not made to last",
        file="store/writing/opening.py",
        old="    _make_last((run.parent, run, *described, *folders))\n",
        new="    _make_last(folders)\n",
        needs=("dies_naming",),
    ),
    Mutant(
        name="a failed sync of an object is passed over",
        file="store/disk.py",
        old=(
            "            with write(aside, data) as file:\n"
            "                sync_file(file)\n"
            "            try:\n"
            "                link(aside, path)\n"
        ),
        new=(
            "            with write(aside, data) as file:\n"
            "                try:\n"
            "                    sync_file(file)\n"
            "                except OSError:\n"
            "                    pass\n"
            "            try:\n"
            "                link(aside, path)\n"
        ),
        needs=("sync_fails", "die_turn", "power"),
    ),
    Mutant(
        name="the lowest manifest holds",
        file="store/manifests.py",
        old="    return files[-1] if files else None\n",
        new="    return files[0] if files else None\n",
        needs=("extended",),
    ),
    Mutant(
        name="an extension takes the number that holds",
        file="store/folder.py",
        old="int(files[-1].stem) + 1 if files else 0",
        new="int(files[-1].stem) if files else 0",
        needs=("extended",),
    ),
    Mutant(
        name="an extension leaves out the suites' files",
        file="store/suite_file.py",
        old="    disk.write_parts_durably(place.path, [data.to_pybytes()])\n",
        new='    if not list((run / "manifest").glob("*.json")):\n'
        "        disk.write_parts_durably(place.path, [data.to_pybytes()])\n",
        needs=("extended",),
    ),
    Mutant(
        name="a suite's file is not synced",
        file="store/disk.py",
        old="                    _write_all(file, part)\n                sync_file(file)\n",
        new="                    _write_all(file, part)\n",
        needs=("power", "die_turn"),
    ),
    Mutant(
        name="a suite's file name is not made to last",
        file="store/disk.py",
        old="            if not done:\n                _forget(aside)\n        sync_directory(path.parent)\n",
        new="            if not done:\n                _forget(aside)\n",
        needs=("power", "die_turn"),
    ),
    Mutant(
        name="a suite's file is believed whatever it holds",
        file="store/suite_file.py",
        old="        if digest_of_rows(seen()) != self.digest:\n",
        new="        if not digest_of_rows(seen()):\n",
        needs=("altered",),
    ),
    Mutant(
        name="ends say one step too few",
        file="store/reading/ends.py",
        old='        "steps": [standing.steps for standing in rows],\n',
        new='        "steps": [max(standing.steps - bool(standing.ending), -1) for standing in rows],\n',
    ),
    Mutant(
        name="ends have no rows of episodes that go on",
        file="store/writing/compact.py",
        old="settle(self.standings, touched, self.recall)",
        new="settle(self.standings, [name for name in touched if self.standings[name].ending], self.recall)",
        needs=("die_turn",),
    ),
    Mutant(
        name="a repair does not say what it has put in place",
        file="store/recovery/repair.py",
        old="            repaired={name: digest_of(data) for name, data in made.files.items()},\n",
        new="            repaired={},\n",
        needs=("flips",),
    ),
)
