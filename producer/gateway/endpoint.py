"""The gateway's requests: send one, send a batch, recall, read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from idempotency.recalls import Kind
from message.envelope import MAX_ID, MAX_RECEIVER
from message.ids import new_id
from producer.gateway.api_keys import ApiKey
from producer.gateway.envelope_limits import check_name, object_of
from producer.gateway.idempotency import OncePerKey, RequestIds, RequestResult, SentAnswer
from producer.gateway.key_ring import KeyRing, KeysStale
from producer.gateway.metrics import GatewayMetrics
from producer.gateway.problems import GatewayProblem, keys_unknown, not_known
from producer.gateway.rate_limits import KeyRates
from producer.gateway.recall_desk import RecallDesk
from producer.gateway.story_reader import NotificationStory, StoryReader
from producer.gateway.submission import NotificationTerms, Submission
from sending.notification_check import Ready

_TURN: Final = 25
"""Items of a batch after which other requests get their turn."""
_NOT_FINAL: Final = frozenset({401, 429, 503})
"""States of items after which a repeat of the batch tries again."""


class Caller(NamedTuple):
    """The holder of a valid key."""

    prefix: str
    key: ApiKey


class PostedRequest(NamedTuple):
    """The parts of a POST that the endpoint needs."""

    caller: Caller
    path: str
    body: bytes
    idempotency_key: str | None
    traceparent: str


class GatewayParts(NamedTuple):
    """The parts that the endpoint uses."""

    ring: KeyRing
    rates: KeyRates
    submission: Submission
    once: OncePerKey
    stories: StoryReader
    recalls: RecallDesk
    metrics: GatewayMetrics


class _Open(NamedTuple):
    """An item of a batch that was handed to the publisher."""

    ready: Ready
    future: Any


class GatewayEndpoint:
    """Belongs to the event loop's thread. Every method raises GatewayProblem and LedgerError."""

    def __init__(self, parts: GatewayParts) -> None:
        self.parts = parts

    async def send(self, request: PostedRequest) -> SentAnswer:
        """Accepts one notification."""
        fields = object_of(request.body)

        async def work(ids: RequestIds) -> RequestResult:
            ready = self._prepared(request, fields, ids, 0)
            future = self.parts.submission.publish(ready, request.traceparent)
            await self._acknowledged(ready, future)
            return RequestResult(202, _accepted(ready), [ready.notification.id])

        return await self._once(request, work)

    async def send_batch(self, request: PostedRequest, items: Sequence[Any]) -> SentAnswer:
        """Accepts each item by itself, and says what became of each."""

        async def work(ids: RequestIds) -> RequestResult:
            results = await self._sent_all(request, items, ids)
            accepted = sum(one["status"] == 202 for one in results)
            body = {"accepted": accepted, "refused": len(results) - accepted, "results": results}
            status = 202 if accepted == len(results) else 207
            final = not any(one["status"] in _NOT_FINAL for one in results)
            sent = [one.get("id", "") for one in results]
            waits = [one.get("problem", {}).get("retry_after_s", 0) for one in results]
            return RequestResult(status, body, sent, final=final, retry_after_s=max(waits))

        return await self._once(request, work)

    async def recall(self, caller: Caller, body: bytes) -> SentAnswer:
        """Recalls a notification, or those of a business id."""
        kind, name = _recalled_name(object_of(body))
        found = await asyncio.to_thread(self.parts.recalls.run, caller.key, kind, name)
        return SentAnswer(200, msgspec.json.encode(found))

    async def read(self, caller: Caller, message_id: str) -> NotificationStory:
        """Returns one notification's states and timeline."""
        found = await asyncio.to_thread(self.parts.stories.of_message, caller.key, message_id)
        if found is None:
            raise not_known()
        return found

    async def read_biz(self, caller: Caller, biz_id: str) -> list[NotificationStory]:
        """Returns the newest notifications of a business id."""
        check_name(biz_id, MAX_RECEIVER, "biz_id")
        return await asyncio.to_thread(self.parts.stories.of_biz, caller.key, biz_id)

    async def _once(self, request: PostedRequest, work: Any) -> SentAnswer:
        key, name = request.caller.key, request.idempotency_key
        return await self.parts.once.run(key, name, request.path, request.body, work)

    def _prepared(self, request: PostedRequest, item: Any, ids: RequestIds, index: int) -> Ready:
        terms = NotificationTerms(
            request.caller.key, ids.created_at, ids.message_id(index) or new_id()
        )
        return self.parts.submission.prepare(item, terms)

    async def _acknowledged(self, ready: Ready, future: Any) -> None:
        await self.parts.submission.acknowledged(ready, future)
        self.parts.metrics.accepted.labels(ready.notification.lane.name).inc()

    async def _sent_all(
        self, request: PostedRequest, items: Sequence[Any], ids: RequestIds
    ) -> list[dict[str, Any]]:
        handed: list[_Open | GatewayProblem] = []
        for index, item in enumerate(items):
            if index % _TURN == _TURN - 1:
                await asyncio.sleep(0)
            handed.append(self._handed(request, item, ids, index))
        return [await self._result(index, one) for index, one in enumerate(handed)]

    def _handed(
        self, request: PostedRequest, item: Any, ids: RequestIds, index: int
    ) -> _Open | GatewayProblem:
        """Hands one item over. A key that was revoked meanwhile, or cannot be checked, sends no more of the
        batch."""
        try:
            ready = self._prepared(request, item, ids, index)
            self._check_key(request.caller, ready)
            return _Open(ready, self.parts.submission.publish(ready, request.traceparent))
        except GatewayProblem as exc:
            return exc

    def _check_key(self, caller: Caller, ready: Ready) -> None:
        """Raises GatewayProblem for a key that does not hold any more, or that cannot be checked."""
        try:
            holds = self.parts.ring.of_prefix(caller.prefix) is not None
        except KeysStale as exc:
            raise keys_unknown(ready.notification.id) from exc
        if not holds:
            raise GatewayProblem(401, "key_revoked", "the key ended during the batch")

    async def _result(self, index: int, handed: _Open | GatewayProblem) -> dict[str, Any]:
        problem = handed if isinstance(handed, GatewayProblem) else None
        if isinstance(handed, _Open):
            try:
                await self._acknowledged(handed.ready, handed.future)
            except GatewayProblem as exc:
                problem = exc
            else:
                return {"index": index, "status": 202} | _accepted(handed.ready)
        fields = problem.fields() if problem else {}
        self.parts.metrics.refused.labels(str(fields["code"])).inc()
        return {"index": index, "status": fields["status"], "problem": fields}


def _accepted(ready: Ready) -> dict[str, Any]:
    return {"id": ready.notification.id, "lane": ready.notification.lane.name}


def _recalled_name(fields: dict[str, Any]) -> tuple[Kind, str]:
    given = {name: fields[name] for name in ("id", "biz_id") if fields.get(name) is not None}
    if len(given) != 1 or len(fields) != len(given):
        raise GatewayProblem(422, "bad_recall", "give one of id and biz_id, and no more", path="$")
    ((which, name),) = given.items()
    if which == "id":
        check_name(name, MAX_ID, "$.id")
        return Kind.MESSAGE, name
    check_name(name, MAX_RECEIVER, "$.biz_id")
    return Kind.BIZ, name
