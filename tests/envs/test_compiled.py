"""Compiled kernels in the main path: the same values, loaded only where they pay, never compiled in a run."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Request
from evalkit.envs import compiled
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import Terms, World, make_world
from evalkit.envs.costbench.planning import solve
from evalkit.envs.environment import Environment, Kit
from evalkit.envs.replay import advance, begin
from evalkit.envs.scheduling import market as markets
from evalkit.envs.scheduling.market import SchedulingMarket, blocking, make_market
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.policy.answer import answer
from evalkit.policy.table import player
from evalkit.replies import encode_reply
from evalkit.spec.packs import read_pack
from evalkit.spec.suites import find_suite, read_lines
from tests.support.compiled_loops import needs_numba

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels, as if they had been loaded; they compile at their first call."""
    for name, env in ENVIRONMENTS.items():
        if env.kernels:
            monkeypatch.setitem(compiled.LOADED, name, import_module(env.kernels))


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
    for loaded in ({}, {"scheduling": import_module(ENVIRONMENTS["scheduling"].kernels)}):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(markets, "LOADED", loaded)
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
    assert solve._compiled_distances(import_module(ENVIRONMENTS["costbench"].kernels), world, terms) == plain
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
            patch.setattr(compiled, "LOADED", {})
            patch.setattr(markets, "LOADED", {})
            patch.setattr(solve, "LOADED", {})
            solve.distances.cache_clear()
            assert digests_of(suite, policy) == fast


@pytest.fixture
def weighed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Calls of `load`, which do nothing."""
    asked: list[bool] = []
    monkeypatch.setattr(compiled, "load", lambda environments: asked.append(True) or True)
    return asked


def test_kernels_are_loaded_for_work_that_gains_more_than_they_cost(weighed: list[bool]) -> None:
    scheduling, costbench, pricing = (ENVIRONMENTS[name] for name in ("scheduling", "costbench", "pricing"))
    hard, wide, chain = {"n": 50}, {"n": 1000}, {"length": 8, "blocks": 1}
    works: tuple[list[tuple[Environment[Any, Any], Mapping[str, object], float]], ...] = (
        [],
        [(scheduling, hard, 12 * 100.0)],
        [(scheduling, hard, 10_000.0), (costbench, chain, 10_000.0), (pricing, {"n": 10}, 1e9)],
        [(costbench, {"length": 5}, 1e9)],
        [(scheduling, {"n": "many"}, 1e9), (costbench, {"length": None, "blocks": "none"}, 1e9), (scheduling, {}, 1e9)],
    )
    for work in works:
        assert not compiled.load_for(work)
        assert not weighed
    works = ([(scheduling, hard, 1e6)], [(scheduling, wide, 5000.0)], [(costbench, chain, 1e6)])
    for work in works:
        assert compiled.load_for(work)
    assert len(weighed) == 3


SCRIPT = """
import sys
from evalkit.envs import compiled
from evalkit.envs.table import ENVIRONMENTS
ALL = list(ENVIRONMENTS.values())
S = ENVIRONMENTS["scheduling"]
from evalkit.envs.scheduling.market import blocking, make_market
import evalkit.envs.costbench.planning.solve
{body}
"""


def said(cache: Path, body: str) -> list[str]:
    """What a process of its own prints, whose kernels lie in `cache`."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(body=body)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "0"},
    )
    return done.stdout.split()


COMPILED_NOTHING = "print([bool(k.stats.cache_misses) or k._can_compile for k in (m.rows_blocking, m.pick_blocking)])"
USE = "market = make_market([[0, 1], [1, 0]], [[1, 0], [0, 1]]); print(blocking(market, (0, 1)).count)"


def test_a_cold_cache_leaves_the_plain_path_and_numba_alone(tmp_path: Path) -> None:
    body = f"print(compiled.load(ALL), 'numba' in sys.modules); {USE}; print('numba' in sys.modules)"
    assert said(tmp_path, body) == ["False", "False", "0", "False"]


@pytest.mark.exhaustive
def test_a_warm_cache_is_loaded_without_compiling_and_a_stale_one_is_left(tmp_path: Path) -> None:
    assert said(tmp_path, "print(len(list(compiled.compile_steps(ALL))), compiled.ready(S))") == ["3", "True"]
    body = f"print(compiled.load(ALL)); m = compiled.LOADED['scheduling']; {USE}; {COMPILED_NOTHING}"
    assert said(tmp_path, body) == ["True", "0", "[False,", "False]"]
    # The mark is there, the code is not: nothing is compiled, nothing is loaded.
    for path in tmp_path.rglob("*.nbi"):
        path.unlink()
    assert said(tmp_path, f"print(compiled.ready(S), compiled.load(ALL)); {USE}") == ["True", "False", "0"]
    # Other versions made it.
    mark = tmp_path / compiled._MARK
    mark.write_text(mark.read_text().replace(sys.version[:4], "3.0"))
    assert said(tmp_path, "print(compiled.ready(S), compiled.load(ALL), 'numba' in sys.modules)") == ["False"] * 3
    mark.write_text("[")
    assert said(tmp_path, "print(compiled.ready(S))") == ["False"]


FOREIGN = """
import numpy as np
from numba import njit
from evalkit.envs.compiled import keep_in_folder

keep_in_folder(__file__)
twice = njit(cache=True)(lambda values: values * 2)

def samples():
    return {"twice": (np.zeros(1, np.int64),)}
"""


@pytest.mark.exhaustive
def test_a_foreign_environments_kernels_are_compiled_ahead_and_loaded(tmp_path: Path) -> None:
    place = tmp_path / "site" / "far_away"
    place.mkdir(parents=True)
    (place / "__init__.py").touch()
    (place / "kernels.py").write_text(FOREIGN)
    begin = f"sys.path.insert(0, {str(place.parent)!r}); from dataclasses import replace; import numpy; "
    begin += "env = replace(S, name='far', kernels='far_away.kernels'); "
    cache = tmp_path / "cache"
    cold = said(cache, begin + "print(compiled.ready(env), list(compiled.compile_steps([env])), compiled.ready(env))")
    assert " ".join(cold) == "False [('far', 'twice')] True"
    warm = "print(compiled.ready(S), compiled.load([env]), *compiled.LOADED); k = compiled.LOADED['far'].twice; "
    warm += "print(k(numpy.ones(1, numpy.int64)), bool(k.stats.cache_misses) or k._can_compile)"
    assert said(cache, begin + warm) == ["False", "True", "far", "[2]", "False"]
    (place / "other.py").write_text("# a file that a kernel may be of")
    assert said(cache, begin + "print(compiled.load([env]))") == ["False"]
    assert said(cache, begin + "print(compiled.load_for([(env, {'n': 1000}, 1e9)]))") == ["False"]


def test_kernels_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    env = replace(ENVIRONMENTS["scheduling"], name="far", kernels="far_away.nothing")
    with pytest.raises(UsageError, match=r"far: kernels: 'far_away.nothing' cannot be imported"):
        list(compiled.compile_all([env]))
    assert not compiled.ready(env)


def test_the_folder_is_the_users_own_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert compiled.folder() == Path("/somewhere/evalkit/kernels")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert compiled.folder() == Path.home() / ".cache/evalkit/kernels"
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/elsewhere")
    assert compiled.folder() == Path("/elsewhere")
