"""The requests of one agent, and what one of them can cost at most. Pure: no lane, money or connection is needed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from evalkit.client.ask import Question
from evalkit.dialogue import Message, Sampling, Tool, ToolChoice
from evalkit.money import FLEX, PRIORITY, STANDARD, TIERS, PicoUsd, Price, Tier
from evalkit.spec.model import Model, Provider, StreamSetting
from evalkit.wire.dialect import GEO, Dialect
from evalkit.wire.table import DIALECTS

BYTES_OF_TOKEN = 32
"""No chat has so many bytes per token on average; text has about four."""
UNSAID = ("", "auto", "unspecified", "traffic_type_unspecified")
"""In a reply's place for its tier: words that name none."""
SPOKEN_TIERS: Mapping[str, Tier] = {
    **{tier: tier for tier in TIERS},
    **dict.fromkeys(("default", "on_demand", "standard_only", "provisioned_throughput"), STANDARD),
    "on_demand_flex": FLEX,
    **dict.fromkeys(("fast", "on_demand_priority"), PRIORITY),
}
"""What replies call the tiers. Capacity that was bought beforehand costs a request nothing: it counts as the standard
tier. Source: https://developers.openai.com/api/docs/api-reference/chat/create (`service_tier`),
https://console.groq.com/docs/service-tiers, https://openrouter.ai/docs/guides/features/service-tiers,
https://docs.cloud.google.com/vertex-ai/generative-ai/docs/reference/rest/v1/GenerateContentResponse (`trafficType`)."""
USUAL_OPENING = 1 << 16
"""Bytes of the first messages of a chat that count as usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTemplate:
    """The constant parts of one agent's requests."""

    agent: str
    provider: Provider
    model: Model
    dialect: Dialect
    sampling: Sampling
    price: Price
    billed: Mapping[str, bool] = field(default_factory=dict)
    """By outcome without a reply: whether the provider bills it, if that differs from the table for all
    (`wire/http.py`)."""
    stream: StreamSetting = "off"
    """Whether its replies are streamed (`retry.py`)."""
    tiers: tuple[Tier, ...] = (STANDARD,)
    """Those that requests go by, in order of preference."""
    tier_prices: Mapping[Tier, Price] = field(default_factory=dict)
    """Of those that the provider sells, the standard one aside: any may serve a request."""
    cache: str = ""
    """How long they ask for the prompt cache to last; the prices are those of that."""
    _heads: dict[tuple[ToolChoice | None, Tier], bytes] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Heads that were asked for."""
    _rates: dict[Tier, tuple[Price, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def geo(self) -> str:
        """Where requests ask to be answered; empty: they do not say."""
        return geo_of(self.provider, self.model)

    @property
    def window(self) -> int | None:
        """Tokens of the model's context, where they are known."""
        return self.model.context_tokens

    def join(self, parts: list[bytes], messages: Sequence[Message]) -> None:
        """Append messages to the encoded parts of their chat."""
        self.dialect.join(parts, messages, self.model.quirks)

    def encode_tools(self, tools: tuple[Tool, ...]) -> bytes:
        """A tool list."""
        return self.dialect.encode_tools(tools)

    def head(self, choice: ToolChoice | None = None, tier: Tier = STANDARD) -> bytes:
        """The part that all its bodies of a tier share; with `choice`, the part of bodies with another tool choice."""
        head = self._heads.get((choice, tier))
        if head is None:
            sampling = self.sampling if choice is None else replace(self.sampling, tool_choice=choice)
            head = self.dialect.head(self.model.name, sampling, self.model.quirks)
            head = naming(head, self.dialect, self.provider.service_tiers.get(tier, ""), self.geo)
            self._heads[choice, tier] = head
        return head

    def body(self, question: Question, tier: Tier = "") -> bytes:
        """The complete request body; without `tier` that of the tier which comes first."""
        seed, own = None, self.sampling.seed
        if own is not False and "seed" not in self.model.quirks.refuses | self.dialect.lacks:
            seed = question.seed if own is None else own
        head = self.head(question.choice, tier or self.tiers[0])
        if self.provider.cache_key and self.dialect.cache_key:
            # An episode's id is hexadecimal digits: nothing in it needs escaping.
            head = b'{"%b":"%b",%b' % (self.dialect.cache_key.encode(), question.episode.encode(), head[1:])
        body = self.dialect.body(head, question.tools, question.messages, seed)
        return self.dialect.caches[self.cache].ask(body) if self.cache in self.dialect.caches else body

    def rates(self, tier: Tier) -> tuple[Price, ...]:
        """The prices of which one holds for a request that asks for a tier: its own, and the standard one, as a
        provider without room in the tier that was asked for may serve it by that."""
        rates = self._rates.get(tier)
        if rates is None:
            own = (tier + self._where, STANDARD + self._where, STANDARD)
            rates = self._rates[tier] = tuple(dict.fromkeys(map(self._price_in, own)))
        return rates

    @property
    def _where(self) -> str:
        return "" if self.geo in ("", "global") else f"/{self.geo}"

    def _price_in(self, tier: Tier) -> Price:
        return self.price if tier == STANDARD else self.tier_prices[tier]

    def served(self, asked: Tier, word: str) -> tuple[Tier, tuple[Price, ...], bool]:
        """(the tier of a reply that was asked for so, and that names its tier by this word; the prices of which one
        holds; whether its price is known). Without a tier named, the name is empty."""
        if not self.provider.service_tiers:
            return "", self.rates(asked), True
        said, slash, geo = word.partition("/")
        if said.lower() in UNSAID:
            rates = self.rates(asked)
            if geo:
                rates += tuple(price for tier, price in self.tier_prices.items() if tier.endswith(f"/{geo}"))
            return "", rates, True
        tier = SPOKEN_TIERS.get(said.lower(), "") + slash + geo
        if tier == STANDARD or tier in self.tier_prices:
            return tier, (self._price_in(tier),), True
        return word, (self.price, *self.tier_prices.values()), False

    def bound(self, body_bytes: int, tier: Tier = "") -> PicoUsd:
        """The most that one attempt with a body of this many bytes can cost; without `tier`, whichever it goes by."""
        input_tokens = body_bytes + self.dialect.overhead_tokens
        rates = self.rates(tier) if tier else tuple(price for one in self.tiers for price in self.rates(one))
        most = self.sampling.max_tokens
        if len(rates) == 1:
            return rates[0].worst(input_tokens=input_tokens, output_tokens=most)
        return max([price.worst(input_tokens=input_tokens, output_tokens=most) for price in rates])

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


