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
from producer.gateway.batch_progress import AcceptedItem, BatchProgress
from producer.gateway.envelope_limits import check_name, item_of, object_of, own_id
from producer.gateway.idempotency import OncePerKey, RequestIds, RequestResult, SentAnswer
from producer.gateway.key_ring import KeyRing, KeysStale
from producer.gateway.metrics import GatewayMetrics
from producer.gateway.problems import GatewayProblem, in_doubt, keys_unknown, not_known
from producer.gateway.rate_limits import KeyRates
from producer.gateway.recall_desk import RecallDesk
from producer.gateway.story_reader import NotificationStory, StoryReader
from producer.gateway.submission import NotificationTerms, Submission
from sending.notification_check import Ready

_TURN_ITEMS: Final = 25
_TURN_BYTES: Final = 64 << 10
_TURN_RECEIVERS: Final = 1_000
"""Items, their bytes and their receivers after which other requests get their turn."""
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


class BatchTurns:
    """Lets other requests go on while a batch is worked on."""

    def __init__(self) -> None:
        self._share = 0.0
        """Of a turn, used up."""

    async def used(self, size: int = 0, receivers: int = 0) -> None:
        """Notes an item with its bytes and receivers; gives as many turns up as were used up: a request
        needs several to be answered."""
        self._share += max(1 / _TURN_ITEMS, size / _TURN_BYTES, receivers / _TURN_RECEIVERS)
        while self._share >= 1:
            self._share -= 1
            await asyncio.sleep(0)


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


_Checked = Ready | AcceptedItem | GatewayProblem
_Handed = _Open | AcceptedItem | GatewayProblem


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
            return RequestResult(202, _accepted(ready))

        return await self._once(request, work, own_id(fields))

    async def send_batch(self, request: PostedRequest, items: Sequence[msgspec.Raw]) -> SentAnswer:
        """Accepts each item by itself, and says what became of each."""

        async def work(ids: RequestIds) -> RequestResult:
            return _batch_result(await self._sent_all(request, items, ids), ids.progress)

        return await self._once(request, work, None)

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

    async def _once(self, request: PostedRequest, work: Any, own: str | None) -> SentAnswer:
        key, name = request.caller.key, request.idempotency_key
        return await self.parts.once.run(key, name, request.path, request.body, work, own)

    def _prepared(self, request: PostedRequest, item: Any, ids: RequestIds, index: int) -> Ready:
        derived = ids.message_id(index)
        may_be_in_kafka = ids.progress.may_be_in_kafka(index)
        terms = NotificationTerms(
            request.caller.key, ids.created_at, derived or new_id(), may_be_in_kafka
        )
        try:
            return self.parts.submission.prepare(item, terms)
        except GatewayProblem as exc:
            if may_be_in_kafka:
                raise in_doubt(exc, own_id(item) or derived) from exc
            raise

    async def _acknowledged(self, ready: Ready, future: Any) -> None:
        await self.parts.submission.acknowledged(ready, future)
        self.parts.metrics.accepted.labels(ready.notification.lane.name).inc()

    async def _sent_all(
        self, request: PostedRequest, items: Sequence[msgspec.Raw], ids: RequestIds
    ) -> list[dict[str, Any]]:
        checked: list[_Checked] = []
        handed: list[_Handed] = []
        turns = BatchTurns()
        for index, item in enumerate(items):
            checked.append(self._checked(request, item, ids, index))
            await turns.used(len(memoryview(item)), _receivers_of(checked[-1]))
        await ids.note(_own_ids(checked, ids))
        for one in checked:
            handed.append(self._handed(request, one))
            await turns.used()
        return [await self._result(index, one) for index, one in enumerate(handed)]

    def _checked(
        self, request: PostedRequest, item: msgspec.Raw, ids: RequestIds, index: int
    ) -> _Checked:
        """Checks one item, unless Kafka has it from an earlier try."""
        if index in ids.progress.accepted:
            return ids.progress.accepted[index]
        try:
            return self._prepared(request, item_of(item), ids, index)
        except GatewayProblem as exc:
            return exc

    def _handed(self, request: PostedRequest, checked: _Checked) -> _Handed:
        """Hands one item over. A key that was revoked meanwhile, or cannot be checked, sends no more of the
        batch."""
        if not isinstance(checked, Ready):
            return checked
        try:
            self._check_key(request.caller, checked)
            return _Open(checked, self.parts.submission.publish(checked, request.traceparent))
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

    async def _result(self, index: int, handed: _Handed) -> dict[str, Any]:
        problem = handed if isinstance(handed, GatewayProblem) else None
        if isinstance(handed, AcceptedItem):
            return {"index": index, "status": 202, "id": handed.id, "lane": handed.lane}
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


def _receivers_of(checked: _Checked) -> int:
    return len(checked.notification.receivers) if isinstance(checked, Ready) else 0


def _own_ids(checked: Sequence[_Checked], ids: RequestIds) -> list[str]:
    """Returns the ids of a batch that do not follow from its request."""
    named = {n: one.notification.id for n, one in enumerate(checked) if isinstance(one, Ready)}
    return [name for n, name in named.items() if name != ids.message_id(n)]


def _batch_result(results: Sequence[dict[str, Any]], before: BatchProgress) -> RequestResult:
    accepted = {n: AcceptedItem(r["id"], r["lane"]) for n, r in enumerate(results) if "id" in r}
    problems = {n: r["problem"] for n, r in enumerate(results) if n not in accepted}
    body = {"accepted": len(accepted), "refused": len(problems), "results": results}
    named = {n for n, problem in problems.items() if "id" in problem}
    doubtful = named | {n for n in problems if before.may_be_in_kafka(n)}
    again = any(one["status"] in _NOT_FINAL for one in problems.values())
    progress = BatchProgress(accepted, frozenset(doubtful)) if again or doubtful else None
    waits = [one.get("retry_after_s", 0) for one in problems.values()]
    status = 207 if problems else 202
    return RequestResult(status, body, progress, retry_after_s=max(waits, default=0))


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
