"""`evalkit providers`: what the catalogue holds, and which keys are present. Never prints a key."""

import argparse
import os

from evalkit.money import PICO_PER_USD, Price
from evalkit.spec.catalogue import provider_names, read_provider
from evalkit.spec.model import Provider


def providers(args: argparse.Namespace) -> int:
    """A table of all providers, or of one provider's models."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if args.name:
        console.print(_models(read_provider(args.name)))
        return 0
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("provider", "dialect", "models", "key", "endpoint"):
        table.add_column(column)
    for name in provider_names():
        provider = read_provider(name)
        models = f"{len(provider.models)}{' and any other' if provider.any_model else ''}"
        table.add_row(name, provider.dialect, models, _key(provider), provider.url or "started by evalkit")
    console.print(table)
    console.print("\nModels and prices of one: evalkit providers NAME", style="dim")
    return 0


def _key(provider: Provider) -> str:
    if not provider.key_env:
        return "none needed"
    return f"{provider.key_env} {'is set' if os.environ.get(provider.key_env) else 'is not set'}"


def _models(provider: Provider) -> "object":
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, title=f"{provider.name} ({provider.dialect})")
    table.title_justify = "left"
    table.add_column("model")
    for column in ("context", "input $/Mtok", "output $/Mtok", "cached $/Mtok"):
        table.add_column(column, justify="right")
    table.add_column("price source")
    for model in provider.models.values():
        context = f"{model.context_tokens:,}" if model.context_tokens else "?"
        table.add_row(model.name, context, *_prices(model.price), model.price_source)
    return table


def _prices(price: Price | None) -> tuple[str, str, str]:
    if price is None:
        return "?", "?", "?"
    per_mtok = [f"{amount * 10**6 / PICO_PER_USD:g}" for amount in (price.input, price.output, price.cached_read)]
    return per_mtok[0], per_mtok[1], per_mtok[2]
