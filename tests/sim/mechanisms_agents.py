"""Mechanisms of agents that are code, each with the text whose absence the simulation must find."""

from tests.sim.mechanisms import Mutant

AGENTS = ("agents",)

MUTANTS = (
    Mutant(
        name="an ask is not waited for before it is returned",
        file="engine/agents/seat.py",
        old="            await context.log.durable()\n        return outcome\n",
        new="            await context.log.room()\n        return outcome\n",
        needs=AGENTS,
    ),
    Mutant(
        name="a logged ask is sent again",
        file="engine/agents/seat.py",
        old="if logged is not None and (step, key, n) not in self._active.again:",
        new="if logged is not None and step < len(self._active.rows):",
        needs=(*AGENTS, "die_turn"),
    ),
    Mutant(
        name="a request's name leaves out its fork",
        file="engine/agents/seat.py",
        old='ask="" if ask.plain else f"{derive(ask.key, ask.n):08x}"',
        new='ask="" if ask.plain else f"{derive(ask.n):08x}"',
        needs=AGENTS,
    ),
    Mutant(
        name="a logged ask is found without its fork",
        file="engine/resume.py",
        old="(ask.step, ask.ask_key, ask.ask_n): ask",
        new='(ask.step, "", ask.ask_n): ask',
        needs=(*AGENTS, "die_turn"),
    ),
    Mutant(
        name="an ask ends with who waits for it",
        file="engine/agents/seat.py",
        old="            self._unawaited.update(self._flights & {flight})\n",
        new="            flight.cancel()\n",
        needs=AGENTS,
    ),
    Mutant(
        name="an act does not wait for a request that nobody waits for",
        file="engine/agents/seat.py",
        old="        while self._unawaited:\n            await asyncio.wait(self._unawaited)\n",
        new="        self._flights -= self._unawaited\n",
        needs=AGENTS,
    ),
    Mutant(
        name="a logged ask is answered before other tasks have begun",
        file="engine/agents/seat.py",
        old="            await asyncio.sleep(0)  # as one that is sent",
        new="            pass  # as one that is sent",
        needs=(*AGENTS, "die_turn"),
    ),
    Mutant(
        name="a refused ask is not logged",
        file="engine/agents/seat.py",
        old="        context.log.append(ask_record(",
        new="        if isinstance(outcome, AskRefused):\n            return outcome\n"
        "        context.log.append(ask_record(",
        needs=AGENTS,
    ),
    Mutant(
        name="sums leave out asks",
        file="store/reading/rows.py",
        old="            np.add.at(self.sums[name], codes, ints(table, name))\n",
        new="            np.add.at(self.sums[name], codes, ints(table, name) * (step | cut))\n",
        needs=AGENTS,
    ),
    Mutant(
        name="a repair keeps a step whose asks are lost",
        file="store/recovery/check.py",
        old="        for place in _without_asks(rows, order, effect):\n",
        new="        for place in list[tuple[int, int]]():\n",
        needs=(*AGENTS, "files_gone", "flips"),
    ),
)
