"""`evalkit tools check-agent`: does an agent's code repeat itself when it is resumed?"""

import argparse
import asyncio

from evalkit.engine.agents.rehearsal import rehearse
from evalkit.engine.freezing.freeze import resolve
from evalkit.engine.universe import Choice, episodes
from evalkit.errors import UsageError
from evalkit.policy.table import check_policy, find_policy
from evalkit.spec.agent_code import find_agent
from evalkit.spec.sweep import sweep_from
from evalkit.text import visible

SAME, DIFFERS = 0, 1


def check_agent(args: argparse.Namespace) -> int:
    """Play one episode, cut it off behind each ask, and compare; return 1 at the first difference, else 0."""
    code = find_agent(args.agent, {}, "tools check-agent")
    table = {"name": "checked", "agent": args.agent, "models": dict.fromkeys(code.models, "simulated/random")}
    suite = {"name": args.suite}
    spec = {"budget_usd": "1", "agents": [table], "suites": [suite]}
    manifest = resolve(sweep_from(spec, "tools check-agent", "check"), lasting=False).manifest
    episode = next(episodes(manifest, list(manifest.agents.values()), Choice()))
    environment = episode.cell.env.name
    if args.policy:
        check_policy(args.policy)
        if find_policy(args.policy, environment) is None:
            raise UsageError(f"--policy: {args.policy!r} does not play {environment!r}.")
    policy = args.policy or episode.cell.env.stand_in
    done = asyncio.run(rehearse(code, episode, dict.fromkeys(code.models, policy)))
    print(
        f"{args.agent} on {args.suite}:{episode.target.id}, played by {policy}: {done.steps} steps, {done.asks} asks, "
        f"{done.left}."
    )
    if done.difference:
        print(f"It does not repeat itself. {visible(done.difference)}")
        return DIFFERS
    print(f"Cut off behind each of {done.kills} asks, it went on to the same log, and asked nothing twice.")
    return SAME
