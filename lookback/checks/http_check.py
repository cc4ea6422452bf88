"""A check over HTTP.

    GET <url>?biz_type=order&biz_id=1001&tx_id=0192…
    200 {"state": "COMMIT|ROLLBACK|UNKNOWN", "biz_id": "1001", "fenced": true}

Only such an answer is taken. Another status, another id, a redirect, a body without a state or over 64 KiB,
and an answer that is late are failures, and so UNKNOWN, each with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import Any, Final
from urllib.parse import urlencode

from backends.check_settings import CheckSettings
from channels.endpoints import Endpoint, with_query
from channels.engine import Sender
from channels.json_fetch import FetchFailed, FetchRefused, JsonFetch
from hongyan_client.lookback.identity import TransactionRef
from hongyan_client.lookback.signature import signed_headers
from lookback.check import Answer, CheckReply
from lookback.checks.errors import CheckFailed, CheckNotMade
from message.foreign_text import shown

_MOST: Final = 64 << 10
"""Bytes of an answer."""
_MOST_DETAIL: Final = 200


class HttpCheck:
    """Implements `lookback.checks.guarded.CheckQuestion`. Thread-safe as `sender` is."""

    def __init__(
        self,
        url: Endpoint,
        settings: CheckSettings,
        sender: Sender,
        now: Callable[[], float] = time,
    ) -> None:
        self._url = url
        self._secret = settings.secret
        self._fetch = JsonFetch(
            sender,
            timeout_s=settings.timeout_s,
            ca_file=settings.ca_file,
            most=_MOST,
            plaintext=settings.plaintext,
        )
        self._now = now

    def ask(self, ref: TransactionRef) -> CheckReply:
        """Asks once. Raises CheckFailed, CheckNotMade."""
        address = str(with_query(self._url, urlencode(ref._asdict())))
        try:
            found = self._fetch.get(address, signed_headers(self._secret, ref, self._now()))
        except FetchRefused as exc:
            raise CheckNotMade(detail_of(str(exc))) from exc
        except FetchFailed as exc:
            raise CheckFailed(detail_of(str(exc))) from exc
        return _reply_of(found, ref.biz_id)


def _reply_of(found: dict[str, Any], biz_id: str) -> CheckReply:
    state = found.get("state")
    if state not in list(Answer):
        raise CheckFailed("its answer has no state of COMMIT, ROLLBACK, UNKNOWN")
    if found.get("biz_id") != biz_id:
        raise CheckFailed("its answer is for another biz_id, or for none")
    if state == Answer.UNKNOWN:
        return CheckReply(Answer.UNKNOWN, unknown_detail(found.get("detail")))
    return CheckReply(Answer(state), fenced=found.get("fenced") is True)


def unknown_detail(given: object) -> str:
    """Returns the reason of a business that does not know."""
    return detail_of(f"the business does not know: {given or 'no reason given'}")


def detail_of(text: str) -> str:
    """Returns a text as it may be kept and shown."""
    return shown(text)[:_MOST_DETAIL]
