"""The policies that do errands, by name."""

from collections.abc import Mapping

from evalkit.policy.errand.clerk import clerk
from evalkit.policy.record import Policy

POLICIES: Mapping[str, Policy] = {
    "clerk": Policy(
        help="answers errands in a fixed form: no wishes conflict, and every line with an arrow is a path", reply=clerk
    ),
}
