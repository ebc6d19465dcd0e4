from hypothesis import given
from hypothesis import strategies as st

from evalkit.wire.fields import call_ids


@given(st.lists(st.sampled_from(["", "a", "b", "call_0", "call_1", "call_1_", "call_2"]), max_size=6))
def test_calls_have_ids_of_their_own_and_keep_what_they_came_with(given: list[str]) -> None:
    found = call_ids(given)
    assert len(set(found)) == len(found) == len(given)
    assert all(found)
    for place, own in enumerate(given):
        if own and own not in given[:place]:
            assert found[place] == own
        else:
            assert found[place].rstrip("_") == f"call_{place}"
    assert call_ids(found) == found
