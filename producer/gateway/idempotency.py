"""Runs a request once for each Idempotency-Key: repeats get the first answer.

same key, other body            422       same key, still at work       409 with Retry-After
same key, answered before       the first answer, with `Idempotent-Replayed: true`
answered with 503, or killed    the repeat tries again, with the same ids; what Kafka has stays accepted
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from idempotency.ledger import LedgerError
from producer.gateway.api_keys import ApiKey
from producer.gateway.batch_progress import FIRST_TRY, BatchProgress
from producer.gateway.problems import GatewayProblem
from producer.gateway.request_store import (
    Answered,
    ClaimedRequest,
    InProgress,
    OtherBody,
    RequestStore,
)

log = structlog.get_logger(__name__)
_NAME: Final = re.compile(r"[\x21-\x7e]{1,255}")
_UNAVAILABLE: Final = 503


async def _not_noted(_message_ids: Collection[str]) -> None:
    """Notes nothing: the request has no Idempotency-Key."""


class RequestIds(NamedTuple):
    """The source of ids and times of one request's notifications."""

    created_at: int
    message_id: Callable[[int], str]
    """Index to id; "" for a new one."""
    progress: BatchProgress = FIRST_TRY
    """The notes of earlier tries."""
    note: Callable[[Collection[str]], Awaitable[None]] = _not_noted
    """Records ids that a batch names itself, before it publishes them."""


class RequestResult(NamedTuple):
    """The answer to a request that was carried out."""

    status: int
    body: dict[str, Any]
    progress: BatchProgress | None = None
    """Notes for the next try; None: the answer is final, and a repeat gets it."""
    retry_after_s: int = 0
    """Seconds after which a repeat may succeed; 0: not known."""


class SentAnswer(NamedTuple):
    """The bytes of an answer."""

    status: int
    body: bytes
    replayed: bool = False
    retry_after_s: int = 0
    """See `RequestResult`."""


Work = Callable[[RequestIds], Awaitable[RequestResult]]


class OncePerKey:
    """Belongs to the event loop's thread; its statements run in others."""

    def __init__(self, store: RequestStore, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms

    async def run(
        self,
        key: ApiKey,
        name: str | None,
        path: str,
        body: bytes,
        work: Work,
        own_id: str | None = "",
    ) -> SentAnswer:
        """Returns the answer of `work`, or the first one. `name`: the Idempotency-Key; None without one.
        `own_id`: see `RequestStore.begin`. Raises GatewayProblem, LedgerError."""
        if name is None:
            return _encoded(await work(RequestIds(self._now_ms(), lambda _index: "")))
        begun = await self._begun(key, name, path, body, own_id)
        if isinstance(begun, Answered):
            return SentAnswer(begun.status, begun.answer.encode(), replayed=True)
        return await self._worked(begun, work)

    async def _begun(
        self, key: ApiKey, name: str, path: str, body: bytes, own_id: str | None
    ) -> ClaimedRequest | Answered:
        if not _NAME.fullmatch(name):
            detail = "Idempotency-Key has 1 to 255 printable ASCII characters without blanks"
            raise GatewayProblem(400, "bad_idempotency_key", detail)
        hashed = hashlib.sha256(name.encode()).hexdigest()
        digest = hashlib.sha256(path.encode() + b"\n" + body).hexdigest()
        begun = await asyncio.to_thread(self._store.begin, key.id, hashed, digest, own_id)
        if isinstance(begun, OtherBody):
            detail = "this Idempotency-Key was used with another body: use a new one"
            raise GatewayProblem(422, "idempotency_mismatch", detail)
        if isinstance(begun, InProgress):
            detail = "a request with this Idempotency-Key is at work: repeat it later"
            raise GatewayProblem(409, "in_progress", detail, retry_after_s=begun.wait_s)
        return begun

    async def _worked(self, claimed: ClaimedRequest, work: Work) -> SentAnswer:
        async def note(message_ids: Collection[str]) -> None:
            if message_ids:
                await asyncio.to_thread(self._store.note_ids, claimed, message_ids)

        ids = RequestIds(claimed.made_at, claimed.message_id, claimed.progress, note)
        try:
            result = await work(ids)
        except GatewayProblem as exc:
            untried = claimed.first and exc.status != _UNAVAILABLE
            await self._noted(self._store.forget if untried else self._store.release, claimed)
            raise
        except BaseException:  # a fault, or the client has gone: a record may be in Kafka
            await asyncio.shield(self._noted(self._store.release, claimed))
            raise
        answer = _encoded(result)
        if result.progress is None:
            await self._noted(self._store.finish, claimed, answer.status, answer.body.decode())
        else:
            await self._noted(self._store.release, claimed, result.progress)
        return answer

    async def _noted(self, write: Callable[..., object], *arguments: object) -> None:
        """Writes to the store. Without an answer of the database the lease lapses, and a repeat tries
        again with the same ids."""
        try:
            await asyncio.to_thread(write, *arguments)
        except LedgerError as exc:
            log.warning("idempotent_request_not_noted", cause=str(exc))


def _encoded(result: RequestResult) -> SentAnswer:
    body = msgspec.json.encode(result.body)
    return SentAnswer(result.status, body, retry_after_s=result.retry_after_s)
