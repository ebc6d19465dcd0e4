#!/usr/bin/env python3
"""Post new alarms of `evalkit nightly` to a chat, which calls this with the facts as JSON on standard input:

    evalkit nightly runs/nightly.toml --on-alarm ".venv/bin/python docs/recipes/alarm_webhook.py"

WEBHOOK_URL is the address that the chat gives out; it is a secret, so keep it in keys.env. WEBHOOK_FIELD is what the
chat calls the text: `text` (default: Slack, Mattermost, Teams) or `content` (Discord).
Try it: `.venv/bin/python docs/recipes/alarm_webhook.py < docs/recipes/alarm.json`
"""

import json
import os
import shlex
import sys
import urllib.error
import urllib.request
from typing import Any

WITHIN_S = 30


def text_of(facts: dict[str, Any]) -> str:
    """The alarms that are new tonight, a line each, with the command that shows the difference."""
    if facts.get("summary"):  # a share of the budget is spent
        return f"{facts['sweep']}: {facts['summary']}"
    lines = [f"Regression in {facts['sweep']}, night {facts['night']}:"]
    for alarm in facts["alarms"]:
        if alarm["new"]:
            look = f" (`{shlex.join(alarm['compare'])}`)" if alarm["compare"] else ""
            lines.append(f"{alarm['agent']} on {alarm['suite']}: {alarm['words']}{look}")
    return "\n".join(lines)


def post(url: str, text: str) -> None:
    """Send the text. Raises OSError, ValueError if the address is none."""
    if not url.startswith(("https://", "http://")):
        raise ValueError("WEBHOOK_URL must begin with https://")
    body = json.dumps({os.environ.get("WEBHOOK_FIELD", "text"): text}).encode()
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=WITHIN_S):  # noqa: S310 - the scheme is checked above
        pass


if __name__ == "__main__":
    try:
        post(os.environ.get("WEBHOOK_URL", ""), text_of(json.load(sys.stdin)))
    except urllib.error.HTTPError as flaw:
        sys.exit(f"The chat answered {flaw.code}: {flaw.reason}")
    except (OSError, ValueError) as flaw:
        sys.exit(f"Nothing was posted: {flaw}")  # the address is a secret: no message names it