def naming(head: bytes, dialect: Dialect, tier: str, geo: str) -> bytes:
    """A head that names the tier, in the provider's word, and where it is to be answered; either may be empty."""
    for name, word in ((GEO, geo), (dialect.tier_field, tier)):
        if name and word:  # neither needs escaping
            head = b'{"%b":"%b",%b' % (name.encode(), word.encode(), head[1:])
    return head


def geo_of(provider: Provider, model: Model) -> str:
    """Where a model's requests ask to be answered; empty: they do not say."""
    return "" if GEO in model.quirks.refuses else provider.inference_geo


def writing(price: Price, provider: Provider, cache: str) -> Price:
    """A price where requests ask for a prompt cache that lasts so long."""
    life = DIALECTS[provider.dialect].caches.get(cache)
    return price if life is None else price.writing(life.write_times)


def request_template(
    agent: str,
    *,
    provider: Provider,
    model: Model,
    sampling: Sampling,
    price: Price,
    stream: StreamSetting = "off",
    tiers: tuple[Tier, ...] = (STANDARD,),
    tier_prices: Mapping[Tier, Price] | None = None,
    cache: str = "",
) -> RequestTemplate:
    """The requests of one agent in one environment, from the catalogue's values.

    `sampling`: an environment's defaults under the agent's overrides. `price`: the run's frozen one, as are
    `tier_prices` of other tiers. `stream`: the provider's setting. `cache`: how long its prompt cache is to last.
    """
    return RequestTemplate(
        agent=agent,
        provider=provider,
        model=model,
        dialect=DIALECTS[provider.dialect],
        sampling=sampling,
        price=writing(price, provider, cache),
        billed=provider.billed,
        stream=stream,
        tiers=tiers,
        tier_prices={tier: writing(own, provider, cache) for tier, own in (tier_prices or {}).items()},
        cache=cache,
    )
