"""`providers/*.toml`: where a provider is, how it is spoken to, what its models cost and allow. Never a key.

Prices are texts in USD per million tokens, so that they reach whole pico-dollars through decimals, never floats; each
has a date and a source, so that a stale one can be seen. Where a file states none, `price_library.py` may know one; it
is loaded only then.

A model's table says what it costs in tiers other than the standard one (`tiers`: a price, or how many times that of the
standard one), or the library knows it. A tier without such a price is not sold.

A model's name may end in `*`: then the table holds for every name that begins so, or, if it also begins with `*`, that
contains it. The longest that fits counts, and gives a model that has a table of its own whatever that leaves out.
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from evalkit.errors import UsageError, nearest
from evalkit.money import STANDARD, TIERS, Price, Tier, pico_per_token
from evalkit.shipped import folders
from evalkit.spec.model import Cloud, Limits, Model, Provider, ServerSpec, StreamSetting
from evalkit.spec.price_library import published, published_names
from evalkit.spec.reading import read_toml
from evalkit.wire.dialect import GEO, MAX_TOKENS, REFUSABLE, AfterResults, Quirks, ThinkingBack
from evalkit.wire.extras import owned
from evalkit.wire.table import DIALECTS

TierChoice = str | tuple[str, ...] | None
"""In files: a tier, or several in order of preference."""


def checked_tier(given: TierChoice, where: str) -> tuple[Tier, ...]:
    """The tiers in order of preference. Raises UsageError where one is unknown, or named twice."""
    tiers = () if given is None else (given,) if isinstance(given, str) else given
    for tier in tiers:
        if tier not in TIERS:
            raise UsageError(f"{where}: there is no tier {tier!r}, only {', '.join(TIERS)}.{nearest(tier, TIERS)}")
    if len({*tiers}) < len(tiers) or (given is not None and not tiers):
        raise UsageError(f"{where}: name each tier once, and at least one.")
    return tiers


class LaneFile(Limits, frozen=True, kw_only=True):
    """What a sweep says of a lane, or of a provider's lanes."""

    tier: TierChoice = None
    cache: str = ""


class ServerFile(Limits, frozen=True, kw_only=True):
    """One of several servers, with limits of its own."""

    url: str


class RatesFile(msgspec.Struct, frozen=True, kw_only=True):
    """USD per million tokens, as texts."""

    input: str
    output: str
    cached_read: str | None = None
    cached_write: str | None = None


class LongPromptFile(RatesFile, frozen=True, kw_only=True):
    """What every token of a request costs whose prompt has more than `tokens` of them."""

    tokens: int


class TierPriceFile(RatesFile, frozen=True, kw_only=True):
    """The price in a tier."""

    over: LongPromptFile | None = None


class PriceFile(TierPriceFile, frozen=True, kw_only=True):
    """The price."""

    source: str
    """Where it was read, and on which day."""


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a provider's file."""

    usd_per_mtok: PriceFile | None = None
    price_as: str | None = None
    tiers: dict[str, str | TierPriceFile] | None = None
    """Prices of tiers: how many times the standard one, or USD per million tokens."""
    context_tokens: int | None = None
    limits: Limits | None = None
    refuses: tuple[str, ...] | None = None
    after_results: AfterResults | None = None
    thinking_back: ThinkingBack | None = None

    def over(self, wider: "ModelFile | None") -> "ModelFile":
        """This table, with what it leaves out taken from one that holds for more names."""
        own = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return self if wider is None else msgspec.structs.replace(wider, **own)


class ProviderFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of `providers/`."""

    dialect: str
    url: str | tuple[str | ServerFile, ...] = ""
    key_env: str = ""
    credentials: Cloud = ""
    timeout_s: float = 600.0
    stream: StreamSetting = "auto"
    silence_s: float = 300.0
    cache_key: bool = False
    most_tools: int | None = None
    extra_allowed: tuple[str, ...] = ()
    service_tiers: dict[str, str] = {}
    tier: TierChoice = None
    cache: str = ""
    inference_geo: str = ""
    limits: Limits = Limits()
    models: dict[str, ModelFile] = {}
    price_as: str = ""
    usd_per_mtok: PriceFile | None = None
    simulate: dict[str, Any] | None = None


def provider_names() -> list[str]:
    """All providers there are files of, sorted."""
    return sorted({path.stem for folder in folders("providers") for path in folder.glob("*.toml")})


def read_provider(name: str) -> Provider:
    """One provider by name. Raises UsageError naming the file and what is wrong in it."""
    for folder in folders("providers"):
        path = folder / f"{name}.toml"
        if path.is_file():
            return _provider(name, read_toml(path, ProviderFile), str(path))
    raise UsageError(f"There is no provider {name!r}: no providers/{name}.toml.{nearest(name, provider_names())}")


def find_model(provider: Provider, name: str) -> Model:
    """A model of a provider, with its price as far as it is known.

    Raises UsageError with the nearest name where neither the catalogue nor the price library has it.
    """
    model = provider.models.get(name)
    listed = model is not None
    if model is None:
        family = _family(name, provider.families)
        wider = provider.families.get(family or "", Model(name=name, price=None, limits=provider.limits))
        model = replace(wider, name=name)
    known = None
    if provider.price_as and (model.price is None or (provider.service_tiers and not model.factors)):
        known = published(provider.price_as, model.price_as or name)
    if model.price is not None:
        # Prices that are not of one source may contradict each other: only if they say the same of the standard tier.
        agrees = known is not None and _alike(known.price, model.price)
        return _in_tiers(provider, model, known.tiers if known is not None and agrees else {})
    if known is not None:
        context = model.context_tokens or known.context_tokens
        priced = replace(model, price=known.price, price_source=known.source, context_tokens=context)
        return _in_tiers(provider, priced, known.tiers)
    if model.price_as:
        raise UsageError(
            f"providers/{provider.name}.toml: models.{name}.price_as: the price of {model.price_as!r} is unknown."
            f"{nearest(model.price_as, _priced_names(provider))}"
        )
    if not listed and provider.default_price is None:
        raise UsageError(
            f"Provider {provider.name!r} lists no model {name!r}.{nearest(name, model_names(provider))} "
            f"To use it, add [models.{name!r}] with its price to providers/{provider.name}.toml."
        )
    if not listed:
        model = replace(model, price=provider.default_price, price_source=provider.default_source)
    return _in_tiers(provider, model, {})


def _alike(price: Price, other: Price) -> bool:
    return (price.input, price.output) == (other.input, other.output)


US_ONLY = "/us"
US_TIMES = Decimal("1.1")
"""What Anthropic asks for requests that are answered in the United States alone (`inference_geo`).
Source: https://docs.aws.amazon.com/claude-platform/latest/userguide/data-residency.html,
https://platform.claude.com/docs/en/manage-claude/data-residency, 2026-11-28."""


def _in_tiers(provider: Provider, model: Model, published: Mapping[Tier, Price]) -> Model:
    """The model with its prices in all tiers that the provider sells it in: the file's, else those that are
    published."""
    if model.price is None:
        return model
    tiers = {tier: price for tier, price in published.items() if tier in provider.service_tiers}
    for tier, own in model.factors.items():
        tiers[tier] = own if isinstance(own, Price) else model.price.times(own)
    if provider.inference_geo and GEO not in model.quirks.refuses:
        tiers |= {tier + US_ONLY: price.times(US_TIMES) for tier, price in {STANDARD: model.price, **tiers}.items()}
    return replace(model, tiers={tier: price for tier, price in tiers.items() if tier != STANDARD})


def model_names(provider: Provider) -> list[str]:
    """Every model's name that the catalogue or the price library knows of a provider."""
    return sorted({*provider.models, *_priced_names(provider)})


def _priced_names(provider: Provider) -> list[str]:
    return published_names(provider.price_as) if provider.price_as else []


def _family(name: str, families: Mapping[str, object]) -> str | None:
    """The longest of the beginnings, or middles, that a name has, as `families` names it (`gpt-5*`, `*gpt-5*`)."""
    fitting = (
        family
        for family in families
        if (family[1:-1] in name if family.startswith("*") else name.startswith(family[:-1]))
    )
    return max(fitting, key=len, default=None)


