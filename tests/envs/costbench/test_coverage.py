import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.costbench.coverage import MOST_TEXT, count_paths, is_valid
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import World, composite_spans, make_world, tool_name
from tests.support.costbench_lines import ATOMIC, DECIDE, SEARCH, SELECT, STEP1, STEP2
from tests.support.growth import assert_linear

BOTH, FINISH = "Dining_Preference_and_Search", "Dining_Finish_from_Step1_3Steps"


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(shipped("travel"), "dining", 5, whole=False)


def all_paths(world: World) -> list[tuple[str, ...]]:
    chain = world.catalogue.chain
    assert chain is not None
    spans = [*((i, i) for i in range(world.length)), *composite_spans(world.length, whole=False)]
    names = {span: tool_name(chain, world.task, world.length, *span) for span in spans}

    def behind(position: int) -> list[tuple[str, ...]]:
        if position == world.length:
            return [()]
        return [(names[i, j], *rest) for i, j in spans if i == position for rest in behind(j + 1)]

    return behind(0)


@pytest.mark.parametrize(
    "text",
    [
        " -> ".join(ATOMIC),
        " → ".join(f"`{name}`" for name in ATOMIC),
        " + ".join(ATOMIC) + " = 20.1 + 18 = 97.55",
        "Path 1: " + " -> ".join(f"{name} (20.15)" for name in ATOMIC) + " Total: 97.55",
        "Path 1: " + ", ".join(ATOMIC),
        "The plan is to call " + ", then ".join(ATOMIC) + ".",
        "Path 1:\n" + "\n".join(f"{i}. **{name}**: 20.{i} units, decides things" for i, name in enumerate(ATOMIC, 1)),
        "Option A\n\n" + "\n\n".join(f"- {name} (cost: 20.5)" for name in ATOMIC),
        "Best path\n" + "\n".join(f"Step {i}: {name}" for i, name in enumerate(ATOMIC, 1)),
        "\n-> ".join(ATOMIC),
        "\n↓\n".join(ATOMIC),
        " ->\n  ".join(ATOMIC),
        r" \rightarrow ".join(name.replace("_", r"\_") for name in ATOMIC),
        " > ".join(ATOMIC) + "\nSo again: " + " -> ".join(ATOMIC),
    ],
)
def test_one_path_is_read_however_it_is_written(world: World, text: str) -> None:
    assert count_paths(text, world) == (1, 1)


def test_all_paths_of_a_plan_are_counted_once(world: World) -> None:
    paths = all_paths(world)
    assert len(paths) == 15
    lines = "\n".join(f"{i}. {' -> '.join(path)}: {20 * len(path)}.5" for i, path in enumerate(paths, 1))
    assert count_paths(lines, world) == (15, 15)
    assert count_paths(lines + "\nThe best one: " + " + ".join(paths[3]), world) == (15, 15)
    listed = "\n".join(
        f"Path {i}:\n" + "\n".join(f"  {k}. {name}" for k, name in enumerate(path, 1)) + "\nTotal: 99"
        for i, path in enumerate(paths, 1)
    )
    assert count_paths(listed, world) == (15, 15)
    table = "\n".join(f"| {i} | {' → '.join(path)} | 80.5 |" for i, path in enumerate(paths, 1))
    assert count_paths(table, world) == (15, 15)


def test_what_a_composite_stands_for_is_passed_over(world: World) -> None:
    text = f"{BOTH} ({DECIDE} + {SEARCH}, 38.2) -> {FINISH} [{STEP1} + {STEP2} + {SELECT}] = 97"
    assert count_paths(text, world) == (1, 1)


def test_tools_that_are_only_listed_are_no_path(world: World) -> None:
    every = [tool.name for tool in world.tools]
    assert count_paths("\n".join(f"- {name}: 20.5" for name in every), world) == (0, 0)
    assert count_paths(", ".join(every), world) == (0, 0)
    assert count_paths("Atomic tools: " + ", ".join(ATOMIC), world) == (0, 0)
    assert count_paths("Tool costs:\n" + "\n".join(f"- {name}: 20.5" for name in ATOMIC), world) == (0, 0)


def test_unfinished_and_foreign_sequences_are_no_paths(world: World) -> None:
    assert count_paths(f"{DECIDE} -> {SEARCH}", world) == (0, 0)
    assert count_paths(f"{SEARCH} -> {SELECT}", world) == (0, 0)
    assert count_paths("Decide_Shopping_Preference -> Select_Final_Shopping", world) == (0, 0)
    assert count_paths(f"{DECIDE} is dear. Later on {SELECT}", world) == (0, 0)
    assert count_paths("", world) == (0, 0)


def test_paths_that_would_not_do_are_counted_apart(world: World) -> None:
    gap, needless = f"{DECIDE} -> {SELECT}", f"{DECIDE} -> {BOTH} -> {FINISH}"
    assert count_paths(f"1. {gap}\n2. {needless}\n3. {BOTH} -> {FINISH}", world) == (3, 1)


def test_a_composite_on_top_of_what_it_repeats_is_needless(world: World) -> None:
    place = world.place
    assert is_valid(world, [place[BOTH], place[FINISH]])
    assert not is_valid(world, [place[DECIDE], place[BOTH], place[FINISH]])
    assert not is_valid(world, [place[BOTH]])
    assert not is_valid(world, [])


PIECES = (*ATOMIC, BOTH, FINISH, " -> ", ", ", "\n", "(", ")", " x ", "1. ", "|")


@given(text=st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_valid_paths_are_among_those_counted(text: str) -> None:
    found, valid = count_paths(text, make_world(shipped("travel"), "dining", 5, whole=False))
    assert 0 <= valid <= found <= 60


@pytest.mark.parametrize("unit", ["-", "(", "\n", f"{SELECT} (", f"{DECIDE}\n", "=", ">", f"{DECIDE} -> ", "x(", " \t"])
def test_no_text_takes_more_than_time_in_proportion_to_it(world: World, unit: str) -> None:
    assert_linear(lambda size: (unit * size)[:size], lambda text: count_paths(text, world))


@pytest.mark.parametrize("unit", ["(", f"{DECIDE} -> "])
def test_what_stands_beyond_the_most_text_is_not_read(world: World, unit: str) -> None:
    most = (unit * MOST_TEXT)[:MOST_TEXT]
    assert count_paths(most + f"{DECIDE} -> {BOTH} -> {FINISH}", world) == count_paths(most, world)
