"""What `evalkit.extend` gives to packages that bring environments, policies and dialects."""

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from evalkit import extend

PROJECT = Path(__file__).resolve().parent.parent.parent


def test_the_list_of_names_is_what_there_is() -> None:
    assert set(extend.__all__) <= set(dir(extend))
    assert sorted(name for names in extend._PLACES.values() for name in names) == sorted(extend.__all__)
    for place, names in extend._PLACES.items():
        for name in names:
            assert getattr(extend, name) is getattr(importlib.import_module(place), name)


def test_its_page_names_all_of_them() -> None:
    words = set((extend.__doc__ or "").replace(",", " ").split())
    assert set(extend.__all__) <= words


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match=r"'evalkit\.extend' has no attribute 'sweep'"):
        getattr(extend, "sweep")  # noqa: B009


def test_an_environment_s_names_load_no_reports() -> None:
    script = (
        "import sys; from evalkit import Environment, Score; from evalkit.extend import Observation, Stream, checked\n"
        "print(*(name for name in sys.modules if name.startswith(('evalkit.report', 'evalkit.store', 'pyarrow'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert done.stdout.split() == []


def test_its_example_holds() -> None:
    assert doctest.testmod(extend).failed == 0