def _provider(name: str, file: ProviderFile, where: str) -> Provider:
    if file.dialect not in DIALECTS:
        raise UsageError(f"{where}: dialect: there is no dialect {file.dialect!r}.{nearest(file.dialect, DIALECTS)}")
    if (file.url != "") == (file.simulate is not None):
        raise UsageError(
            f"{where}: set either `url`, or a table `simulate` for a simulated provider that evalkit starts."
        )
    if file.cache_key and not DIALECTS[file.dialect].cache_key:
        raise UsageError(f"{where}: cache_key: the dialect {file.dialect!r} has no such field. Leave it out.")
    servers = (ServerSpec(url=file.url.rstrip("/")),) if isinstance(file.url, str) else _servers(file.url, where)
    for server in servers:
        _check_place_holders(server.url, where)
    for key in ("timeout_s", "silence_s"):
        value = getattr(file, key)
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"{where}: {key}: must be positive and finite, not {value}.")
    limits = file.limits.checked(f"{where}: limits")
    wide = {key: table for key, table in file.models.items() if key.endswith("*")}
    models: dict[str, Model] = {}
    for key, table in file.models.items():
        family = None if key in wide else _family(table.price_as or key, wide)
        whole = table.over(wide[family] if family else None)
        for own in {"after_results", "thinking_back"} - DIALECTS[file.dialect].follows:
            if getattr(table, own) is not None:
                raise UsageError(f"{where}: models.{key}.{own}: the dialect {file.dialect!r} needs none. Leave it out.")
        models[key] = _model(key, whole, limits, file, f"{where}: models.{key}")
    _check_tiers(file, where)
    return Provider(
        name=name,
        **{name: getattr(file, name) for name in _AS_STATED},
        servers=servers,
        models={key: model for key, model in models.items() if key not in wide},
        families={key: models[key] for key in wide},
        limits=limits,
        extra_allowed=_extra_allowed(file, where),
        tier=checked_tier(file.tier, f"{where}: tier"),
        default_price=_price(file.usd_per_mtok, f"{where}: usd_per_mtok"),
        default_source=_source(file.usd_per_mtok),
    )


_AS_STATED = (
    *("dialect", "key_env", "credentials", "timeout_s", "stream", "silence_s", "simulate", "cache_key", "most_tools"),
    *("service_tiers", "cache", "inference_geo", "price_as"),
)


def _check_tiers(file: ProviderFile, where: str) -> None:
    """Raises UsageError for tiers that are not known, and for what requests of the format cannot say."""
    checked_tier(tuple(file.service_tiers) or None, f"{where}: service_tiers")
    dialect = DIALECTS[file.dialect]
    if file.service_tiers and not (dialect.tier_field or dialect.tier_headers):
        raise UsageError(
            f"{where}: service_tiers: requests of the dialect {file.dialect!r} name no tier. Leave it out."
        )
    if file.service_tiers and STANDARD not in file.service_tiers:
        raise UsageError(
            f"{where}: service_tiers: say what it calls the tier `{STANDARD}`; empty if it has no word for it."
        )
    if file.inference_geo and (GEO not in dialect.follows or file.inference_geo not in ("global", "us")):
        raise UsageError(f"{where}: inference_geo: `global` or `us`, and of Anthropic's format alone.")


def _factors(
    file: Mapping[str, str | TierPriceFile], sold: Mapping[str, str], where: str
) -> dict[Tier, Decimal | Price]:
    """Prices of tiers as a table states them. Raises UsageError."""
    found: dict[Tier, Decimal | Price] = {}
    for tier, own in file.items():
        if tier not in sold or tier == STANDARD:
            raise UsageError(f"{where}.{tier}: `service_tiers` of the provider names no such tier beside `{STANDARD}`.")
        try:
            found[tier] = _factor(own) if isinstance(own, str) else _price_in(own)
        except ValueError as flaw:
            raise UsageError(f"{where}.{tier}: {flaw}.") from flaw
    return found


def _factor(text: str) -> Decimal:
    """Raises ValueError."""
    with suppress(InvalidOperation):  # also of what is no number
        if 0 < (factor := Decimal(text)) <= 100:
            return factor
    raise ValueError(f"{text!r} is not how many times the standard price it is: a number above 0, such as 0.5")


