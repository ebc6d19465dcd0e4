"""Mechanisms of runs that several workers play, each with the text whose absence the simulation must find."""

from tests.sim.mechanisms import Mutant

WORKERS = ("workers",)
ZOMBIES = ("workers", "zombie")

MUTANTS = (
    Mutant(
        name="a lost worker's journal is not sealed",
        file="store/writing/opening.py",
        old="    seal(run, writer, by=by)\n    folder",
        new="    folder",
        needs=ZOMBIES,
    ),
    Mutant(
        name="a lost worker is charged nothing",
        file="engine/machines/spread.py",
        old="        for row in rows if self.endpoints.lanes else ():\n",
        new="        for row in ():\n",
        needs=("workers", "worker_dies"),
    ),
    Mutant(
        name="what a lost worker was lent is free again",
        file="engine/machines/leases.py",
        old="            pot.before += spent.get(scope, account.held)\n",
        new="            pot.before += min(spent.get(scope, account.held), 0)\n",
        needs=("workers", "worker_dies"),
    ),
    Mutant(
        name="a lease is told before it is durable",
        file="engine/machines/spread.py",
        old="            self._accounts[row.session].book(row)\n        await self.session.store.durable()\n",
        new="            self._accounts[row.session].book(row)\n",
        needs=("workers", "die_turn"),
    ),
    Mutant(
        name="a repeated question does not wait for what its answer lends",
        file="engine/machines/spread.py",
        old="        if rows or turn.repeated:\n",
        new="        if rows:\n",
        needs=("workers", "EIO"),
    ),
    Mutant(
        name="leases that a worker has not heard of count as spent",
        file="engine/machines/spread.py",
        old="        if account.missing:\n",
        new="        if False:\n",
        needs=WORKERS,
    ),
    Mutant(
        name="a repeated question is answered anew",
        file="engine/machines/coordinator.py",
        old="        if message.number <= member.number and member.answer is not None:\n",
        new="        if False:\n",
        needs=("workers", "broken_connections"),
    ),
    Mutant(
        name="a worker sends when its share has run out",
        file="engine/machines/worker.py",
        old="lane.lapsed = lambda: boottime() >= self._valid_until\n",
        new="lane.lapsed = lambda: False\n",
        needs=ZOMBIES,
    ),
    Mutant(
        name="what one worker loses another gets at once",
        file="engine/machines/shares.py",
        old="min(self._targets(limit, capacity)[worker], capacity.most - others))\n",
        new="self._targets(limit, capacity)[worker])\n",
        needs=("workers", "tight"),
    ),
    Mutant(
        name="what a lost worker had goes to any worker",
        file="engine/machines/coordinator.py",
        old=" and dealt.since <= member.order\n            (taken",
        new="\n            (taken",
        needs=("workers", "worker_dies"),
    ),
    Mutant(
        name="nobody begins anew for what a lost worker had",
        file="engine/machines/coordinator.py",
        old="            chosen.leaving = chosen.anew = True\n",
        new="            chosen.anew = False\n",
        needs=("workers", "worker_dies"),
    ),
    Mutant(
        name="a lane's seats go to those that came first",
        file="engine/machines/coordinator.py",
        old="            playing.sort(key=lambda other: self._turn(other, lane.name))\n",
        new="            pass\n",
        needs=("workers", "tight"),
    ),
    Mutant(
        name="a silent worker is waited for",
        file="engine/machines/joined.py",
        old="if now - member.heard > self._patience_s(member)]\n",
        new="if now - member.heard > 1e9]\n",
        needs=("workers", "worker_dies"),
    ),
    Mutant(
        name="a writer whose journal was ended compacts it",
        file="store/writing/compact.py",
        old="        self.check()  # one",
        new="        # one",
        needs=ZOMBIES,
    ),
    Mutant(
        name="a worker says that an episode has ended before that is durable",
        file="engine/machines/worker.py",
        old="            if left:\n                await store.durable()\n",
        new="            pass\n",
        needs=("workers", "worker_dies"),
    ),
    Mutant(
        name="a question is not repeated",
        file="engine/machines/tcp.py",
        old="                    except Gone as flaw:\n                        why",
        new="                    except ZeroDivisionError as flaw:\n                        why",
        needs=("workers", "broken_connections"),
    ),
)
