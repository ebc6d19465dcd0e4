"""Mechanisms of the engine and the client, each with the text whose absence the simulation must find."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One mechanism, and how its absence is written."""

    name: str
    file: str
    old: str
    """Stands in the file once."""
    new: str
    needs: tuple[str, ...] = ()
    """Disturbances that it is there for: all seeds in which its absence is looked for have them."""


MUTANTS = (
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
        old="        self.ledger.enter(row, then)\n",
        new='        then() if kind == "lease" and then else self.ledger.enter(row, then)\n',
    ),
    Mutant(
        name="a charge is not booked",
        file="client/budget.py",
        old=("            self._shared.state.charged += amount\n        self.settle(amount, amount)\n"),
        new=("            self._shared.state.charged += amount\n        self.settle(amount, 0)\n"),
        needs=("timeout", "500", "reset_after"),
    ),
    Mutant(
        name="a charge is not written",
        file="client/budget.py",
        old=('            self._shared.write(\n                "charge"'),
        new=('            (lambda *a, **k: None)(\n                "charge"'),
        needs=("timeout", "500", "reset_after"),
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
        file="store/reading/accounts.py",
        old="crash_row(account.session, account.unspent)",
        new="crash_row(account.session, account.unspent // 8)",
    ),
    Mutant(
        name="a request is bounded by an eighth of its body",
        file="client/request.py",
        old="        input_tokens = body_bytes + self.dialect.overhead_tokens\n",
        new="        input_tokens = body_bytes // 8\n",
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
        needs=("die_turn",),
    ),
    Mutant(
        name="a resumed episode begins at its last step",
        file="engine/resume.py",
        old=("        _replay(episode, position, rows)\n        return"),
        new=("        _replay(episode, position, rows[:-1])\n        return"),
    ),
    Mutant(
        name="limits are not waited for",
        file="client/lanes/lane.py",
        old=(
            "            if wait_s(only.buckets, need, now) > 0 "
            "or not all(pool.quick(need, now) for pool in self._pools):\n"
            "                return None\n"
        ),
        new="",
        needs=("tight",),
    ),
    Mutant(
        name="a window lets one more in",
        file="client/lanes/window.py",
        old="        self.most = float(most)\n",
        new="        self.most = float(most + 1)\n",
        needs=("tight",),
    ),
    Mutant(
        name="probes go whatever the limit",
        file="client/lanes/servers.py",
        old="max(self.health.next_probe - now, wait_s(self.buckets, need, now))\n",
        new="max(0.0, self.health.next_probe - now)\n",
        needs=("tight", "outage"),
    ),
    Mutant(
        name="a server is sent what it has no room for",
        file="client/lanes/servers.py",
        old="        if self.in_flight + 1 > self.window.size or self.in_flight + 1 > self.most:\n",
        new="        if self.in_flight > 3 * self.window.size:\n",
        needs=("servers",),
    ),
    Mutant(
        name="who goes home wakes nobody",
        file="engine/admit/admission_queue.py",
        old="            self.admission.close(lane)\n        self._tell()\n",
        new="            self.admission.close(lane)\n            self._tell()\n",
        needs=("scarce", "outage"),
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
        needs=("timeout", "500", "reset_after", "die_turn"),
    ),
    Mutant(
        name="a request is settled twice",
        file="client/client.py",
        old="        if not self._budget.settle(asking.bound, cost):\n",
        new="        self._budget.settle(asking.bound, 0)\n        if not self._budget.settle(asking.bound, cost):\n",
    ),
    Mutant(
        name="a broken connection counts as not billed",
        file="wire/http.py",
        old='    "reset": True,',
        new='    "reset": False,',
        needs=("reset_after",),
    ),
    Mutant(
        name="a reply without usage costs what it says",
        file="client/client.py",
        old="        cost = listed if free else max(most)\n",
        new="        cost = _dearest(rates, usage)\n",
        needs=("no_usage", "part_usage"),
    ),
    Mutant(
        name="money that comes back wakes nobody",
        file="client/budget.py",
        old="        if self._shared.waiting:\n            self._shared.serve()\n        return cost <= reserved\n",
        new="        return cost <= reserved\n",
        # Of models, only so many episodes begin that the money for their next requests is there.
        needs=("scarce", "agents"),
    ),
    Mutant(
        name="a lane that ends leaves its line waiting",
        file="waiting.py",
        old="            waiter._dismiss(_copy(error))\n",
        new="            pass\n",
        needs=("outage", "interrupt"),
    ),
    Mutant(
        name="a body is read once for each piece of it",
        file="client/client.py",
        old="            understood = await offloaded(lambda: self._understand(response), len(response.body))\n",
        new=(
            "            def again() -> tuple[Verdict, Reply | None, bool]:\n"
            "                for upto in range(0, len(response.body), 16):\n"
            "                    response.body[:upto].count(b'~')\n"
            "                return self._understand(response)\n"
            "            understood = await offloaded(again, len(response.body))\n"
        ),
        needs=("long_bodies",),
    ),
)
