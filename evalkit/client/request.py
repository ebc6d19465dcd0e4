"""The requests of one agent, and what one of them can cost at most. Pure: no lane, money or connection is needed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from evalkit.client.ask import Question
from evalkit.dialogue import Message, Sampling, Tool, ToolChoice
from evalkit.money import PicoUsd, Price
from evalkit.spec.model import Model, Provider, StreamSetting
from evalkit.wire.dialect import Dialect, Quirks
from evalkit.wire.table import DIALECTS

BYTES_OF_TOKEN = 32
"""No chat has so many bytes per token on average; text has about four."""
USUAL_OPENING = 1 << 16
"""Bytes of the first messages of a chat that count as usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTemplate:
    """The constant parts of one agent's requests."""

    agent: str
    provider: str
    model: str
    dialect: Dialect
    quirks: Quirks
    sampling: Sampling
    price: Price
    window: int | None = None
    """Tokens of the model's context, where they are known."""
    cache_key: bool = False
    """Whether they name their episode, so that those of one find the same prompt cache."""
    key: str
    """Where the key comes from, in words: for messages."""
    billed: Mapping[str, bool] = field(default_factory=dict)
    """By outcome without a reply: whether the provider bills it, if that differs from the table for all
    (`wire/http.py`)."""
    stream: StreamSetting = "off"
    """Whether its replies are streamed (`retry.py`)."""
    context_tokens: int | None = None
    """The model's window, if it is known."""
    _heads: dict[ToolChoice | None, bytes] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Heads that were asked for."""

    def join(self, parts: list[bytes], messages: Sequence[Message]) -> None:
        """Append messages to the encoded parts of their chat."""
        self.dialect.join(parts, messages, self.quirks)

    def encode_tools(self, tools: tuple[Tool, ...]) -> bytes:
        """A tool list."""
        return self.dialect.encode_tools(tools)

    def head(self, choice: ToolChoice | None = None) -> bytes:
        """The part that all its bodies share; with `choice`, the part of bodies with another tool choice."""
        head = self._heads.get(choice)
        if head is None:
            sampling = self.sampling if choice is None else replace(self.sampling, tool_choice=choice)
            head = self._heads[choice] = self.dialect.head(self.model, sampling, self.quirks)
        return head

    def body(self, question: Question) -> bytes:
        """The complete request body."""
        seed, own = None, self.sampling.seed
        if own is not False and "seed" not in self.quirks.refuses | self.dialect.lacks:
            seed = question.seed if own is None else own
        head = self.head(question.choice)
        if self.cache_key and self.dialect.cache_key:
            # An episode's id is hexadecimal digits: nothing in it needs escaping.
            head = b'{"%b":"%b",%b' % (self.dialect.cache_key.encode(), question.episode.encode(), head[1:])
        return self.dialect.body(head, question.tools, question.messages, seed)

    def bound(self, body_bytes: int) -> PicoUsd:
        """The most that one attempt with a body of this many bytes can cost."""
        input_tokens = body_bytes + self.dialect.overhead_tokens
        return self.price.worst(input_tokens=input_tokens, output_tokens=self.sampling.max_tokens)

    def outgrows_window(self, body_bytes: int) -> bool:
        """Whether a body of this many bytes cannot fit into the model's window, whatever its text is."""
        return self.window is not None and body_bytes > BYTES_OF_TOKEN * self.window

    def usual_bound(self, question: Question, body_bytes: int) -> PicoUsd:
        """The most that the request can have cost which opened the chat; of an opening of its own, only what is usual
        counts."""
        opening = sum(len(part) for part in question.messages[:2])
        rest = sum(len(part) for part in question.messages[2:])
        return self.bound(body_bytes - rest - max(0, opening - USUAL_OPENING))

    def worst_case(self, question: Question) -> PicoUsd:
        """The most that one attempt at this question can cost."""
        return self.bound(len(self.body(question)))


def request_template(
    agent: str,
    *,
    provider: Provider,
    model: Model,
    sampling: Sampling,
    price: Price,
    stream: StreamSetting = "off",
) -> RequestTemplate:
    """The requests of one agent in one environment, from the catalogue's values.

    `sampling`: an environment's defaults under the agent's overrides. `price`: the run's frozen one. `stream`: the
    provider's setting.
    """
    return RequestTemplate(
        agent=agent,
        provider=provider.name,
        model=model.name,
        dialect=DIALECTS[provider.dialect],
        quirks=model.quirks,
        sampling=sampling,
        price=price,
        window=model.context_tokens,
        cache_key=provider.cache_key,
        key=provider.key_words,
        billed=provider.billed,
        stream=stream,
        context_tokens=model.context_tokens,
    )
