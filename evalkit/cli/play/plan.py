"""`evalkit plan`: what a sweep will cost and how long it will take, or what of it to play for a given amount."""

import argparse
import asyncio
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.cli.choosing import choice_of, program, run_directory, sweep_of
from evalkit.engine.freezing.freeze import Resolved, resolve
from evalkit.engine.planning.plan import PriorKnowledge, plan_sweep
from evalkit.money import PicoUsd
from evalkit.store.manifests import described, is_run

if TYPE_CHECKING:
    from evalkit.engine.planning.pilot import Basis

SECONDS = 8.0
"""CPU time to spend on playing; a small sweep is played whole long before."""


def plan(args: argparse.Namespace) -> int:
    """Print the plan; with `--budget`, also what to play for it."""
    sweep = sweep_of(args)
    resolved = _as_frozen(resolve(sweep, described(Path("runs") / sweep.name)))
    known = _known(args, resolved)
    amount = resolved.sweep.budget if args.budget is not None else None
    if amount is not None:
        # What is to be spent now comes on top of what the run has spent.
        resolved = replace(resolved, sweep=replace(resolved.sweep, budget=PicoUsd(known.spent + amount)))
    made = asyncio.run(plan_sweep(resolved, choice_of(args.only, resolved), seconds=SECONDS, known=known))
    proposal = None
    if amount is not None:
        from evalkit.engine.planning.nights import proposal_of

        proposal = proposal_of(made, resolved, known.basis, amount)
    if args.json:
        import orjson

        values = made.to_json() | ({} if proposal is None else {"proposal": proposal.to_json()})
        print(orjson.dumps(values, option=orjson.OPT_INDENT_2).decode())
        return 0
    from evalkit.cli.play.plan_words import print_plan, print_proposal

    print_plan(made, judge=proposal is None)
    if proposal is not None:
        print_proposal(proposal, f"{program()} run {shlex.quote(args.sweep)}")
    else:
        print(f"\nNext: {program()} run {shlex.quote(args.sweep)}")
    return 0


def _as_frozen(resolved: Resolved) -> Resolved:
    """The sweep as the run that it would go on with has frozen it."""
    own = Path("runs") / resolved.sweep.name
    if not is_run(own):
        return resolved
    from evalkit.engine.freezing.keeping import kept
    from evalkit.store.manifests import read_manifest

    return replace(resolved, manifest=kept(read_manifest(own), resolved.manifest))


def _known(args: argparse.Namespace, resolved: Resolved) -> PriorKnowledge:
    """What the run that the spec would go on with holds, and the figures of that one or of `--from`."""
    own = Path("runs") / resolved.sweep.name
    reply_s = simulated_reply_s(resolved)
    if args.basis is None and not is_run(own):
        return PriorKnowledge(reply_s=reply_s)
    from evalkit.engine.planning.pilot import NOTHING
    from evalkit.store.reading.accounts import accounts, spent
    from evalkit.store.reading.index import read_index

    held, paid = {}, 0
    if is_run(own):
        index = read_index(own)
        held = dict(index.episodes)
        paid = spent(index.totals["cost"], accounts(index.ledger, index.cost_by_worker).values())
    source = run_directory(args.basis) if args.basis is not None else own
    wanted = args.basis is not None or any(one.ending for one in held.values())
    return PriorKnowledge(basis=_basis(source) if wanted else NOTHING, held=held, spent=paid, reply_s=reply_s)


def _basis(directory: Path) -> "Basis":
    """A run's ended episodes, beside the play of its stand-ins."""
    from evalkit.engine.forecast import make_priors, read_priors
    from evalkit.engine.planning.pilot import basis_of
    from evalkit.results.derived import read_run

    manifest, _, results = read_run(directory)
    priors = {(one.agent, one.suite): one for one in read_priors(directory)}
    made = asyncio.run(make_priors(manifest, known=priors))
    return basis_of(directory.name, manifest, results, [*priors.values(), *made])


def simulated_reply_s(resolved: Resolved) -> Mapping[str, float]:
    """Seconds a reply of a provider that evalkit simulates takes on average, by lane."""
    known = {}
    for name, endpoint in resolved.endpoints.items():
        if endpoint.provider.simulate is not None:
            from evalkit.serve.options import options_from

            options = options_from(endpoint.provider.simulate, endpoint.provider.name)
            known[resolved.manifest.agents[name].lane] = options.latency.mean_s
    return known