def _extra_allowed(file: ProviderFile, where: str) -> tuple[str, ...]:
    """Raises UsageError for a field that evalkit sets itself."""
    for name in file.extra_allowed:
        if owned(name, DIALECTS[file.dialect].extra_fields):
            raise UsageError(f"{where}: extra_allowed: {name!r} is a field that evalkit sets itself. Leave it out.")
    return file.extra_allowed


def _servers(given: tuple[str | ServerFile, ...], where: str) -> tuple[ServerSpec, ...]:
    """Raises UsageError for an empty list, and for a server that is named twice."""
    files = [ServerFile(url=one) if isinstance(one, str) else one for one in given]
    urls = [file.url.rstrip("/") for file in files]
    if not urls or not all(urls):
        raise UsageError(f"{where}: url: name at least one server, each by its base URL.")
    for url in urls:
        if urls.count(url) > 1:
            raise UsageError(f"{where}: url: the server {url!r} is named twice.")
    return tuple(
        ServerSpec(url=url, limits=file.checked(f"{where}: url[{number}]"))
        for number, (url, file) in enumerate(zip(urls, files, strict=True), 1)
    )


PLACE_HOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""In a provider's `url`: an environment variable, which is read when the provider is asked."""


def _check_place_holders(url: str, where: str) -> None:
    if "$" in PLACE_HOLDER.sub("", url):
        raise UsageError(f"{where}: url: write an environment variable as ${{NAME}}.")


def _model(name: str, file: ModelFile, provider_limits: Limits, provider: ProviderFile, where: str) -> Model:
    refuses = file.refuses or ()
    for field in refuses:
        if field not in REFUSABLE:
            raise UsageError(f"{where}.refuses: {field!r} is not a field of a request.{nearest(field, REFUSABLE)}")
    if file.context_tokens is not None and file.context_tokens <= 0:
        raise UsageError(f"{where}.context_tokens: must be positive, not {file.context_tokens}.")
    return Model(
        name=name,
        price=_price(file.usd_per_mtok, f"{where}.usd_per_mtok"),
        limits=provider_limits if file.limits is None else file.limits.checked(f"{where}.limits"),
        context_tokens=file.context_tokens,
        quirks=Quirks(
            max_tokens_field="max_completion_tokens" if MAX_TOKENS in refuses else MAX_TOKENS,
            refuses=frozenset(refuses) - {MAX_TOKENS},
            after_results=file.after_results or "user",
            thinking_back=file.thinking_back or "calls",
        ),
        price_source=_source(file.usd_per_mtok),
        price_as=file.price_as or "",
        factors=_factors(file.tiers or {}, provider.service_tiers, f"{where}.tiers"),
    )


def _source(file: PriceFile | None) -> str:
    return file.source if file else ""


_DAY = re.compile(r"\b20\d\d-[01]\d-[0-3]\d\b")


def _price(file: PriceFile | None, where: str) -> Price | None:
    if file is None:
        return None
    if not _DAY.search(file.source):
        raise UsageError(f'{where}.source: name the day too, as in "https://acme.example/pricing, 2026-11-21".')
    try:
        return _price_in(file)
    except ValueError as flaw:
        raise UsageError(f"{where}: {flaw}.") from flaw


def _price_in(file: TierPriceFile) -> Price:
    """Raises ValueError."""
    if file.over is None:
        return Price(**_rates(file))
    if file.over.tokens <= 0:
        raise ValueError(f"over.tokens must be positive, not {file.over.tokens}")
    long = {f"over_{kind}": rate for kind, rate in _rates(file.over).items()}
    return Price(**_rates(file), **long, over=file.over.tokens)


def _rates(file: RatesFile) -> dict[str, int]:
    """Pico-dollars per token by kind. Raises ValueError if a text is not a price."""
    plain = pico_per_token(file.input)
    return {
        "input": plain,
        "output": pico_per_token(file.output),
        "cached_read": plain if file.cached_read is None else pico_per_token(file.cached_read),
        "cached_write": plain if file.cached_write is None else pico_per_token(file.cached_write),
    }
