"""Twilio's Messages as they are documented: create and list.

Nothing on the wire names a message but its receiver and its text (or content template and variables). So
the ledger's `id` is the text, and its key is of receiver and text.

Credentials: `account_sid` (AC and 32 zeros), `auth_token`. Sources: see
channels/providers/twilio/adapter.py.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import partial
from hashlib import sha256
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from simulator.ledger import LedgerRecord
from simulator.protocols._json import json_reply, parsed
from simulator.protocols._sms import is_number
from simulator.servers.http_request import Request
from simulator.wire import (
    OneReceiver,
    ProtocolContext,
    Question,
    ReceivedCall,
    Recipient,
    Reply,
    Verdict,
)

_ACCOUNT: Final = "AC" + "0" * 32
_MAX_TEXT: Final = 1_600
_MAX_URL: Final = 4_000
_ENCODED = re.compile(r"[!-~]+")
_MAX_PAGE: Final = 1_000
_DEFAULT_PAGE: Final = 50
_FORM: Final = "application/x-www-form-urlencoded"
_CONTENT = re.compile(r"HX[0-9a-fA-F]{32}", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_STATUSES: Final = {
    **dict.fromkeys(("20003", "70051"), 401),
    **dict.fromkeys(("20005", "20006", "20403"), 403),
    "20404": 404,
    **dict.fromkeys(("20429", "63038"), 429),
    "20500": 500,
    "20503": 503,
    "20504": 504,
}
"""HTTP statuses of the codes that do not answer 400."""
_DATES: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "DateSent": lambda day, asked: day == asked,
    "DateSent<": lambda day, asked: day <= asked,
    "DateSent>": lambda day, asked: day >= asked,
}


class TwilioProtocol(OneReceiver):
    """Belongs to the loop's thread."""

    name = "twilio"

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._account = world.credential(self.name, "account_sid", _ACCOUNT)
        self._login = f"{self._account}:{world.credential(self.name, 'auth_token')}"
        self._messages: dict[str, list[LedgerRecord]] = {}
        self._callback = ""
        """Callback of the call that is being decided."""

    def read(self, request: Request, path: str) -> ReceivedCall | Question | Reply:
        """Checks login and address, then the parameters of POST or GET."""
        if _login(request) != self._login:
            return self.refuse("20003")
        if not path.endswith(f"/2010-04-01/Accounts/{self._account}/Messages.json"):
            return self.refuse("20404")
        self._callback = ""
        if request.method == "POST":
            return self._send(request)
        if request.method == "GET":
            return self._question(dict(parse_qsl(request.query)))
        return json_reply({"code": 20004, "message": "Method not allowed", "status": 405}, 405)

    def provider_id(self, seq: int) -> str:
        """Returns a message SID; its receipts go to the callback of the call that is being decided."""
        sid = f"SM{seq:032x}"
        if self._callback:
            self.world.callbacks[sid] = self._callback
        return sid

    def accepted(self, record: LedgerRecord) -> None:
        """Adds a message to the list."""
        self._messages.setdefault(record.receiver, []).append(record)

    def taken(self, send: ReceivedCall, verdict: Verdict) -> Reply:
        """Returns the message, queued."""
        to, now_ms = verdict.recipient.receiver, self.world.now_ms()
        message = self._resource(verdict.provider_id, to, send.id, now_ms)
        return json_reply({**message, "status": "queued", "date_sent": None}, 201)

    def refuse(self, code: str) -> Reply:
        """Returns Twilio's error envelope."""
        status = _STATUSES.get(code, 400)
        number = int(code) if code.isdigit() else 0
        info = f"https://www.twilio.com/docs/errors/{code}"
        content = {"code": number, "message": f"simulated: {code}", "more_info": info}
        return json_reply({**content, "status": status}, status)

    def _send(self, request: Request) -> ReceivedCall | Reply:
        if request.field("content-type").partition(";")[0].strip() != _FORM:
            return self.refuse("21604")
        form = dict(parse_qsl(request.body.decode("utf-8", "replace"), keep_blank_values=True))
        if fault := _fault(form):
            return self.refuse(fault)
        self._callback = form.get("StatusCallback", "")
        text = (
            form.get("Body") or f"{form['ContentSid']} {form.get('ContentVariables', '')}".strip()
        )
        digest = sha256(text.encode()).hexdigest()[:16]
        return ReceivedCall([Recipient(form["To"], f"{self.name}:{form['To']}:{digest}")], text)

    def _question(self, query: Mapping[str, str]) -> Question | Reply:
        size = query.get("PageSize", str(_DEFAULT_PAGE))
        if not (size.isdigit() and 1 <= int(size) <= _MAX_PAGE):
            return json_reply({"code": 20001, "message": "PageSize", "status": 400}, 400)
        if any(name in query and not _DATE.fullmatch(query[name]) for name in _DATES):
            return json_reply({"code": 20001, "message": "DateSent", "status": 400}, 400)
        to = query.get("To", "")
        return Question("GET", partial(self._listed, query, int(size)), to, to)

    def _listed(self, query: Mapping[str, str], size: int) -> Reply:
        """Returns the newest first; a page token is the number of messages before it."""
        found = [
            one
            for one in reversed(self._of(query.get("To", "")))
            if _fits(one, query) and self.world.listed(one.at_ms)
        ]
        token = query.get("PageToken", "PA0").removeprefix("PA")
        first = int(token) if token.isdigit() else 0
        shown = found[first : first + size]
        rest = first + size < len(found)
        messages = [self._shown(record) for record in shown]
        following = self._uri({**query, "PageToken": f"PA{first + size}"}) if rest else None
        return json_reply(
            {
                "messages": messages,
                "page": first // size,
                "page_size": size,
                "uri": self._uri(query),
                "next_page_uri": following,
            }
        )

    def _of(self, to: str) -> list[LedgerRecord]:
        if to:
            return self._messages.get(to, []) if self.world.lists.numbers else []
        return sorted((r for kept in self._messages.values() for r in kept), key=lambda r: r.seq)

    def _shown(self, record: LedgerRecord) -> dict[str, Any]:
        """Returns a message as the list has it: redacted as far as the account redacts."""
        lists, to = self.world.lists, record.receiver
        to = to if lists.numbers else to[:-4] + "XXXX"
        text = record.id if lists.texts else ""
        return self._resource(record.provider_id, to, text, record.at_ms)

    def _uri(self, query: Mapping[str, str]) -> str:
        return f"/2010-04-01/Accounts/{self._account}/Messages.json?{urlencode(query)}"

    def _resource(self, sid: str, to: str, text: str, at_ms: int) -> dict[str, Any]:
        at = format_datetime(datetime.fromtimestamp(at_ms // 1_000, UTC))
        return {
            "sid": sid,
            "account_sid": self._account,
            "to": to,
            "body": text,
            "direction": "outbound-api",
            "status": "delivered",
            "date_created": at,
            "date_updated": at,
            "date_sent": at,
            "error_code": None,
            "error_message": None,
            "api_version": "2010-04-01",
            "uri": f"/2010-04-01/Accounts/{self._account}/Messages/{sid}.json",
        }


def _login(request: Request) -> str:
    scheme, _, token = request.field("authorization").partition(" ")
    try:
        return b64decode(token, validate=True).decode() if scheme == "Basic" else ""
    except (NotBase64, UnicodeDecodeError):
        return ""


def _fault(form: Mapping[str, str]) -> str:
    if not form.get("To"):
        return "21604"
    if not is_number(form["To"]):
        return "21211"
    if not (form.get("From") or form.get("MessagingServiceSid")):
        return "21603"
    if not form.get("Body") and not form.get("ContentSid"):
        return "21619" if form.get("MessagingServiceSid") else "21602"
    if len(form.get("Body", "")) > _MAX_TEXT:
        return "21617"
    if not _is_callback(form.get("StatusCallback", "")):
        return "21609"
    return _content_fault(form)


def _is_callback(url: str) -> bool:
    """Returns whether it is empty, or a full URL of at most 4,000 characters without an underscore in its
    host. Twilio also refuses one that it cannot reach; the simulator reaches its own host."""
    if not url:
        return True
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    full = parts.scheme in ("http", "https") and host and parts.path
    return (
        bool(full)
        and "_" not in host
        and len(url) <= _MAX_URL
        and _ENCODED.fullmatch(url) is not None
    )


def _content_fault(form: Mapping[str, str]) -> str:
    if "ContentSid" not in form:
        return "21654" if "ContentVariables" in form else ""
    if not _CONTENT.fullmatch(form["ContentSid"]):
        return "21655"
    variables = parsed(form["ContentVariables"]) if "ContentVariables" in form else {}
    return "" if isinstance(variables, dict) else "21656"


def _fits(record: LedgerRecord, query: Mapping[str, str]) -> bool:
    day = datetime.fromtimestamp(record.at_ms / 1_000, UTC).date().isoformat()
    return all(fits(day, query[name]) for name, fits in _DATES.items() if name in query)


PROTOCOLS = (TwilioProtocol,)
