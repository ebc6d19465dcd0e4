"""`evalkit providers`: what the catalogue holds, and which keys are present. Never prints a key."""

import argparse
import os
from typing import TYPE_CHECKING

from evalkit.money import PICO_PER_USD, Price
from evalkit.spec.catalogue import provider_names, read_provider
from evalkit.spec.model import Provider

if TYPE_CHECKING:
    from rich.console import Console


def providers(args: argparse.Namespace) -> int:
    """A table of all providers, or of one provider's models."""
    from rich.table import Table

    from evalkit.report.terminal import console as console_of

    console = console_of()
    if args.name:
        _print_models(read_provider(args.name), console)
        return 0
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    for column in ("provider", "dialect", "models", "key"):
        table.add_column(column, overflow="fold")
    for name in provider_names():
        provider = read_provider(name)
        models = "any" if provider.any_model and not provider.models else f"{len(provider.models)}"
        more = ", any" if provider.any_model and provider.models else ""
        table.add_row(name, provider.dialect, models + more, _key(provider))
    console.print(table)
    console.print("\nEndpoint, models and prices of one: evalkit providers NAME", style="dim")
    return 0


def _key(provider: Provider) -> str:
    if not provider.key_env:
        return "none needed"
    return f"{provider.key_env} {'(set)' if os.environ.get(provider.key_env) else '(not set)'}"


def _print_models(provider: Provider, console: "Console") -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("model", overflow="fold")
    for column in ("context", "input", "output", "cached"):
        table.add_column(column, justify="right", no_wrap=True)
    for model in provider.models.values():
        context = f"{model.context_tokens:,}" if model.context_tokens else "?"
        table.add_row(model.name, context, *_prices(model.price))
    if provider.any_model:
        table.add_row("any other" if provider.models else "any", "?", *_prices(provider.default_price))
    console.print(f"{provider.name}: {provider.dialect}, {provider.url or 'started by evalkit'}")
    console.print(f"key: {_key(provider)}\n")
    console.print(table)
    console.print("\nPrices in USD per million tokens; context in tokens.", style="dim")
    for source in dict.fromkeys(model.price_source for model in provider.models.values() if model.price_source):
        console.print(f"Prices from {source}", style="dim", soft_wrap=True)


def _prices(price: Price | None) -> tuple[str, str, str]:
    if price is None:
        return "?", "?", "?"
    per_mtok = [f"{amount * 10**6 / PICO_PER_USD:g}" for amount in (price.input, price.output, price.cached_read)]
    return per_mtok[0], per_mtok[1], per_mtok[2]
