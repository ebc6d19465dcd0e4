"""What a request will use, guessed from its size and from the replies so far. Arithmetic only."""

from evalkit.client.lanes.buckets import Need
from evalkit.dialogue import Usage

FIRST_TOKENS_PER_BYTE = 0.25
"""Of a request body, until replies have shown the true ratio."""
_LEARN = 0.1
"""Weight of the newest reply in the running estimates."""


class TokenEstimate:
    """Input tokens per byte sent, and output tokens, of one lane's requests."""

    __slots__ = ("_output", "_tokens_per_byte")

    def __init__(self) -> None:
        self._tokens_per_byte = FIRST_TOKENS_PER_BYTE
        self._output: float | None = None

    def need(self, body_bytes: int, max_tokens: int) -> Need:
        """The estimate for a request; `max_tokens` bounds its reply, and is used as its estimate until a reply is
        known."""
        blind = self._output is None
        output = max_tokens if self._output is None else min(self._output, max_tokens)
        return Need(input=body_bytes * self._tokens_per_byte, output=float(output), blind=blind)

    def learn(self, body_bytes: int, booked: Need, usage: Usage) -> Need:
        """Learn from what a request of that size has used. If its input was not counted (0), the booking is used
        instead."""
        if usage.input:
            self._tokens_per_byte += _LEARN * (usage.input / body_bytes - self._tokens_per_byte)
        before = usage.output if self._output is None else self._output
        self._output = before + _LEARN * (usage.output - before)
        return Need(input=usage.input or booked.input, output=usage.output)
