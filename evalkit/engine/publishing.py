"""What a run says of itself to other processes while it is played."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.store.bucket import is_bucket
from evalkit.store.live import publish

if TYPE_CHECKING:
    from evalkit.engine.view import View


SHOW_EVERY_S = 0.25
"""How often a run is looked at while it is played."""
EVERY, PUT_EVERY = 2, 20
"""Looks at the run for each that is published: on a disk, and in a bucket, where each is a request."""


async def tell_others(directory: Path, number: int, view: "View") -> None:
    """Publish a look at the run if it is time. `number`: of the look."""
    if not is_bucket(directory):
        if number % EVERY == 0:
            publish(directory, view.published())
    elif number % PUT_EVERY == 0:
        await asyncio.to_thread(publish, directory, view.published())
