"""GeTui push: the receipt (消息回执), pushed to the application's address, which GeTui sets up on request.

    POST  one JSON object a line:
          {"appid","cid","taskid","msgid","code":"200","desc","sign"}      sign = MD5 hex of appid, cid,
    200   anything                                                         taskid, msgid, master secret

`taskid` is the id in the push's answer. Code 200: it arrived. 400: Apple refused it; 401: no
such user; 402: an inactive user; 500: an error inside. Each line is signed by itself; one with a wrong
signature refuses the whole push. After three failures to connect GeTui gives a receipt up.

Source, read 2026-11-22: https://docs.getui.com/getui/server/receipt/
"""

from __future__ import annotations

from hashlib import md5
from typing import ClassVar, Final

import msgspec

from channels.secret import Secret
from idempotency.receipts.rules import Receipt, ReceiptState
from receipts.push import Malformed, Parsed, Parser, Push, Unauthentic, same

_ARRIVED: Final = "200"
_MAX_LINES: Final = 10_000


class GetuiSigning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The secret that checks receipts."""

    master_secret: Secret
    """The application's; its account signs in with it, too."""


class _Line(msgspec.Struct):
    appid: str
    cid: str
    taskid: str
    msgid: str = ""
    code: str | int = ""
    sign: str = ""


_decoder = msgspec.json.Decoder(_Line)


class GetuiReceipts(Parser):
    provider: ClassVar[str] = "getui"
    options: ClassVar[type[msgspec.Struct]] = GetuiSigning

    def parse(self, push: Push, options: GetuiSigning) -> Parsed:
        """Returns the receipts of any tasks and devices."""
        lines = [line for line in push.body.splitlines() if line.strip()]
        if not lines or len(lines) > _MAX_LINES:
            raise Malformed("one to 10,000 lines of JSON are expected")
        read = [line for line in map(_read, lines) if line is not None]
        if not read:
            raise Malformed(f"none of the {len(lines)} lines has the documented fields")
        secret = options.master_secret.reveal()
        if not all(same(line.sign.lower(), signature(line, secret)) for line in read):
            raise Unauthentic("a line's sign is missing or wrong")
        receipts = [_receipt(push.account, line) for line in read]
        return Parsed(receipts, unreadable=len(lines) - len(read))


def signature(line: _Line, secret: str) -> str:
    """Returns the value of `sign`."""
    text = f"{line.appid}{line.cid}{line.taskid}{line.msgid}{secret}"
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def _read(line: bytes) -> _Line | None:
    """Returns the line; None for one that cannot be read, or that names no task."""
    try:
        read = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return read if read.taskid else None


def _receipt(account: str, line: _Line) -> Receipt:
    code = str(line.code)
    return Receipt(
        account=account,
        said=ReceiptState.DELIVERED if code == _ARRIVED else ReceiptState.UNDELIVERED,
        provider_id=line.taskid,
        code=None if code == _ARRIVED else code,
    )


PARSERS = (GetuiReceipts(),)
