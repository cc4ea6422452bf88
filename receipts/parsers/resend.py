"""Resend: webhooks, signed as Svix does.

    POST  {"type":"email.delivered","created_at":"2024-02-22T23:41:12.126Z",
           "data":{"email_id":"56761188-…","to":["ann@example.com"],…}}
          svix-id, svix-timestamp (seconds), svix-signature: v1,<base64>[ v1,<base64> …]
    2xx   whatever its body

The signature is HMAC-SHA256 over `<id>.<timestamp>.<body>` with the base64 bytes after `whsec_`. One right
signature of several is enough, so that secrets can be changed. A timestamp older or newer than five minutes
is refused. A complaint, an opening, a click prove the arrival; a delay proves nothing.

Sources: https://resend.com/docs/dashboard/webhooks/event-types
https://resend.com/docs/dashboard/webhooks/verify-webhooks-requests
https://docs.svix.com/receiving/verifying-payloads/how-manual
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from datetime import datetime
from email.utils import parseaddr
from typing import ClassVar, Final

import msgspec

from channels.secret import Secret
from idempotency.receipts.rules import Receipt, ReceiptState
from message.keys import normalise_receiver
from receipts.push import Malformed, Parsed, Parser, Push, Unauthentic, check_age, same

_TOLERANCE_S: Final = 300
_PREFIX: Final = "whsec_"
_SAID: Final = {
    "email.sent": ReceiptState.SENT,
    "email.delivered": ReceiptState.DELIVERED,
    "email.opened": ReceiptState.DELIVERED,
    "email.clicked": ReceiptState.DELIVERED,
    "email.complained": ReceiptState.DELIVERED,
    "email.bounced": ReceiptState.UNDELIVERED,
    "email.failed": ReceiptState.UNDELIVERED,
    "email.suppressed": ReceiptState.UNDELIVERED,
}


class ResendSigning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The secret that checks the account's receipts."""

    signing_secret: Secret
    """`whsec_…`, as the webhook's page shows it."""

    def __post_init__(self) -> None:
        _key(self.signing_secret)


class _Bounce(msgspec.Struct):
    type: str = ""


class _Data(msgspec.Struct):
    email_id: str
    to: list[str] | str = []
    bounce: _Bounce | None = None


class _Event(msgspec.Struct):
    type: str
    created_at: datetime | None = None
    data: msgspec.Raw = msgspec.Raw(b"{}")


class ResendWebhooks(Parser):
    provider: ClassVar[str] = "resend"
    options: ClassVar[type[msgspec.Struct]] = ResendSigning

    def parse(self, push: Push, options: ResendSigning) -> Parsed:
        """Returns the receipt of one event; none for an event that proves nothing about arrival."""
        _check(push, options)
        try:
            event = msgspec.json.decode(push.body, type=_Event)
            state = _SAID.get(event.type)
            if state is None:
                return Parsed()
            data = msgspec.json.decode(event.data, type=_Data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise Malformed(f"an event is expected: {exc}") from exc
        if not data.email_id:
            raise Malformed("an event's email_id is expected")
        return Parsed([_receipt(push.account, event, state, data)])


def signature(signing_secret: Secret, message_id: str, timestamp: str, body: bytes) -> str:
    """Returns the signature that follows `v1,`."""
    text = f"{message_id}.{timestamp}.".encode(errors="replace") + body
    return b64encode(hmac.digest(_key(signing_secret), text, "sha256")).decode()


def _check(push: Push, options: ResendSigning) -> None:
    message_id, timestamp = push.fields.get("svix-id", ""), push.fields.get("svix-timestamp", "")
    wanted = signature(options.signing_secret, message_id, timestamp, push.body)
    given = [one.partition(",") for one in push.fields.get("svix-signature", "").split()]
    if not any(version == "v1" and same(made, wanted) for version, _, made in given):
        raise Unauthentic("svix-signature is missing or wrong")
    check_age(push, timestamp, _TOLERANCE_S)


def _key(signing_secret: Secret) -> bytes:
    """Returns the key's bytes. Raises ValueError, which does not show them."""
    try:
        return b64decode(signing_secret.reveal().removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("signing_secret must be whsec_ and base64") from None


def _receipt(account: str, event: _Event, state: ReceiptState, data: _Data) -> Receipt:
    """Returns the receipt. An event of a mail to several does not name its receiver."""
    to = [data.to] if isinstance(data.to, str) else data.to
    code = event.type.removeprefix("email.")
    if data.bounce is not None and data.bounce.type:
        code = f"{code}:{data.bounce.type}"
    return Receipt(
        account=account,
        said=state,
        provider_id=data.email_id,
        receivers=(normalise_receiver("email", parseaddr(to[0])[1]),) if len(to) == 1 else (),
        code=code if state is ReceiptState.UNDELIVERED else None,
        at=int(event.created_at.timestamp() * 1_000) if event.created_at else 0,
    )


PARSERS = (ResendWebhooks(),)
