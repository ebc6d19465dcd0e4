"""`evalkit providers`: show the catalogue, and which keys are set. Never prints a key."""

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from evalkit.client.clouds import missing_library
from evalkit.client.keys import key_place, lacking, servers_of, short_names
from evalkit.errors import EvalkitError, UsageError
from evalkit.money import PICO_PER_USD, Price, show_usd
from evalkit.spec.catalogue import find_model, provider_names, read_provider
from evalkit.spec.model import Model, Provider
from evalkit.text import bounded

if TYPE_CHECKING:
    from rich.console import Console

    from evalkit.client.check import CheckResult


# `evalkit providers check`: send one real request to each provider; if it was answered, another that goes on with the
# reply, and the first again as a stream; and say what works or what to do.
#
# A named provider fails if its key is missing, or if it is a server on this machine that is not running. Without
# names, all providers are checked, and these two cases are not failures. The exit code is 0 if nothing failed, else
# 3. The command prints the highest possible cost and does not ask for consent: calling it is the consent.

NOT_ALL_WORK = 3

_SERVED_BY_SIMULATOR = "random"
_UNNAMED = "default"
"""The model name sent to the user's own server if no model is listed: many such servers have one model and accept any
name."""
_MESSAGE_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProviderCheck:
    """One provider that is to be asked."""

    provider: Provider
    model: Model
    named: bool
    """Whether the user named the provider."""
    guessed: bool
    """Whether the model's name is a guess."""
    url: str
    """Of the server that is asked; empty if evalkit starts it."""
    server: str = ""
    """What it is called, if the provider has several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProviderLine:
    """The result for one provider."""

    provider: str
    model: str
    text: str
    failed: bool
    stream: str = ""
    """What came of the request for a stream; empty: there was none."""


def check(names: Sequence[str], model: str | None) -> int:
    """Check these providers, or all. Raises UsageError for an unknown name."""
    from evalkit.report.render.terminal import console as console_of

    if model and len(names) != 1:
        raise UsageError("providers check: --model needs the name of exactly one provider.")
    console = console_of()
    cases: list[_ProviderCheck] = []
    lines: list[_ProviderLine] = []
    for name in names or provider_names():
        outcome = _cases(name, model, named=bool(names))
        if isinstance(outcome, _ProviderLine):
            lines.append(outcome)
        else:
            cases += outcome
    if cases:
        console.print(_announcement(cases), style="dim")
        lines += asyncio.run(_ask_all(cases))
    _print(lines, console)
    return NOT_ALL_WORK if any(line.failed for line in lines) else 0


def _cases(name: str, model: str | None, *, named: bool) -> list[_ProviderCheck] | _ProviderLine:
    """What to ask of each of its servers, or why the provider is not asked."""
    provider = read_provider(name)
    try:
        missing = lacking(provider)
        if missing and not named:
            return _ProviderLine(provider=name, model="", text=f"skipped: {missing}", failed=False)
        servers = servers_of(provider)
    except UsageError as flaw:
        return _ProviderLine(provider=name, model="", text=str(flaw), failed=named)
    chosen, guessed = _choose(provider, model)
    called = short_names(servers) if len(servers) > 1 else [""]
    return [
        _ProviderCheck(provider=provider, model=chosen, named=named, guessed=guessed, url=server.url, server=name)
        for server, name in zip(servers, called, strict=True)
    ]


def _choose(provider: Provider, model: str | None) -> tuple[Model, bool]:
    """The model to ask, and whether its name is a guess. Without a given name it is the cheapest listed model."""
    from evalkit.client.check import most

    if model:
        return find_model(provider, model), False
    listed = [find_model(provider, name) for name in provider.models]
    priced = [(cost, candidate) for candidate in listed if (cost := most(provider, candidate)) is not None]
    if priced:
        return min(priced, key=lambda pair: pair[0])[1], False
    if listed:
        return listed[0], False
    name = _UNNAMED if provider.simulate is None else _SERVED_BY_SIMULATOR
    return find_model(provider, name), provider.simulate is None


def _announcement(cases: Sequence[_ProviderCheck]) -> str:
    from evalkit.client.check import WITHIN_S, most

    unknown, cost = 0, 0
    for case in cases:
        if case.provider.simulate is None:
            bound = most(case.provider, case.model)
            unknown, cost = unknown + (bound is None), cost + (bound or 0)
    words = f"at most {show_usd(cost)}"
    if unknown:
        words += f", plus {unknown} of unknown price"
    kind = "servers" if any(case.server for case in cases) else "providers"
    who = "1 provider" if len(cases) == 1 else f"each of {len(cases)} {kind}"
    return f"Sends two requests to {who}, the first again as a stream, within {WITHIN_S:g} s each: {words}."


async def _ask_all(cases: Sequence[_ProviderCheck]) -> list[_ProviderLine]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_ask(case)) for case in cases]
    return [task.result() for task in tasks]


async def _ask(case: _ProviderCheck) -> _ProviderLine:
    from evalkit.client.check import check as ask

    name, model = case.provider.name, case.model.name
    try:
        with ExitStack() as stack:
            url = case.url
            if case.provider.simulate is not None:
                from evalkit.serve.launch import launched

                url = await asyncio.to_thread(stack.enter_context, launched(case.provider))
            finding = await ask(case.provider, case.model, url=url)
    except EvalkitError as flaw:
        return _ProviderLine(provider=name, model=model, text=str(flaw), failed=True)
    line = _line(case, finding)
    return replace(line, text=f"{case.server}: {line.text}") if case.server else line


def _line(case: _ProviderCheck, finding: "CheckResult") -> _ProviderLine:
    from evalkit.client.transport import is_loopback

    name, model = case.provider.name, case.model.name
    if finding.kind == "connect" and is_loopback(urlsplit(case.url).hostname or ""):
        text = f"not running at {case.url}"
        return _ProviderLine(provider=name, model="", text=text, failed=case.named)
    if finding.kind == "unknown_model" and case.guessed:
        text = f"it is running; name one of its models: evalkit providers check {name} --model MODEL"
        return _ProviderLine(provider=name, model="", text=text, failed=False)
    if finding.kind != "ok":
        return _ProviderLine(provider=name, model=model, text=finding.message, failed=True)
    usage = finding.usage
    cost = "cost unknown" if finding.cost is None else show_usd(finding.cost)
    if case.provider.simulate is not None:
        cost += " (simulated money)"
    missing = [name for name in ("input", "output") if name in usage.unknown]
    counted = f"{usage.input} tokens in, {usage.output} out"
    if missing:
        what = "usage" if len(missing) > 1 else f"{missing[0]} usage"
        counted = f"the reply has no {what}: a run charges the worst case"
        cost = cost if finding.cost is None else f"{cost} here"
    text = f"ok in {finding.latency_s:.2f} s: {finding.served or 'no model named'}, {counted}, {cost}"
    stream = finding.stream
    failed = stream is not None and stream.failed
    said = "not asked for" if stream is None else stream.words
    return _ProviderLine(provider=name, model=model, text=text, failed=failed, stream=said)


def _print(lines: Sequence[_ProviderLine], console: "Console") -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    for column in ("provider", "model", "result", "as a stream"):
        table.add_column(column, overflow="fold")
    for line in sorted(lines, key=lambda line: line.provider):
        said = [" ".join(bounded(text, _MESSAGE_CHARS).split()) for text in (line.text, line.stream)]
        # Of a line that has both, the first was a success.
        styles = [line.failed and not line.stream, line.failed and bool(line.stream)]
        cells = [Text(text, style="bold red" if red else "") for text, red in zip(said, styles, strict=True)]
        table.add_row(line.provider, Text(line.model), *cells)
    console.print(table)


CHECK = "check"


def providers(args: argparse.Namespace) -> int:
    """Print a table of all providers, or of one provider's models; `check` sends requests to them."""
    from rich.table import Table

    from evalkit.report.render.terminal import console as console_of

    if args.name == CHECK:
        return check(args.names, args.model)
    if args.model:
        raise UsageError(f"providers: --model goes with `providers {CHECK} PROVIDER`.")
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
    urls = ", ".join(filter(None, (server.url for server in provider.servers)))
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
