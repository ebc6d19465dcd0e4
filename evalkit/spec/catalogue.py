"""`providers/*.toml`: where a provider is, how it is spoken to, what its models cost and allow. Never a key.

Prices are texts in USD per million tokens, so that they reach whole pico-dollars through decimals, never floats; each
has a date and a source, so that a stale one can be seen. Where a file states none, `price_library.py` may know one; it
is loaded only then.

A model's name may end in `*`: then the table holds for every name that begins so, or, if it also begins with `*`, that
contains it. The longest that fits counts, and gives a model that has a table of its own whatever that leaves out.
"""

import datetime
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import msgspec

from evalkit.errors import UsageError, nearest
from evalkit.money import Price, pico_per_token
from evalkit.shipped import folders
from evalkit.spec.model import Cloud, Limits, Model, Provider, ServerSpec, SharedLimits, StreamSetting
from evalkit.spec.price_library import published, published_names
from evalkit.spec.reading import parse_span, read_toml
from evalkit.wire.billed import BILLED, NEVER_SENT
from evalkit.wire.dialect import REFUSABLE, AfterResults, Quirks, ThinkingBack
from evalkit.wire.extras import owned
from evalkit.wire.table import DIALECTS


class InFlightFile(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in flight at once: at the beginning, and at most."""

    start: int | None = None
    most: int | None = None


class LimitsFile(msgspec.Struct, frozen=True, kw_only=True):
    """Limits as a file states them."""

    requests_per_minute: float | None = None
    input_tokens_per_minute: float | None = None
    output_tokens_per_minute: float | None = None
    in_flight: int | InFlightFile | None = None

    def checked(self, where: str) -> Limits:
        """The limits; raises UsageError where one is not positive, or more may be in flight at first than at most."""
        given = {name: getattr(self, name) for name in LimitsFile.__struct_fields__ if name != "in_flight"}
        if isinstance(self.in_flight, InFlightFile):
            key, most, start = "in_flight.most", self.in_flight.most, self.in_flight.start
        else:
            key, most, start = "in_flight", self.in_flight, None
        for name, value in (*given.items(), (key, most), ("in_flight.start", start)):
            if value is not None and not 0 < value < math.inf:
                raise UsageError(
                    f"{where}.{name}: must be positive and finite, not {value}. Leave it out for no limit."
                )
        if start is not None and most is not None and start > most:
            raise UsageError(f"{where}.in_flight.start: must be at most in_flight.most ({most}), not {start}.")
        return Limits(**given, in_flight=most, start=start)


class ServerFile(LimitsFile, frozen=True, kw_only=True):
    """One of several servers, with limits of its own."""

    url: str


class GroupFile(LimitsFile, frozen=True, kw_only=True):
    """Limits that some models of a provider share."""

    models: tuple[str, ...]


class LongPromptFile(msgspec.Struct, frozen=True, kw_only=True):
    """What every token of a request costs whose prompt has more than `tokens` of them."""

    tokens: int
    input: str
    output: str
    cached_read: str | None = None
    cached_write: str | None = None


class PriceFile(msgspec.Struct, frozen=True, kw_only=True):
    """USD per million tokens, as texts."""

    input: str
    output: str
    as_of: datetime.date
    source: str
    cached_read: str | None = None
    cached_write: str | None = None
    over: LongPromptFile | None = None


class BilledFile(msgspec.Struct, frozen=True, kw_only=True):
    """Which outcomes without a reply a provider bills, where that is not as for all."""

    outcomes: dict[str, bool]
    as_of: datetime.date
    source: str


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a provider's file."""

    usd_per_mtok: PriceFile | None = None
    price_as: str | None = None
    context_tokens: int | None = None
    limits: LimitsFile | None = None
    max_tokens_field: str | None = None
    refuses: tuple[str, ...] | None = None
    after_results: AfterResults | None = None
    thinking_back: ThinkingBack | None = None
    unseen_tokens: bool | None = None

    def over(self, wider: "ModelFile | None") -> "ModelFile":
        """This table, with what it leaves out taken from one that holds for more names."""
        own = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return self if wider is None else msgspec.structs.replace(wider, **own)


class ProviderFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of `providers/`."""

    dialect: str
    url: str | tuple[str | ServerFile, ...] = ""
    key_env: str = ""
    key_command: tuple[str, ...] = ()
    key_lasts: str = ""
    credentials: Cloud = ""
    timeout_s: float = 600.0
    stream: StreamSetting = "auto"
    first_byte_s: float | None = None
    silence_s: float = 300.0
    seed: bool = True
    cache_key: bool = False
    cached_reads_count: bool = True
    usage: Literal["reported", "estimate"] = "reported"
    billed: BilledFile | None = None
    any_model: bool = False
    most_tools: int | None = None
    efforts: tuple[str, ...] = ()
    extra_allowed: tuple[str, ...] = ()
    limits: LimitsFile = LimitsFile()
    shared_limits: LimitsFile = LimitsFile()
    groups: dict[str, GroupFile] = {}
    models: dict[str, ModelFile] = {}
    genai_prices: str = ""
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
    if model.price is not None:
        return model
    if provider.genai_prices:
        known = published(provider.genai_prices, model.price_as or name)
        if known is not None:
            context = model.context_tokens or known.context_tokens
            return replace(model, price=known.price, price_source=known.source, context_tokens=context)
    if model.price_as:
        raise UsageError(
            f"providers/{provider.name}.toml: models.{name}.price_as: the price of {model.price_as!r} is unknown."
            f"{nearest(model.price_as, _priced_names(provider))}"
        )
    if not listed and not provider.any_model:
        raise UsageError(
            f"Provider {provider.name!r} lists no model {name!r}.{nearest(name, model_names(provider))} "
            f"To use it, add [models.{name!r}] with its price to providers/{provider.name}.toml."
        )
    return model if listed else replace(model, price=provider.default_price, price_source=provider.default_source)


def model_names(provider: Provider) -> list[str]:
    """Every model's name that the catalogue or the price library knows of a provider."""
    return sorted({*provider.models, *_priced_names(provider)})


def _priced_names(provider: Provider) -> list[str]:
    if not provider.genai_prices:
        return []
    return published_names(provider.genai_prices)


def _family(name: str, families: Mapping[str, object]) -> str | None:
    """The longest of the beginnings, or middles, that a name has, as `families` names it (`gpt-5*`, `*gpt-5*`)."""
    return max((family for family in families if _is_like(name, family)), key=len, default=None)


def _is_like(name: str, family: str) -> bool:
    return family[1:-1] in name if family.startswith("*") else name.startswith(family[:-1])


def _provider(name: str, file: ProviderFile, where: str) -> Provider:
    if file.dialect not in DIALECTS:
        raise UsageError(f"{where}: dialect: there is no dialect {file.dialect!r}.{nearest(file.dialect, DIALECTS)}")
    if (file.url != "") == (file.simulate is not None):
        raise UsageError(
            f"{where}: set either `url`, or a table `simulate` for a simulated provider that evalkit starts."
        )
    if file.cache_key and not DIALECTS[file.dialect].cache_key:
        raise UsageError(f"{where}: cache_key: the dialect {file.dialect!r} has no such field. Leave it out.")
    servers = () if isinstance(file.url, str) else _servers(file.url, where)
    for server in servers or (ServerSpec(url=str(file.url)),):
        _check_place_holders(server.url, where)
    for key in ("timeout_s", "first_byte_s", "silence_s"):
        value = getattr(file, key)
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"{where}: {key}: must be positive and finite, not {value}.")
    limits = file.limits.checked(f"{where}: limits")
    wide = {key: table for key, table in file.models.items() if key.endswith("*")}
    models: dict[str, Model] = {}
    for key, table in file.models.items():
        family = None if key in wide else _family(table.price_as or key, wide)
        whole = table.over(wide[family] if family else None)
        for own in {"after_results", "thinking_back"} - DIALECTS[file.dialect].heeds:
            if getattr(table, own) is not None:
                raise UsageError(f"{where}: models.{key}.{own}: the dialect {file.dialect!r} needs none. Leave it out.")
        models[key] = _model(key, whole, limits, f"{where}: models.{key}")
    return Provider(
        name=name,
        dialect=file.dialect,
        url="" if servers else str(file.url).rstrip("/"),
        servers=servers,
        key_env=file.key_env,
        key_command=file.key_command,
        key_lasts_s=_key_lasts_s(file, where),
        credentials=file.credentials,
        models={key: model for key, model in models.items() if key not in wide},
        families={key: models[key] for key in wide},
        limits=limits,
        shared=_shared(name, file, where),
        timeout_s=file.timeout_s,
        stream=file.stream,
        first_byte_s=math.inf if file.first_byte_s is None else file.first_byte_s,
        silence_s=file.silence_s,
        any_model=file.any_model,
        simulate=file.simulate,
        seed=file.seed,
        cache_key=file.cache_key,
        cached_reads_count=file.cached_reads_count,
        most_tools=file.most_tools,
        efforts=file.efforts,
        extra_allowed=_extra_allowed(file, where),
        billed=_billed(file.billed, f"{where}: billed"),
        billed_source=_source(file.billed),
        estimates_usage=file.usage == "estimate",
        default_price=_price(file.usd_per_mtok, f"{where}: usd_per_mtok"),
        default_source=_source(file.usd_per_mtok),
        genai_prices=file.genai_prices,
    )


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


