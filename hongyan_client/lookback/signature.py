"""The signature of a check's question: HMAC-SHA256 over time, nonce and the transaction's three names.

    Hongyan-Timestamp: 1790000000
    Hongyan-Nonce: 0192f3c47b1a7cc0a1b2c3d4e5f60718
    Hongyan-Signature: v1=<hex>      over "timestamp\\nnonce\\nbiz_type\\nbiz_id\\ntx_id"

gRPC carries the same as metadata, its names in lower case. A repeated nonce is refused, so a question that
was overheard gets no second answer.
"""

from __future__ import annotations

import hmac
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from time import time
from typing import Final
from uuid import uuid4

from hongyan_client.lookback.errors import NotSigned
from hongyan_client.lookback.identity import TransactionRef

TIMESTAMP: Final = "Hongyan-Timestamp"
NONCE: Final = "Hongyan-Nonce"
SIGNATURE: Final = "Hongyan-Signature"
WINDOW_S: Final = 300
"""Seconds by which the two clocks may differ."""
_SCHEME: Final = "v1="
_MOST_NONCES: Final = 100_000
_MOST_NONCE: Final = 64
_MOST_DIGITS: Final = 12


def signed_headers(secret: str, ref: TransactionRef, now: float) -> list[tuple[str, str]]:
    """Returns the headers of one question; none without a secret."""
    if not secret:
        return []
    stamp, nonce = str(int(now)), uuid4().hex
    digest = _digest(secret, stamp, nonce, ref)
    return [(TIMESTAMP, stamp), (NONCE, nonce), (SIGNATURE, f"{_SCHEME}{digest}")]


class QuestionVerifier:
    """Verifies questions. Safe from any thread; one for a process.

    Each process remembers its own nonces: behind a load balancer, a question can be repeated once in each
    of them within the window.
    """

    def __init__(self, secrets: Sequence[str], now: Callable[[], float] = time) -> None:
        """`secrets`: each of them is good, so that one can be replaced by the next. Raises ValueError
        without any."""
        if not secrets or not all(secrets):
            raise ValueError("give the secret that the look-back service signs its questions with")
        self._secrets = tuple(secrets)
        self._now = now
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, float] = OrderedDict()
        """Nonces with the time of their question, oldest first; guarded by `_lock`."""

    def verify(self, headers: Mapping[str, str], ref: TransactionRef) -> None:
        """Raises NotSigned unless the question is signed, of now, and new."""
        found = {name.lower(): value for name, value in headers.items()}
        stamp, nonce = found.get(TIMESTAMP.lower(), ""), found.get(NONCE.lower(), "")
        given = found.get(SIGNATURE.lower(), "")
        if not (stamp and nonce and given):
            raise NotSigned("the question has no signature; set the endpoint's secret")
        if not _is_number(stamp) or abs(self._now() - int(stamp)) > WINDOW_S:
            raise NotSigned("the question's time is not now; set the clocks of both sides")
        if len(nonce) > _MOST_NONCE or not self._is_ours(given, stamp, nonce, ref):
            raise NotSigned("the signature is wrong; both sides need the same secret")
        if not self._is_new(nonce):
            raise NotSigned("the question was asked before with this nonce")

    def _is_ours(self, given: str, stamp: str, nonce: str, ref: TransactionRef) -> bool:
        wanted = (f"{_SCHEME}{_digest(secret, stamp, nonce, ref)}" for secret in self._secrets)
        return any(hmac.compare_digest(given.encode(), one.encode()) for one in wanted)

    def _is_new(self, nonce: str) -> bool:
        now = self._now()
        with self._lock:
            while self._seen and (
                next(iter(self._seen.values())) < now - 2 * WINDOW_S
                or len(self._seen) >= _MOST_NONCES
            ):
                self._seen.popitem(last=False)
            if nonce in self._seen:
                return False
            self._seen[nonce] = now
            return True


def _digest(secret: str, stamp: str, nonce: str, ref: TransactionRef) -> str:
    text = "\n".join((stamp, nonce, *ref))
    return hmac.new(secret.encode(), text.encode(), sha256).hexdigest()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
