"""The `[decide]` table: what can be asked, and how what cannot be asked is refused."""

from pathlib import Path

import pytest

from evalkit.errors import UsageError
from evalkit.spec.sweep import read_sweep

AGENTS = '[[agents]]\npolicy = "knuth"\n[[agents]]\npolicy = "random"\n[[agents]]\npolicy = "oracle"\n'
SUITE = '[[suites]]\nname = "procurement/basic"\n'


def test_a_table_alone_asks_which_of_all_pairs_differ(tmp_path: Path) -> None:
    asked = read_sweep(_written(tmp_path, "")).decide
    assert asked is not None
    assert (asked.about, asked.pairs, asked.margin) == ("such instances", "all", 2.0)
    assert asked.precision is None


def test_every_setting_is_read(tmp_path: Path) -> None:
    asked = read_sweep(
        _written(
            tmp_path,
            'pairs = [["knuth", "random"]]\nmargin = 1\nprecision = 3',
            before="replicates = 5",
        )
    ).decide
    assert asked is not None
    assert asked.pairs == (("knuth", "random"),)
    assert (asked.about, asked.margin, asked.precision) == ("this suite", 1.0, 3.0)


def test_a_scope_asks_about_this_suite_with_one_replicate_and_about_others_with_none_but_one(tmp_path: Path) -> None:
    for scope, about in (("this suite", "this suite once"), ("such instances", "such instances")):
        asked = read_sweep(_written(tmp_path, f'scope = "{scope}"')).decide
        assert asked is not None
        assert asked.about == about
    several = read_sweep(_written(tmp_path, 'scope = "this suite"', before="replicates = 2")).decide
    assert several is not None
    assert several.about == "this suite"
    with pytest.raises(UsageError, match=r"decide\.scope: replicates say nothing about other instances"):
        read_sweep(_written(tmp_path, 'scope = "such instances"', before="replicates = 2"))


def test_one_agent_alone_may_be_asked_for_its_own_mean(tmp_path: Path) -> None:
    one = '[[agents]]\npolicy = "knuth"\n'
    asked = read_sweep(_written(tmp_path, "precision = 3", agents=one)).decide
    assert asked is not None
    assert asked.pairs == ()


@pytest.mark.parametrize(
    ("decide", "says"),
    [
        ("margin = 0", "decide.margin"),
        ("margin = -1", "decide.margin"),
        ("alpha = 0.01", "unknown key"),
        ("marginn = 1", "Did you mean 'margin'?"),
        ('pairs = "every"', 'decide.pairs: pairs is "all", "best", "baseline:NAME" with one of knuth, random'),
        ('pairs = "baseline:nobody"', "decide.pairs"),
        ('pairs = [["knuth", "knuth"]]', "decide.pairs: a pair is two of"),
        ('pairs = [["knuth", "random"], ["random", "knuth"]]', "each once"),
        ("pairs = []", "decide.pairs"),
        ("scores = [0, 1]", "unknown key"),
        ("precision = 0", "decide.precision"),
        ('scope = "all"', "decide.scope"),
    ],
)
def test_what_cannot_be_asked_names_its_key(tmp_path: Path, decide: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_sweep(_written(tmp_path, decide))
    assert says in str(refused.value)
    assert "mine.toml" in str(refused.value)


def _written(folder: Path, decide: str, *, before: str = "", agents: str = AGENTS) -> Path:
    path = folder / "mine.toml"
    path.write_text(f"{before}\n[decide]\n{decide}\n{agents}{SUITE}")
    return path