def _key_lasts_s(file: ProviderFile, where: str) -> float:
    """Seconds. Raises UsageError also for the keys beside it that say where a key comes from."""
    if file.key_command and file.credentials:
        raise UsageError(f"{where}: set either `key_command` or `credentials`: one of them gives the key.")
    if file.key_command and not file.key_command[0].strip():
        raise UsageError(f"{where}: key_command: the first string must be the name of a program.")
    if not file.key_lasts:
        return math.inf
    if not file.key_command:
        raise UsageError(f"{where}: key_lasts: only a key that `key_command` prints expires. Leave it out.")
    try:
        return parse_span(file.key_lasts)
    except ValueError as flaw:
        raise UsageError(f"{where}: key_lasts: {flaw}.") from flaw


PLACE_HOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""In a provider's `url`: an environment variable, which is read when the provider is asked."""


def _check_place_holders(url: str, where: str) -> None:
    if "$" in PLACE_HOLDER.sub("", url):
        raise UsageError(f"{where}: url: write an environment variable as ${{NAME}}.")


def _shared(name: str, file: ProviderFile, where: str) -> tuple[SharedLimits, ...]:
    shared = []
    for key, group in file.groups.items():
        for model in group.models:
            if model not in file.models and not file.any_model:
                raise UsageError(
                    f"{where}: groups.{key}.models: the file lists no model {model!r}.{nearest(model, file.models)}"
                )
        limits = group.checked(f"{where}: groups.{key}")
        shared.append(SharedLimits(name=f"{name}: {key}", limits=limits, models=frozenset(group.models)))
    together = file.shared_limits.checked(f"{where}: shared_limits")
    if together != Limits():
        shared.append(SharedLimits(name=name, limits=together))
    return tuple(shared)


