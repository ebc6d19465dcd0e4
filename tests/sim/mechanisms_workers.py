"""Mechanisms of runs that several workers play, each with the text whose absence the simulation must find."""

from tests.sim.mechanisms import Mutant

WORKERS = ("workers",)
ZOMBIES = ("workers", "zombie")

MUTANTS = (
    Mutant(
        name="an end that another has given a journal is not made to last",
        file="store/files/journal.py",
        old="            make_end_last(run, writer)\n",
        new="",
        needs=("workers", "dies_naming"),
    ),
    Mutant(
        name="a lost worker's journal is not sealed",
        file="store/writing/opening.py",
        old="    seal(run, writer, by=by)\n    #",
        new="    #",
        needs=ZOMBIES,
    ),
    Mutant(
        name="a lost worker is charged nothing",
        file="machines/spread.py",
        old="        for row in charge_crashes({writer: account}) if self.endpoints.lanes else ():\n",
        new="        for row in ():\n",
        needs=("workers", "worker_dies"),
    ),
    Mutant(
        name="what a lost worker was lent is free again",
        file="machines/sharing.py",
        old="        self.before += account.held if spent is None else spent\n",
        new="        self.before += 0 if spent is None else min(spent, 0)\n",
        needs=("workers", "worker_dies"),
    ),
    Mutant(
        name="a writer whose journal was ended compacts it",
        file="store/writing/compact.py",
        old="        refuse_sealed(self._run, self._writer)  # one",
        new="        # one",
        needs=ZOMBIES,
    ),
    Mutant(
        name="a worker alone with a lane leaves no room for others",
        file="machines/allocator.py",
        old="        return -(-(lane.width - sum(taken)) // open_) if open_ > 0 else 0\n",
        new="        return lane.width\n",
        needs=WORKERS,
    ),
    Mutant(
        name="a lost worker's episodes are given to nobody",
        file="machines/allocator.py",
        old=" for dealt in hand.held.values()]\n        return len",
        new=" for dealt in ()]\n        return len",
        needs=("workers", "worker_dies"),
    ),
    Mutant(
        name="a worker hears of a lease before it lasts",
        file="machines/spread.py",
        old="            self._accounts[row.session].book(row)\n        await self.session.store.durable()\n",
        new="            self._accounts[row.session].book(row)\n",
        needs=("workers", "die_turn"),
    ),
    Mutant(
        name="a worker asks to be let in before its folder is there",
        file="machines/worker.py",
        old="            announce(self._directory, self._writer)\n",
        new="",
        needs=("workers", "taken_over"),
    ),
)
