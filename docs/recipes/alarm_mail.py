#!/usr/bin/env python3
"""Mail new alarms of `evalkit nightly`, which calls this with the facts as JSON on standard input:

    evalkit nightly runs/nightly.toml --on-alarm ".venv/bin/python docs/recipes/alarm_mail.py you@example.org"

MAIL_SERVER (host:port, default localhost:25) takes the mail; MAIL_FROM is the sender (default: the recipient). If
MAIL_USER is set, the connection is encrypted (STARTTLS) and MAIL_PASSWORD is sent. Keep these in keys.env.
Try it: `.venv/bin/python docs/recipes/alarm_mail.py you@example.org < docs/recipes/alarm.json`
"""

import json
import os
import shlex
import smtplib
import ssl
import sys
from email.message import EmailMessage
from typing import Any

WITHIN_S = 30


def mail_of(facts: dict[str, Any], to: str) -> EmailMessage:
    """One mail about the alarms that are new tonight."""
    new = [alarm for alarm in facts["alarms"] if alarm["new"]]
    mail = EmailMessage()
    mail["To"] = to
    mail["From"] = os.environ.get("MAIL_FROM", to)
    names = ", ".join(sorted({alarm["agent"] for alarm in new}))
    told = facts.get("summary") or f"regression of {names}"  # a share of the budget is spent, or
    mail["Subject"] = " ".join(f"{facts['sweep']} {facts['night']}: {told}".split())
    lines = [facts["summary"]] if facts.get("summary") else []
    for alarm in new:
        lines += [f"{alarm['agent']} on {alarm['suite']}", f"  {alarm['words']}"]
        if alarm["served_before"] and alarm["served"] != alarm["served_before"]:
            lines.append(f"  served: {', '.join(alarm['served'])}; before: {', '.join(alarm['served_before'])}")
        if alarm["compare"]:
            lines.append(f"  {shlex.join(alarm['compare'])}")
        lines.append("")
    mail.set_content("\n".join([*lines, f"The night: {facts['run']}"]))
    return mail


def send(mail: EmailMessage) -> None:
    """Hand the mail to the server. Raises OSError or smtplib.SMTPException."""
    host, _, port = os.environ.get("MAIL_SERVER", "localhost:25").partition(":")
    with smtplib.SMTP(host, int(port or 25), timeout=WITHIN_S) as server:
        user = os.environ.get("MAIL_USER")
        if user:
            server.starttls(context=ssl.create_default_context())
            server.login(user, os.environ["MAIL_PASSWORD"])
        server.send_message(mail)


if __name__ == "__main__":
    try:
        send(mail_of(json.load(sys.stdin), sys.argv[1]))
    except (OSError, smtplib.SMTPException) as flaw:
        sys.exit(f"The mail was not sent: {flaw}")
