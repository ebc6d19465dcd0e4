"""Which requests the servers of this machine answer: one guard for pages, gateway and MCP."""

from evalkit.loopback import refusal

OWN = ("127.0.0.1", "127.0.0.1:80", "localhost", "localhost:65535", "LocalHost:8080")
FOREIGN = (
    *(
        "",
        "evil",
        "evil:80",
        "127.0.0.1.evil:80",
        "127.0.0.1:evil",
        "127.0.0.1:80@evil",
        "127.0.0.1:",
        "127.0.0.1:123456",
    ),
    *(
        "evil@127.0.0.1",
        "127.0.0.1@evil",
        "127.0.0.1:80:80",
        "127.0.0.1:80/",
        "127.0.0.1:80#",
        "127.0.0.1\n",
        "[::1]:80",
    ),
    *(
        "localhost.evil",
        "evil.localhost",
        "localhost:\u0661",
        "127.0.0.1,evil",
        " 127.0.0.1",
        "127.0.0.1:1@evil",
        "0.0.0.0",
    ),
)


def test_only_own_names_are_answered() -> None:
    assert [host for host in OWN if refusal([host], [])] == []
    assert [host for host in FOREIGN if not refusal([host], [])] == []
    assert refusal([], [])
    assert refusal(["127.0.0.1", "127.0.0.1"], [])


def test_no_other_site_is_answered() -> None:
    assert [host for host in OWN if refusal(["127.0.0.1"], [f"http://{host}"])] == []
    foreign = [
        *(f"http://{host}" for host in FOREIGN),
        "null",
        "",
        "127.0.0.1",
        "https://127.0.0.1",
        "file://localhost",
    ]
    assert [origin for origin in foreign if not refusal(["127.0.0.1"], [origin])] == []
    assert refusal(["127.0.0.1"], ["http://127.0.0.1", "http://evil"])
