"""A key in a file is refused, and the message does not repeat it."""

from pathlib import Path

import pytest

from evalkit.errors import UsageError
from evalkit.shipped import folders
from evalkit.spec.catalogue import ProviderFile
from evalkit.spec.reading import read_toml
from evalkit.spec.sweep import SweepFile, read_sweep

KEY = "sk-proj-Planted0123456789abcdef"
PROVIDER = 'dialect = "openai_chat"\nurl = "https://api.example.com/v1"\n'
SWEEP = '[[agents]]\nname = "a"\nprovider = "openai"\nmodel = "m"\n{}\n[[suites]]\nname = "scheduling/basic"\n'


@pytest.mark.parametrize(
    "line",
    [
        f'key = "{KEY}"',
        'api_key = "plain words"',
        f'key_env = "{KEY}"',
        'key_env = "AIzaSyPlanted0123456789abcdefghijk"',
        'key_env = "my key"',
        f'[headers]\nAuthorization = "Bearer {KEY}"',
        f'[models."{KEY}"]\nprice_as = "m"',
        f"{KEY} = 1",
    ],
    ids=["key", "name", "pasted", "google", "words", "header", "model", "bare"],
)
def test_a_provider_file_with_a_key_is_refused_without_repeating_it(tmp_path: Path, line: str) -> None:
    path = tmp_path / "acme.toml"
    path.write_text(f"{PROVIDER}{line}\n")
    with pytest.raises(UsageError) as flaw:
        read_toml(path, ProviderFile)
    said = str(flaw.value)
    assert str(path) in said
    assert "key" in said
    assert "Planted" not in said


@pytest.mark.parametrize(
    "line",
    [
        f'key = "{KEY}"',
        'extra = { extra_headers = { Authorization = "Basic abc" } }',
        f'extra = {{ metadata = {{ note = ["see {KEY}"] }} }}',
    ],
    ids=["key", "header", "nested"],
)
def test_a_sweep_with_a_key_is_refused_without_repeating_it(tmp_path: Path, line: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SWEEP.format(line))
    with pytest.raises(UsageError, match="seems to contain a key") as flaw:
        read_sweep(path)
    assert "Planted" not in str(flaw.value)
    assert "abc" not in str(flaw.value)


def test_a_url_with_a_key_in_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "acme.toml"
    path.write_text(f'dialect = "openai_chat"\nurl = "https://api.example.com/v1?key={KEY}"\n')
    with pytest.raises(UsageError, match="url seems to contain a key"):
        read_toml(path, ProviderFile)


def test_no_shipped_file_is_taken_for_one_with_a_key() -> None:
    found: list[tuple[Path, type[ProviderFile | SweepFile]]]
    found = [(path, ProviderFile) for folder in folders("providers") for path in folder.glob("*.toml")]
    found += [(path, SweepFile) for folder in folders("runs") for path in folder.glob("*.toml")]
    assert len(found) > 5
    for path, kind in found:
        read_toml(path, kind)


@pytest.mark.parametrize(
    "line",
    ['key_env = "ACME_KEY"', '[simulate]\nkey = "open sesame"', 'credentials = "aws"'],
)
def test_what_only_names_a_key_is_read(tmp_path: Path, line: str) -> None:
    path = tmp_path / "acme.toml"
    path.write_text(f"{PROVIDER}{line}\n")
    assert read_toml(path, ProviderFile).dialect == "openai_chat"
