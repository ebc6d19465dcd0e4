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
        old=("            self._want(self._pace.due(group.began))\n        await group.waiters.wait()\n"),
        new="            self._want(self._pace.due(group.began))\n",
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
        old="    tables = [conform(tail.table, STEPS) for tail in tails if tail.table is not None]\n",
        new=(
            "    discard(tail.segment for tail in tails)\n"
            "    tables = [conform(tail.table, STEPS) for tail in tails if tail.table is not None]\n"
        ),
        needs=("die_disk",),
    ),
    Mutant(
        name="a journal of a dead writer is not sealed",
        file="store/files/journal.py",
        old=("        seal(run, other, by=writer)\n"),
        new="",
        needs=("die_turn",),
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
        file="store/writing/compact.py",
        old="if number < end)",
        new="if number < end - 1)",
        needs=("die_turn",),
    ),
    Mutant(
        name="compaction leaves out money",
        file="store/writing/compact.py",
        old='        "ledger": ledger_table([entry for tail in tails for entry in tail.entries]),\n',
        new='        "ledger": ledger_table([]),\n',
    ),
    Mutant(
        name="a changed footer is believed",
        file="store/files/segment.py",
        old="    if _digest(tail[_DIGESTS:]) != tail[_DIGESTS // 2 : _DIGESTS]:\n",
        new="    if not tail:\n",
        needs=("altered",),
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
        old="            if disk.read_whole(segment.path) != data:",
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
        old="    while others := [other for other in journals(run) if other != writer and other not in ended]:\n",
        new=(
            "    while others := [\n"
            "        other for other, own in journals(run).items() if own and other != writer and other not in ended\n"
            "    ]:\n"
        ),
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
        file="frozen/manifests.py",
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
        file="frozen/suite_file.py",
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
        file="frozen/suite_file.py",
        old="        if digest_of_rows(seen()) != self.digest:\n",
        new="        if not digest_of_rows(seen()):\n",
        needs=("altered",),
    ),
    Mutant(
        name="a session's steps are left out of what its footers say",
        file="store/writing/writer.py",
        old="            self._spent += record.cost\n",
        new="            self._spent += 0\n",
        needs=("files_gone", "flips"),
    ),
    Mutant(
        name="leases are left out of what footers say",
        file="store/writing/writer.py",
        old='            self._leased += record.amount if record.kind == "lease" else 0\n',
        new="            self._leased += 0\n",
        needs=("flips",),
    ),
    Mutant(
        name="the newest object is deleted too",
        file="store/writing/compact.py",
        old="        self._latest = objects[-1:]\n",
        new="        self._latest, objects = [], [*objects, objects[-1]]\n",
    ),
    Mutant(
        name="a repair cuts no episode",
        file="store/recovery/repair.py",
        old="    cut = rows.lost(changed)\n",
        new="    cut = dict[str, Lost]()\n",
        needs=("flips", "files_gone"),
    ),
    Mutant(
        name="a cut makes nothing void",
        file="store/reading/effect.py",
        old="        live &= ~cut\n",
        new="        live = _not_superseded(episode, np.where(cut, 0, take), step, episodes) & ~cut\n",
        needs=("flips", "files_gone"),
    ),
)
