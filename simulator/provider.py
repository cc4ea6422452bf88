"""The simulated provider: it decides, records, and answers once the record is on disk.

It serves the webhook protocol; `simulator.exchange` serves the others through it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from time import time
from typing import Final
from urllib.parse import unquote

import msgspec

from simulator.delayed_replies import DelayQueue
from simulator.faults import ConnectionEnd, FaultDecision, decide
from simulator.ledger import LedgerRecord, LedgerWriter
from simulator.options import Rules, SimulatorOptions
from simulator.report import Memory, provider_id
from simulator.servers.http_request import Request, RequestClient
from simulator.wire import ProtocolContext, Reply

_MS: Final = 1_000
_DIGEST: Final = 16


class _Message(msgspec.Struct):
    """The fields that the simulator reads of a body."""

    id: str = ""
    receiver: str = ""
    attempt: int = 0


_decoder = msgspec.json.Decoder(_Message)


class Provider:
    """Serves the webhook protocol on any path. All state belongs to the loop's thread."""

    def __init__(self, options: SimulatorOptions, memory: Memory, writer: LedgerWriter) -> None:
        self.rules = Rules(options.rules)
        self.dedup = options.dedup
        self.memory = memory
        self.seed = options.seed
        self.writer = writer
        self._loop = asyncio.get_running_loop()
        self._later = DelayQueue(self._loop)
        self._queries: dict[str, int] = {}
        self.world = ProtocolContext(
            credentials=options.credentials,
            behaviours=options.behaviours,
            now_ms=_now_ms,
            token_ttl_s=options.token_ttl_s,
            lists=options.lists,
            counts=memory.counts,
        )

    def serve(self, connection: RequestClient, request: Request) -> None:
        """Answers one request, now or after its fate's delay."""
        path = request.path
        if request.method == "POST":
            self._receive(connection, request, path)
        elif request.method == "GET":
            self._look_up(connection, path)
        else:
            connection.answer(405, b'{"error":"POST or GET"}')

    def _receive(self, connection: RequestClient, request: Request, path: str) -> None:
        message = _read(request.body)
        if not request.key or message is None:
            connection.answer(400, b'{"error":"an Idempotency-Key and a JSON body are needed"}')
            return
        seen = self.memory.keys.get(request.key)
        turn = seen.requests if seen else 0
        fate = self.fate("POST", path, message.receiver, request.key, turn)
        repeated = self.dedup and seen is not None and seen.accepted > 0
        if repeated and fate.accepted:
            fate = fate._replace(accepted=False)
        record = self._record(request, path, message, fate, repeated)
        provider = self.memory.add(record).provider_id or provider_id(record)
        reply = _Named(provider)
        self.writer.append(record, self.then(fate, connection, reply))

    def _look_up(self, connection: RequestClient, path: str) -> None:
        key = unquote(path.rpartition("/")[2])
        turn = self._queries[key] = self._queries.get(key, 0) + 1
        seen = self.memory.keys.get(key)
        fate = self.fate("GET", path, "", key, turn)
        reply: Callable[[FaultDecision], Reply] = _Lost()
        if self.world.lists.status_query:
            sent = bool(seen and seen.accepted)
            if fate.status == 200 and not sent:
                fate = fate._replace(status=404)
            reply = _State(seen.provider_id if seen else "", sent=sent)
        # After the records on their way to disk: a kill must not take "it was sent" back.
        self.writer.after(self.then(fate, connection, reply))

    def fate(self, method: str, path: str, receiver: str, key: str, turn: int) -> FaultDecision:
        """Returns the fate of one request."""
        fate = decide(self.rules.ready, self.seed, method, path, receiver, key, turn)
        if not fate.accepted:
            return fate
        rule = next((r for r in self.rules.ready if r.fits(method, path, receiver)), None)
        over = None if rule is None else rule.over(self._loop.time())
        return fate if over is None else over._replace(delay_ms=fate.delay_ms)

    def _record(
        self, request: Request, path: str, message: _Message, fate: FaultDecision, repeated: bool
    ) -> LedgerRecord:
        answer = str(fate.status) if fate.ending is ConnectionEnd.ANSWER else fate.ending.value
        return LedgerRecord(
            seq=self.memory.last_seq + 1,
            at_ms=_now_ms(),
            key=request.key,
            path=path,
            id=message.id,
            receiver=message.receiver,
            attempt=message.attempt,
            digest=sha256(request.body).hexdigest()[:_DIGEST],
            accepted=fate.accepted,
            answer="duplicate" if repeated and answer == "200" else answer,
        )

    def then(
        self,
        fate: FaultDecision,
        connection: RequestClient,
        reply: Callable[[FaultDecision], Reply],
    ) -> Callable[[], None]:
        """Returns the ending, to be called once the record is kept. Its delay counts from the request's
        arrival."""
        end = partial(self._end, fate, connection, reply)
        if not fate.delay_ms:
            return end
        return partial(self._later.at, self._loop.time() + fate.delay_ms / _MS, end)

    def _end(
        self,
        fate: FaultDecision,
        connection: RequestClient,
        reply: Callable[[FaultDecision], Reply],
    ) -> None:
        if fate.ending is ConnectionEnd.ANSWER:
            answer = reply(fate)
            connection.answer(answer.status, answer.body, fate.retry_after, answer.fields)
        elif fate.ending is ConnectionEnd.RESET:
            connection.reset()
        elif fate.ending is ConnectionEnd.DRIP:
            answer = reply(fate)
            connection.drip(answer.status, answer.body, answer.fields, fate.drip_ms / _MS)
        elif fate.ending is not ConnectionEnd.HANG:
            connection.close()


class _Named:
    """The webhook's answer: the fate's status, and the provider's name for an accepted message."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, fate: FaultDecision) -> Reply:
        return Reply(_body(fate.status, self._name), fate.status)


class _State:
    """The answer to a status query: a state beside a status that an error rule may have changed."""

    __slots__ = ("_name", "_sent")

    def __init__(self, name: str, *, sent: bool) -> None:
        self._name = name
        self._sent = sent

    def __call__(self, fate: FaultDecision) -> Reply:
        if fate.status not in (200, 404):
            return Reply(_body(fate.status, self._name), fate.status)
        state = b'"state":"sent"' if self._sent else b'"state":"not_sent"'
        return Reply(b'{"id":"' + self._name.encode() + b'",' + state + b"}", fate.status)


class _Lost:
    """A router's answer to an unknown path."""

    __slots__ = ()

    def __call__(self, fate: FaultDecision) -> Reply:
        status = 404 if fate.status == 200 else fate.status
        return Reply(b'{"error":"no such route"}', status)


def _now_ms() -> int:
    return int(time() * _MS)


def _read(body: bytes) -> _Message | None:
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError:
        return None


def _body(status: int, name: str) -> bytes:
    if 200 <= status < 300:
        return b'{"id":"' + name.encode() + b'"}'
    return b'{"error":"status %d"}' % status
