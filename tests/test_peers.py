"""The comparison with Inspect AI, as far as it needs no Inspect: evalkit is measured, and killed and resumed."""

import json
import sys
from types import SimpleNamespace

import pytest

from bench.peers import PEERS, Peer, _result, bought_again, measured

pytestmark = pytest.mark.exhaustive

WANTED = {"EPISODES": "6", "TURNS": "10", "CONC": "3"}


def test_a_killed_and_resumed_job_buys_again_only_what_was_in_flight() -> None:
    again = bought_again(PEERS[0], sys.executable, WANTED)
    assert again <= int(WANTED["CONC"])


def test_every_figure_is_measured() -> None:
    found = measured(PEERS[0], sys.executable, WANTED)
    assert min(found.cpu_ms, found.per_s, found.peak_mb, found.log_mb) > 0


def test_a_client_that_does_not_answer_all_is_refused() -> None:
    peer = Peer(name="a client", file="x.py")
    said = f"RESULT {json.dumps(SimpleNamespace(ok=5).__dict__)}\n"
    with pytest.raises(RuntimeError, match="a client ended with 0, 5 episodes answered"):
        _result(peer, said, 0, WANTED)
