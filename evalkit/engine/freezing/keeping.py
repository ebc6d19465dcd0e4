"""What a run keeps of its own when a spec extends it: the wording of its prompt packs, and the order of its episodes.

The wording of a pack that evalkit ships may change with an upgrade. A run started with one wording, and all its agents
are compared in it. So within a run, the name of a shipped pack means the texts that the run has frozen, also for agents
that join it. If it has none (for an environment that was not played in it), today's texts are added and frozen. A
change of a user's own pack is different: it is a conflict, which `freeze.py` reports.

Its suites keep their listed order, its key of permutations stays, and additions come after what was planned before.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from evalkit.engine.universe import cells
from evalkit.envs.table import ENVIRONMENTS
from evalkit.frozen.instances import laid
from evalkit.frozen.manifest import Manifest, ManifestAgent, ManifestOrder, ManifestPack, ManifestSuite
from evalkit.spec.identity import variant
from evalkit.spec.packs import STANDARD, VARIANTS, keys_of, packs, read_pack, texts_digest


def kept(old: Manifest, new: Manifest) -> Manifest:
    """What a spec asks for now, `new`, with the wording and order that the run has frozen. Conflicts stay in it, so
    that they are found."""
    words = _ShippedTexts(old)
    packs: dict[str, ManifestPack] = {}
    agents: dict[str, ManifestAgent] = {}
    for name, agent in new.agents.items():
        was = old.agents.get(name)
        chosen = {}
        for environment, digest in agent.packs.items():
            pack = new.packs[digest]
            if was is None or environment not in was.packs:
                pack = words.of(pack, environment, variant(agent.tags))
            elif _is_the_same(old, was, new, agent, environment):
                pack = old.packs[was.packs[environment]]
            packs.setdefault(pack.digest, old.packs.get(pack.digest, pack))
            chosen[environment] = pack.digest
        stays = was is not None and chosen.items() <= dict(was.packs).items()
        agents[name] = msgspec.structs.replace(
            agent, packs=chosen, pack=was.pack if was is not None and stays else agent.pack
        )
    suites = {
        name: old.suites[name] if name in old.suites and _as_it_was(old.suites[name], suite) else suite
        for name, suite in new.suites.items()
    }
    return msgspec.structs.replace(new, agents=agents, packs=packs, suites=suites, order=extended_order(old, new))


def _as_it_was(was: ManifestSuite, now: ManifestSuite) -> bool:
    alike = was.environment_version == now.environment_version and was.counted_refusals == now.counted_refusals
    return alike and was.digest == now.digest


def extended_order(old: Manifest, new: Manifest) -> ManifestOrder:
    """The order of the two together: the old one's, and after it what the new one adds."""
    grown = (
        new.agents.keys() - old.agents.keys()
        or new.suites.keys() - old.suites.keys()
        or new.replicates > old.replicates
    )
    return msgspec.structs.replace(old.order, before=(*old.order.before, old.extent)) if grown else old.order


def _is_the_same(old: Manifest, was: ManifestAgent, new: Manifest, now: ManifestAgent, environment: str) -> bool:
    """Whether an agent's pack is the one that it had, apart from shipped wording."""
    before, today = old.packs[was.packs[environment]], new.packs[now.packs[environment]]
    if today.file:
        own = {*today.own, *(before.own if before.file else ())}
        return all(before.texts.get(key) == today.texts.get(key) for key in own)
    return not before.file and (before.name == today.name or was.pack == now.pack)


class _ShippedTexts:
    """The shipped texts of a run."""

    def __init__(self, run: Manifest) -> None:
        self._packs: dict[tuple[str, str, str], ManifestPack] = {}
        """By name, environment and variant."""
        self._standard: dict[tuple[str, str], dict[str, str]] = {}
        """`standard`, as far as the run's packs hold it; by environment and variant."""
        for environment, which, pack in _packs_of(run):
            if not pack.file:
                self._packs.setdefault((pack.name, environment, which), pack)
            texts = {**ENVIRONMENTS[environment].texts.later, **pack.texts}
            standard = self._standard.setdefault((environment, which), {})
            for key in texts.keys() - set(pack.own):
                standard.setdefault(key, texts[key])

    def of(self, today: ManifestPack, environment: str, which: str) -> ManifestPack:
        """A pack as an agent that joins the run reads it."""
        same = None if today.file else self._packs.get((today.name, environment, which))
        if same is not None:
            return same
        standard = self._of_standard(environment, which)
        texts = {key: text if key in today.own else standard.get(key, text) for key, text in today.texts.items()}
        if texts == dict(today.texts):
            return today
        return ManifestPack(
            name=today.name,
            digest=texts_digest(environment, texts),
            texts=texts,
            own=today.own,
            file=today.file,
        )

    def _of_standard(self, environment: str, which: str) -> Mapping[str, str]:
        """What the run holds of `standard`: a variant shares the texts that are not its own with the others."""
        standard = dict(self._standard.get((environment, which), {}))
        for other in {"", *VARIANTS} - {which}:
            apart = keys_of(STANDARD, environment).get(which or other, frozenset())
            for key, text in self._standard.get((environment, other), {}).items():
                if key not in apart:
                    standard.setdefault(key, text)
        return standard


