"""How a notice is sent: posted to a webhook, or mailed. Each either has been taken by the other side, or raises."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import smtplib
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, Protocol

import httpx

from gpufair.core.errors import GpufairError
from gpufair.service.settings.notification_options import MAIL, WEBHOOK, MailOptions, WebhookOptions

SIGNATURE = "X-Gpufair-Signature"  # t=Unix seconds, sha256=HMAC of "t.body" in hexadecimal digits
ID = "X-Gpufair-Id"


class NotSent(GpufairError):
    """A notice was not taken."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(where, why)
        self.where, self.why = where, why

    def __str__(self) -> str:
        return f"{self.where} did not take a notice: {self.why}"


class Sender(Protocol):
    """A way to people."""

    channel: str

    async def send(self, notice: Mapping[str, Any], now_s: float) -> None:
        """Send it; without an address for its user nothing is sent.

        Raises: GpufairError: It was not taken. The text holds no secret.
        """

    async def close(self) -> None:
        """No more is sent."""


class Webhook:
    """JSON by POST. What is answered is not read, and nobody is followed elsewhere."""

    channel = WEBHOOK

    def __init__(self, options: WebhookOptions) -> None:
        self._options, self._secret = options, options.secret.reader()
        self._client = httpx.AsyncClient(timeout=options.timeout / 1000, follow_redirects=False, trust_env=False)

    async def send(self, notice: Mapping[str, Any], now_s: float) -> None:
        """See ``Sender``."""
        url = self._options.address(str(notice["user"]))
        if not url:
            return
        where = f"the webhook at {httpx.URL(url).host}"  # the rest of it may be as good as a password
        body = json.dumps(dict(notice), ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "gpufair", ID: str(notice["id"])}
        if self._options.secret:
            headers[SIGNATURE] = signature(await asyncio.to_thread(self._secret), int(now_s), body)
        try:
            async with (
                asyncio.timeout(self._options.timeout / 1000),
                self._client.stream("POST", url, content=body, headers=headers) as answer,
            ):
                status = answer.status_code
        except (httpx.HTTPError, TimeoutError) as err:
            raise NotSent(where, type(err).__name__) from err
        if not 200 <= status < 300:
            raise NotSent(where, f"it answered {status}")

    async def close(self) -> None:
        """See ``Sender``."""
        await self._client.aclose()


def signature(secret: str, at_s: int, body: bytes) -> str:
    """The header by which a receiver knows who has sent it, and when."""
    digest = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},sha256={digest}"


class Mail:
    """A message of plain text for each notice, in a thread: smtplib waits."""

    channel = MAIL

    def __init__(self, options: MailOptions) -> None:
        self._options, self._password = options, options.password.reader()

    async def send(self, notice: Mapping[str, Any], now_s: float) -> None:
        """See ``Sender``."""
        address = self._options.address(str(notice["user"]))
        if address:
            await asyncio.to_thread(self._deliver, message_of(notice, self._options.sender, address, now_s))

    def _deliver(self, message: EmailMessage) -> None:
        options, context = self._options, ssl.create_default_context()
        where, seconds = f"the mail server {options.host}:{options.port}", options.timeout / 1000
        try:
            with (
                smtplib.SMTP_SSL(options.host, options.port, timeout=seconds, context=context)
                if options.security == "tls"
                else smtplib.SMTP(options.host, options.port, timeout=seconds)
            ) as server:
                if options.security == "starttls":
                    server.starttls(context=context)
                if options.user:
                    server.login(options.user, self._password())
                server.send_message(message)
        except smtplib.SMTPResponseException as err:  # its text may repeat what was said to it
            raise NotSent(where, f"it answered {err.smtp_code}") from err
        except (OSError, smtplib.SMTPException) as err:
            raise NotSent(where, type(err).__name__) from err

    async def close(self) -> None:
        """See ``Sender``."""


def message_of(notice: Mapping[str, Any], sender: str, address: str, now_s: float) -> EmailMessage:
    """The notice as a mail."""
    message = EmailMessage()
    text = str(notice["text"])
    subject = " ".join(text.split())
    message["Subject"] = f"[gpufair] {subject if len(subject) <= 120 else subject[:119] + '…'}"
    message["From"], message["To"], message["Date"] = sender, address, formatdate(now_s)
    message["Message-ID"] = f"<{hashlib.sha256(str(notice['id']).encode()).hexdigest()[:32]}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # so that no absence assistant answers
    message[ID] = str(notice["id"])
    about = [f"{name}: {notice[name]}" for name in ("workload", "allocation") if notice.get(name)]
    message.set_content("\n".join([f"{text}.", "", *about, ""]))
    return message
