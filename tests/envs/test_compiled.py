"""Compiled kernels in the main path: the same values, and nobody waits for a compiler."""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Request
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import Terms, World, make_world
from evalkit.envs.costbench.planning import solve
from evalkit.envs.environment import Kit
from evalkit.envs.replay import advance, begin
from evalkit.envs.scheduling import market as markets
from evalkit.envs.scheduling.market import SchedulingMarket, blocking, make_market
from evalkit.envs.table import ENVIRONMENTS
from evalkit.policy.conversation import answer
from evalkit.policy.table import player
from evalkit.replies import encode_reply
from evalkit.spec.packs import read_pack
from evalkit.spec.suites import find_suite, read_lines
from tests.support.compiled_loops import needs_numba

ROOT = Path(__file__).resolve().parents[2]
SCHEDULING, CHAINS = markets.KERNELS.name, solve.KERNELS.name


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels, as if they were ready; they compile at their first call."""
    for module, where in ((SCHEDULING, markets), (CHAINS, solve)):
        monkeypatch.setattr(where.KERNELS, "_module", import_module(module))
    monkeypatch.setattr(markets, "COMPILED_N", 1)


def by_definition(market: SchedulingMarket, matching: Sequence[int]) -> list[tuple[int, int]]:
    ranks, held = market.worker_rank.tolist(), market.task_rank_t.tolist()
    worker_of = {task: worker for worker, task in enumerate(matching)}
    return [
        (w, t)
        for w in range(market.n)
        for t in range(market.n)
        if ranks[w][t] < ranks[w][matching[w]] and held[w][t] < held[worker_of[t]][t]
    ]


@given(st.integers(1, 9), st.data())
def test_both_paths_find_the_blocking_pairs_of_the_definition(n: int, data: st.DataObject) -> None:
    orders = st.permutations(range(n))
    workers, tasks = (data.draw(st.lists(orders, min_size=n, max_size=n)) for _ in range(2))
    market, matching = make_market(workers, tasks), tuple(data.draw(orders))
    wanted = by_definition(market, matching)
    chosen = data.draw(st.permutations(range(len(wanted))))
    for module in (None, import_module(SCHEDULING)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(markets.KERNELS, "_module", module)
            patch.setattr(markets, "COMPILED_N", 1 if module else 10)
            found = blocking(market, matching)
            assert found.count == len(wanted)
            assert found.pairs(chosen) == [wanted[i] for i in chosen]
            assert found.pairs([]) == []


def a_world(length: int) -> World:
    return make_world(shipped("travel"), "dining", length, whole=length % 2 == 0)


@given(st.integers(2, 14), st.data())
def test_both_paths_find_the_same_distances(length: int, data: st.DataObject) -> None:
    world = a_world(length)
    size = len(world.tools) + len(world.foreign)
    costs = tuple(data.draw(st.lists(st.integers(1, 9), min_size=size, max_size=size)))
    # Foreign tools may be off too, whether they have costs or not.
    terms = Terms(
        costs[: data.draw(st.sampled_from([size, len(world.tools)]))],
        data.draw(st.frozensets(st.integers(0, size - 1))),
    )
    plain = solve.distances.__wrapped__(world, terms)
    assert solve._compiled_distances(import_module(CHAINS), world, terms) == plain
    edges, far = solve._edges(world), np.empty(length + 1, np.int64)
    usable = np.array([0 if place in terms.off else terms.costs[place] for place in range(len(world.tools))])
    solve.chain_distances(edges, usable, far)
    assert tuple(far.tolist()) == plain


def test_sums_that_might_not_fit_take_the_plain_path(kernels: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(solve, "_compiled_distances", lambda *given: asked.append(given) or ())
    for length, cents, wanted in ((8, 10**30, 0), (solve.COMPILED_LENGTH - 1, 10, 0), (8, 10, 1)):
        world = a_world(length)
        solve.distances.__wrapped__(world, Terms((cents,) * (len(world.tools) + len(world.foreign))))
        assert len(asked) == wanted


def digests_of(suite: str, policy: str) -> list[bytes]:
    """The step digests of an episode that a policy plays on a suite's last instance."""
    *_, line = read_lines(find_suite(suite))
    env = ENVIRONMENTS[str(line["environment"])]
    instance = env.load(line)
    position = begin(env, instance, Kit(pack=read_pack("standard", env.name)))
    play, found = player(policy, env.name, instance=instance), list[bytes]()
    while not position.ending and len(found) < 60:
        messages = tuple(position.messages)
        request = Request(messages=messages, tools=position.tools, sampling=env.defaults, seed=len(found))
        reply = answer(policy, play, request)
        found.append(advance(env, position, reply, encode_reply(reply)).step_digest)
    return found


@needs_numba
def test_an_episode_is_the_same_on_both_paths(kernels: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for suite, policy in (("scheduling/basic", "knuth"), ("costbench/length-8", "replanner")):
        fast = digests_of(suite, policy)
        with monkeypatch.context() as patch:
            patch.setattr(markets.KERNELS, "_module", None)
            patch.setattr(solve.KERNELS, "_module", None)
            solve.distances.cache_clear()
            assert digests_of(suite, policy) == fast


SCRIPT = """
import sys, time
from evalkit.compiled import Kernels, _mark
from evalkit.envs.scheduling import market
from evalkit.envs.scheduling.market import KERNELS, blocking, make_market
market.COMPILED_N = 1
KERNELS._after = 2
two = make_market([[0, 1], [1, 0]], [[1, 0], [0, 1]])
counts = lambda times: [blocking(two, (0, 1)).count for _ in range(times)]
{body}
"""


def said(cache: Path, body: str, **more: str) -> str:
    """What a process of its own prints, whose kernels lie in `cache`."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(body=body)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache), "NUMBA_DISABLE_JIT": "0", **more},
    )
    return done.stdout.strip()


@pytest.mark.exhaustive
def test_the_plain_twin_serves_while_another_process_compiles(tmp_path: Path) -> None:
    few = said(tmp_path, "print(counts(2), KERNELS._child, 'numba' in sys.modules)")
    assert few == "[0, 0] None False"
    assert list(tmp_path.iterdir()) == []
    body = "print(counts(4), KERNELS._child.wait(), 'numba' in sys.modules, _mark(KERNELS.name).exists())"
    assert said(tmp_path, body) == "[0, 0, 0, 0] 0 False True"
    # Now they are there: nothing is compiled, and both give the same.
    body = "before = counts(3); KERNELS._thread.join(); m = KERNELS.ready(); print(before, counts(3), m.__name__)"
    body += "; print([sum(k.stats.cache_misses.values()) for k in (m.rows_blocking, m.pick_blocking)])"
    same = "[0, 0, 0] [0, 0, 0] evalkit.envs.scheduling.kernels\n[0, 0]"
    assert said(tmp_path, body) == same
    body = "k = Kernels(KERNELS.name); print(k.ready(at_once=True) is not None)"
    assert said(tmp_path, body) == "True"
    assert said(tmp_path, body, NUMBA_DISABLE_JIT="1") == "False"


def test_where_nothing_can_be_kept_the_plain_twin_serves_for_good(tmp_path: Path) -> None:
    file = tmp_path / "a-file"
    file.touch()
    assert said(file, "print(counts(9), KERNELS._never, 'numba' in sys.modules)") == f"{[0] * 9} True False"


def test_a_compiler_that_fails_is_not_called_again(tmp_path: Path) -> None:
    body = (
        "k = Kernels('evalkit.envs.nothing'); k.ready(); c = k._child; c.wait(); k.ready(); print(k.ready(), k._never)"
    )
    assert said(tmp_path, body) == "None True"