def reworded(run: Manifest) -> list[str]:
    """A line with the shipped packs that have changed since the run froze them; nothing if none has."""
    by_pack: dict[str, set[str]] = {}
    for environment, which, pack in _packs_of(run):
        name, aside = (STANDARD, frozenset(pack.own)) if pack.file else (pack.name, frozenset[str]())
        if environment not in ENVIRONMENTS or name not in packs():
            continue
        today = read_pack(name, environment, which).texts
        texts = {**ENVIRONMENTS[environment].texts.later, **pack.texts}
        if any(texts.get(key) != today[key] for key in today.keys() - aside):
            by_pack.setdefault(name, set()).add(environment)
    others = "; ".join(f"{name}: {', '.join(sorted(environments))}" for name, environments in sorted(by_pack.items()))
    if not others:
        return []
    return [f"Agents read the prompts that this run has frozen, also those that join it; reworded since ({others})."]


def _packs_of(run: Manifest) -> Iterator[tuple[str, str, ManifestPack]]:
    """(environment, variant, pack), each once."""
    seen = set()
    for agent in run.agents.values():
        for environment, digest in agent.packs.items():
            key = environment, variant(agent.tags), digest
            if key not in seen:
                seen.add(key)
                yield environment, key[1], run.packs[digest]


# Whether a run's episodes are all different: an episode is one agent on one instance, wherever a spec names the two.
#
# An episode's id does not contain the name of its suite or agent. So a spec with the same thing under two names asks
# for one episode twice; played twice at the same time, its steps would be logged twice.


def shared(manifest: Manifest) -> Iterator[str]:
    """What the manifest asks for twice, as messages: equal agents, and suites with common instances."""
    yield from _shared_agents(manifest)
    suites: dict[str, str] = {}
    played = Counter(suite.environment for suite in manifest.suites.values())
    for suite in manifest.suites.values():
        if played[suite.environment] == 1:  # an instance's digest is that of its environment too
            continue
        own = laid(suite.instances)
        repeated = [
            (suites[digest], name) for name, digest in zip(own.ids, own.digests, strict=True) if digest in suites
        ]
        if repeated:
            more = f" and {len(repeated) - 1} more" if repeated[1:] else ""
            yield _words(repeated[0][0], suite.name, f"{repeated[0][1]!r}{more}")
        suites |= dict.fromkeys(own.digests, suite.name)


def _words(first: str, second: str, instances: str) -> str:
    return (
        f"the suites {first!r} and {second!r} have instances in common ({instances}): an instance belongs to one "
        "suite of a run, so choose others with `instances`, or leave one of the suites out"
    )


def _shared_agents(manifest: Manifest) -> Iterator[str]:
    firsts: dict[tuple[str, str], str] = {}
    same: dict[tuple[str, str], list[str]] = {}
    for (agent, environment), cell in cells(manifest).items():
        first = firsts.setdefault((environment, cell.key), agent)
        if first != agent:
            same.setdefault((first, agent), []).append(environment)
    for (first, agent), shared_in in same.items():
        earlier, later = manifest.agents[first], manifest.agents[agent]
        if len(shared_in) == len(earlier.packs) == len(later.packs):
            yield (
                f"the agents {first!r} and {agent!r} are the same: leave one of them out; to play an agent more than "
                "once, set `replicates`"
            )
        else:  # prompt packs may say something of one environment only, and policies sit others out
            where = " and ".join(shared_in)
            yield (
                f"the agents {first!r} and {agent!r} are the same in {where}, where they read the same prompts: play "
                f"{where} in a sweep of its own, with one of them"
            )
