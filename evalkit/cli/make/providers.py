"""`evalkit providers`: show the catalogue, and which keys are set. Never prints a key."""

import argparse
from typing import TYPE_CHECKING

from evalkit.client.clouds import missing_library
from evalkit.client.keys import key_place
from evalkit.errors import UsageError
from evalkit.money import PICO_PER_USD, Price
from evalkit.spec.catalogue import find_model, provider_names, read_provider
from evalkit.spec.model import Model, Provider

if TYPE_CHECKING:
    from rich.console import Console

CHECK = "check"


def providers(args: argparse.Namespace) -> int:
    """Print a table of all providers, or of one provider's models; `check` sends requests to them."""
    from rich.table import Table

    from evalkit.report.render.terminal import console as console_of

    if args.name == CHECK:
        from evalkit.cli.checking import check

        return check(args.names, args.model, settings=args.settings)
    for flag in ("model", "settings"):
        if getattr(args, flag):
            raise UsageError(f"providers: --{flag} goes with `providers {CHECK} PROVIDER`.")
    console = console_of()
    if args.name:
        provider = read_provider(args.name)
        models = [find_model(provider, name) for name in args.names or provider.models]
        _print_models(provider, models, console, only=bool(args.names))
        return 0
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    for column in ("provider", "dialect", "models", "key"):
        table.add_column(column, overflow="fold")
    for name in provider_names():
        provider = read_provider(name)
        table.add_row(name, provider.dialect, _count(provider), "\nelse ".join(_keys(provider)))
    console.print(table)
    console.print("\nEndpoint, models and prices of a provider: evalkit providers NAME", style="dim")
    console.print("Check that they answer: evalkit providers check", style="dim")
    return 0


def _count(provider: Provider) -> str:
    listed = f"{len(provider.models)}" if provider.models else ""
    more = "any" if provider.default_price else "more" if provider.price_as else ""
    return ", ".join(filter(None, (listed, more))) or "0"


def _keys(provider: Provider) -> list[str]:
    """Where its key may come from, in order."""
    sources = []
    if provider.key_env:
        try:
            sources.append(f"{provider.key_env} ({key_place(provider)})")
        except UsageError:
            sources.append(f"{provider.key_env} (keyring locked)")
    if provider.credentials:
        installed = "not installed" if missing_library(provider.credentials) else "installed"
        sources.append(f"SDK of {provider.credentials} ({installed})")
    return sources or ["none needed"]


def _print_models(provider: Provider, models: list[Model], console: "Console", *, only: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("model", overflow="fold")
    for column in ("context", "input", "output", "cached"):
        table.add_column(column, justify="right", no_wrap=True)
    for model in models:
        context = f"{model.context_tokens:,}" if model.context_tokens else "?"
        table.add_row(Text(model.name), context, *_prices(model.price))
        if model.price and model.price.over:
            table.add_row(f"  prompts over {model.price.over:,}", "", *_long_prices(model.price))
    if provider.default_price and not only:
        table.add_row("any other" if provider.models else "any", "?", *_prices(provider.default_price))
    urls = ", ".join(filter(None, (server.url for server in provider.named_servers)))
    console.print(Text(f"{provider.name}: {provider.dialect}, {urls or 'started by evalkit'}"))
    console.print(f"key: {', else '.join(_keys(provider))}\n")
    console.print(table)
    console.print("\nPrices in USD per million tokens; context in tokens.", style="dim")
    if provider.price_as and not only:
        console.print("Other models can be named too if genai-prices has their price.", style="dim")
    for source in dict.fromkeys(model.price_source for model in models if model.price_source):
        console.print(Text(f"Prices from {source}"), style="dim", soft_wrap=True)


def _prices(price: Price | None) -> tuple[str, str, str]:
    if price is None:
        return "?", "?", "?"
    return _usd(price.input), _usd(price.output), _usd(price.cached_read)


def _long_prices(price: Price) -> tuple[str, str, str]:
    return _usd(price.over_input), _usd(price.over_output), _usd(price.over_cached_read)


def _usd(pico_a_token: int) -> str:
    return f"{pico_a_token * 10**6 / PICO_PER_USD:g}"
