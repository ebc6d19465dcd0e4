"""The benchmark of throughput measures what it says: whole conversations, counted by the server."""

import json
from pathlib import Path

import pytest

from bench import stub, throughput
from bench.throughput import TURNS, Job, compare, measure

SMALL = Job(episodes=6, in_flight=3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("client", ["floor.py", "driver.py"])
def test_both_clients_hold_every_conversation_to_its_end(client: str) -> None:
    found = measure(client, SMALL)
    assert found.fault == ""
    assert found.cpu_ms > 0
    assert found.per_s > 0
    assert found.peak_mb > 5


def test_a_client_that_does_nothing_does_not_count() -> None:
    found = measure("job.py", SMALL)
    assert "job.py ended with 0: 0 of 6 episodes answered, with 0 requests instead of 60" in found.fault


def test_a_comparison_shows_ratios_with_their_range(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu_ms = {"floor.py": iter([1.0, 3.0, 1.0]), "driver.py": iter([3.0, 4.4])}

    def found(client: str, job: Job) -> throughput.Round:
        return throughput.Round(cpu_ms=next(cpu_ms[client]), per_s=100.0, peak_mb=50.0, fault="")

    monkeypatch.setattr(throughput, "measure", found)
    assert not compare(SMALL, 2, least_rate=0.7)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("CPU"))
    assert line.split()[4:] == ["1.000", "3.700", "1.85", "1.50", "to", "2.20", "<=", "1.8"]


def test_the_server_ends_a_conversation_after_its_turns() -> None:
    server = stub.Server(turns=3, latency_s=0.0)

    def ask(results: int) -> dict[str, object]:
        said = [{"role": "user", "content": "episode-000007"}, *[{"role": "tool", "content": ""}] * results]
        head, _, body = server.asked(json.dumps({"model": "m", "messages": said}).encode()).partition(b"\r\n\r\n")
        server.sent()
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert f"Content-Length: {len(body)}".encode() in head
        choice: dict[str, object] = json.loads(body)["choices"][0]
        return choice

    assert [ask(results)["finish_reason"] for results in range(3)] == ["tool_calls", "tool_calls", "stop"]
    assert (server.counts.requests, server.counts.finals, server.counts.repeated) == (3, 1, 0)
    ask(1)
    assert server.counts.repeated == 1
    assert server.in_flight == 0


def test_the_server_refuses_what_is_no_chat() -> None:
    assert stub.Server(turns=TURNS, latency_s=0.0).asked(b"{").startswith(b"HTTP/1.1 400")


def test_every_client_named_for_other_harnesses_exists() -> None:
    folder = Path(throughput.__file__).parent
    systems = json.loads((folder / "systems.json").read_text())
    assert {entry["driver"] for entry in systems.values()} == {"driver.py", "floor.py"}
    assert all((folder / entry["driver"]).is_file() for entry in systems.values())
