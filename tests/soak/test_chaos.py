"""Faults, limits, kills and budgets at once: complete in the end, never beyond limits or budget, every dollar accounted
for at every instant."""

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from evalkit.store.reading.accounts import accounts, spent
from evalkit.store.reading.index import read_index
from tests.soak.chaos import FAULTS, LIMITS, Chaos

MOST_RECONCILED = 1.1
"""Books over bill, once the provider's account stands for the bounds of attempts whose usage it did not state."""


def check(chaos: Chaos) -> None:
    """What holds of a sweep that has come to its end."""
    assert chaos.over_limit() == []
    assert chaos.mispriced() == []
    index = read_index(chaos.run)
    assert len(index.episodes) == chaos.episodes
    billed = sum(line["cost"] for line in chaos.bill())
    total = spent(index.totals["cost"], accounts(index.ledger, index.cost_by_worker).values())
    assert billed <= total <= chaos.budget
    evalkit(chaos, "verify", "run")
    kinds = Counter(line["outcome"] for line in chaos.bill())
    print(
        f"{chaos.episodes} episodes, {chaos.lives} lives, {chaos.kills} kills, out of money {chaos.ran_out} times, "
        f"{chaos.looks} looks, {sum(kinds.values())} requests, {chaos.held_back()} steps held back by limits, "
        f"bill {billed / 1e12:.4f}, counted {total / 1e12:.4f} USD"
    )
    print(", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    excess = chaos.excess()
    print(f"books over bill: {total / billed:.2f}; of the excess of {(total - billed) / 1e12:.4f} USD:")
    for cause, (charged, paid) in excess.items():
        print(f"  {cause:24} {(charged - paid) / 1e12:8.4f}  (charged {charged / 1e12:.4f}, billed {paid / 1e12:.4f})")
    assert sum(charged - paid for charged, paid in excess.values()) == total - billed, "an excess without a cause"
    account = ("--spent", f"{billed / 1e12:.12f}", "--json")
    after = json.loads(evalkit(chaos, "tools", "reconcile", "run", *account))["after_pico_usd"]
    print(f"books over bill, reconciled with the provider's account: {after / billed:.3f}")
    assert billed <= after <= MOST_RECONCILED * billed


def evalkit(chaos: Chaos, *words: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "evalkit", *words]
    done = subprocess.run(command, cwd=chaos.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.exhaustive
def test_a_small_chaos_is_survived(tmp_path: Path) -> None:
    limits = {"rpm": 6000, "itpm": 4_000_000, "otpm": 400_000}
    chaos = Chaos(
        folder=tmp_path / "c", width=8, replicates=1, instances=6, periods=2, limits=limits, draw=random.Random(1)
    )
    chaos.write_spec()
    chaos.finish(kills=1, budgets=[3 * 10**11, 10**13, 10**14])
    check(chaos)
    assert chaos.kills == 1


@pytest.mark.soak
def test_a_great_chaos_is_survived(tmp_path: Path) -> None:
    chaos = Chaos(
        folder=tmp_path / "c", width=24, replicates=14, instances=12, periods=3, limits=LIMITS, draw=random.Random(2)
    )
    chaos.write_spec()
    assert chaos.episodes >= 500
    chaos.finish(kills=10, budgets=[4 * 10**12, 10**13, 10**15])
    check(chaos)
    assert (chaos.kills, chaos.ran_out) == (10, 2)
    seen = {line["outcome"] for line in chaos.bill()}
    assert chaos.held_back() > 500, "the limits were not felt"
    assert {kind for faults in FAULTS for kind in faults} - seen == set()
