"""The policies that do errands, by name."""

from collections.abc import Mapping

from evalkit.policy.errand.clerk import clerk
from evalkit.policy.record import Policy

POLICIES: Mapping[str, Policy] = {
    "clerk": Policy(
        help="does errands in a fixed form: no wish conflicts, every line with an arrow is a path", reply=clerk
    ),
}