def _model(name: str, file: ModelFile, provider_limits: Limits, where: str) -> Model:
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
            max_tokens_field=file.max_tokens_field or "max_tokens",
            refuses=frozenset(refuses),
            after_results=file.after_results or "user",
            thinking_back=file.thinking_back or "calls",
            unseen_tokens=file.unseen_tokens is not False,
        ),
        price_source=_source(file.usd_per_mtok),
        price_as=file.price_as or "",
    )


def _source(file: PriceFile | BilledFile | None) -> str:
    return f"{file.source}, {file.as_of}" if file else ""


def _billed(file: BilledFile | None, where: str) -> Mapping[str, bool]:
    if file is None:
        return {}
    for outcome, billed in file.outcomes.items():
        if outcome not in BILLED and not _STATUS.fullmatch(outcome):
            raise UsageError(
                f"{where}.outcomes: {outcome!r} is not an outcome. Write an HTTP status from 300 to 599, or one of "
                f"{', '.join(BILLED)}.{nearest(outcome, BILLED)}"
            )
        if billed and outcome in NEVER_SENT:
            raise UsageError(f"{where}.outcomes: {outcome!r} cannot be billed, since nothing is sent. Leave it out.")
    return dict(file.outcomes)


_STATUS = re.compile(r"[345]\d\d")


def _price(file: PriceFile | None, where: str) -> Price | None:
    if file is None:
        return None
    try:
        rates = _rates(file)
        if file.over is not None:
            if file.over.tokens <= 0:
                raise ValueError(f"over.tokens must be positive, not {file.over.tokens}")
            long = {f"over_{kind}": rate for kind, rate in _rates(file.over).items()}
            return Price(**rates, **long, over=file.over.tokens)
        return Price(**rates)
    except ValueError as flaw:
        raise UsageError(f"{where}: {flaw}.") from flaw


def _rates(file: PriceFile | LongPromptFile) -> dict[str, int]:
    """Pico-dollars per token by kind. Raises ValueError if a text is not a price."""
    plain = pico_per_token(file.input)
    return {
        "input": plain,
        "output": pico_per_token(file.output),
        "cached_read": plain if file.cached_read is None else pico_per_token(file.cached_read),
        "cached_write": plain if file.cached_write is None else pico_per_token(file.cached_write),
    }
