"""`providers/*.toml`: where a provider is, how it is spoken to, what its models cost and allow. Never a key.

Prices are texts in USD per million tokens, so that they reach whole pico-dollars through decimals, never floats; each
has a date and a source, so that a stale one can be seen.
"""

import datetime
from typing import Any

import msgspec

from evalkit.errors import UsageError, nearest
from evalkit.money import Price, pico_per_token
from evalkit.shipped import folders
from evalkit.spec.model import Limits, Model, Provider, SharedLimits
from evalkit.spec.reading import read_toml
from evalkit.wire.dialect import Quirks
from evalkit.wire.table import DIALECTS


class LimitsFile(msgspec.Struct, frozen=True, kw_only=True):
    """Limits as a file states them."""

    requests_per_minute: float | None = None
    input_tokens_per_minute: float | None = None
    output_tokens_per_minute: float | None = None
    in_flight: int | None = None

    def checked(self, where: str) -> Limits:
        """The limits; raises UsageError where one is not positive."""
        given = {name: getattr(self, name) for name in LimitsFile.__struct_fields__}
        for name, value in given.items():
            if value is not None and value <= 0:
                raise UsageError(f"{where}.{name}: must be positive, not {value}. Leave it out for no limit.")
        return Limits(**given)


class GroupFile(LimitsFile, frozen=True, kw_only=True):
    """Limits that some models of a provider share."""

    models: tuple[str, ...]


class PriceFile(msgspec.Struct, frozen=True, kw_only=True):
    """USD per million tokens, as texts."""

    input: str
    output: str
    as_of: datetime.date
    source: str
    cached_read: str | None = None
    cached_write: str | None = None


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a provider's file."""

    usd_per_mtok: PriceFile | None = None
    context_tokens: int | None = None
    limits: LimitsFile = LimitsFile()
    max_tokens_field: str = "max_tokens"
    refuses: tuple[str, ...] = ()


class ProviderFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of `providers/`."""

    dialect: str
    url: str = ""
    key_env: str = ""
    timeout_s: float = 600.0
    seed: bool = True
    any_model: bool = False
    most_tools: int | None = None
    limits: LimitsFile = LimitsFile()
    shared_limits: LimitsFile = LimitsFile()
    groups: dict[str, GroupFile] = {}
    models: dict[str, ModelFile] = {}
    usd_per_mtok: PriceFile | None = None
    simulate: dict[str, Any] | None = None


REFUSABLE = frozenset(
    {"temperature", "top_p", "seed", "parallel_calls", "tool_choice", "effort", "encrypted_reasoning"}
)


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
    """A model of a provider. Raises UsageError with the nearest name where the catalogue lacks it."""
    if name in provider.models:
        return provider.models[name]
    if provider.any_model:
        return Model(name=name, price=provider.default_price, limits=provider.limits)
    raise UsageError(
        f"Provider {provider.name!r} lists no model {name!r}.{nearest(name, provider.models)} "
        f"To use it, add [models.{name!r}] with its price to providers/{provider.name}.toml."
    )


def _provider(name: str, file: ProviderFile, where: str) -> Provider:
    if file.dialect not in DIALECTS:
        raise UsageError(f"{where}: dialect: there is no dialect {file.dialect!r}.{nearest(file.dialect, DIALECTS)}")
    if bool(file.url) == (file.simulate is not None):
        raise UsageError(
            f"{where}: give either `url`, or a table `simulate` for a provider that evalkit starts itself."
        )
    limits = file.limits.checked(f"{where}: limits")
    models = {key: _model(key, model, limits, f"{where}: models.{key}") for key, model in file.models.items()}
    return Provider(
        name=name,
        dialect=file.dialect,
        url=file.url.rstrip("/"),
        key_env=file.key_env,
        models=models,
        limits=limits,
        shared=_shared(name, file, where),
        timeout_s=file.timeout_s,
        any_model=file.any_model,
        simulate=file.simulate,
        seed=file.seed,
        most_tools=file.most_tools,
        default_price=_price(file.usd_per_mtok, f"{where}: usd_per_mtok"),
    )


def _shared(name: str, file: ProviderFile, where: str) -> tuple[SharedLimits, ...]:
    found = []
    for key, group in file.groups.items():
        for model in group.models:
            if model not in file.models and not file.any_model:
                raise UsageError(
                    f"{where}: groups.{key}.models: the file lists no model {model!r}.{nearest(model, file.models)}"
                )
        limits = group.checked(f"{where}: groups.{key}")
        found.append(SharedLimits(name=f"{name}: {key}", limits=limits, models=frozenset(group.models)))
    together = file.shared_limits.checked(f"{where}: shared_limits")
    if together != Limits():
        found.append(SharedLimits(name=name, limits=together))
    return tuple(found)


def _model(name: str, file: ModelFile, provider_limits: Limits, where: str) -> Model:
    for field in file.refuses:
        if field not in REFUSABLE:
            raise UsageError(f"{where}.refuses: {field!r} is nothing a request carries.{nearest(field, REFUSABLE)}")
    limits = file.limits.checked(f"{where}.limits")
    price = file.usd_per_mtok
    return Model(
        name=name,
        price=_price(price, f"{where}.usd_per_mtok"),
        limits=provider_limits if limits == Limits() else limits,
        context_tokens=file.context_tokens,
        quirks=Quirks(max_tokens_field=file.max_tokens_field, refuses=frozenset(file.refuses)),
        price_source=f"{price.source}, {price.as_of}" if price else "",
    )


def _price(file: PriceFile | None, where: str) -> Price | None:
    if file is None:
        return None
    try:
        plain = pico_per_token(file.input)
        return Price(
            input=plain,
            output=pico_per_token(file.output),
            cached_read=plain if file.cached_read is None else pico_per_token(file.cached_read),
            cached_write=plain if file.cached_write is None else pico_per_token(file.cached_write),
        )
    except ValueError as flaw:
        raise UsageError(f"{where}: {flaw}.") from flaw
