"""Serves the wire protocols: reads a call, decides on each receiver, stores the decision, then answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Final

from simulator.faults import ConnectionEnd, FaultDecision, receiver_code
from simulator.ledger import LedgerRecord
from simulator.options import SimulatorOptions
from simulator.protocols import PROTOCOLS
from simulator.provider import Provider
from simulator.receipts.poster import ReceiptPoster
from simulator.servers.http_request import Request, RequestClient
from simulator.wire import Question, ReceivedCall, Recipient, Reply, Verdict, WireProtocol

_DIGEST: Final = 16


class SimulatedExchange:
    """Serves all protocols. Belongs to the loop's thread, as all of the simulator."""

    def __init__(self, provider: Provider, options: SimulatorOptions) -> None:
        self._provider = provider
        self.world = provider.world
        self.protocols: dict[str, WireProtocol] = {
            n: make(self.world) for n, make in PROTOCOLS.items()
        }
        self._receipts = ReceiptPoster(options.receipts, options.seed, self.world)
        self._turns: dict[str, int] = {}
        for record in provider.memory.of_protocols():
            self._accepted(record)

    def serve(self, connection: RequestClient, request: Request) -> None:
        """Answers one request, by the protocol that its path names, now or after its fate's delay."""
        path = request.path
        name, slash, rest = path[1:].partition("/")
        protocol = self.protocols.get(name)
        if protocol is None:
            self._provider.serve(connection, request)
            return
        read = protocol.read(request, slash + rest or "/")
        if isinstance(read, Reply):
            connection.answer(read.status, read.body, "", read.fields)
        elif isinstance(read, Question):
            self._tell(connection, protocol, read, path)
        else:
            self._take(connection, protocol, read, request, path)

    def _tell(
        self, connection: RequestClient, protocol: WireProtocol, question: Question, path: str
    ) -> None:
        self.world.count(f"asked.{question.method.lower()}.{protocol.name}")
        turn = self._turn(f"{question.method}\0{path}\0{question.key}")
        fate = self._provider.fate(question.method, path, question.receiver, question.key, turn)
        then = self._provider.then(fate, connection, partial(_told, protocol, question))
        # After the records on their way to disk: a kill must not take a query's answer back.
        self._provider.writer.after(then)

    def _take(
        self,
        connection: RequestClient,
        protocol: WireProtocol,
        send: ReceivedCall,
        request: Request,
        path: str,
    ) -> None:
        first = send.recipients[0]
        key = _key(protocol, send, first)
        fate = self._provider.fate("POST", path, first.receiver, key, self._turn(f"POST\0{key}"))
        digest = sha256(request.body or request.target).hexdigest()[:_DIGEST]
        call = self._provider.memory.last_seq + 1
        verdicts = [
            self._decide(protocol, send, one, fate, path=path, digest=digest, call=call)
            for one in send.recipients
        ]
        reply: Callable[[FaultDecision], Reply] = partial(_answered, protocol, send, verdicts)
        self._provider.writer.after(self._provider.then(fate, connection, reply))

    def _decide(
        self,
        protocol: WireProtocol,
        send: ReceivedCall,
        one: Recipient,
        fate: FaultDecision,
        *,
        path: str,
        digest: str,
        call: int,
    ) -> Verdict:
        provider, key = self._provider, _key(protocol, send, one)
        seq = provider.memory.last_seq + 1
        earlier = protocol.known(send, one) if fate.accepted else None
        code = ""
        if fate.accepted and earlier is None:
            turn = self._turn(f"receiver\0{one.receiver}")
            code = receiver_code(provider.rules.ready, provider.seed, path, one.receiver, turn)
        named = protocol.provider_id(seq) if earlier is None else protocol.repeat_id(earlier, seq)
        verdict = Verdict(one, named, code, earlier is not None)
        record = LedgerRecord(
            seq=seq,
            at_ms=self.world.now_ms(),
            key=key,
            path=path,
            id=send.id,
            receiver=one.receiver,
            attempt=0,
            digest=digest,
            accepted=fate.accepted and earlier is None and not code,
            answer=_worded(fate, verdict),
            protocol=protocol.name,
            provider_id=verdict.provider_id,
            call=call,
        )
        provider.memory.add(record)
        done = partial(self._receipts.accepted, record) if record.accepted else _nothing
        provider.writer.append(record, done)
        self._accepted(record)
        return verdict

    def _accepted(self, record: LedgerRecord) -> None:
        if record.accepted and record.protocol in self.protocols:
            self.protocols[record.protocol].accepted(record)

    def _turn(self, key: str) -> int:
        turn = self._turns.get(key, 0)
        self._turns[key] = turn + 1
        return turn


def _key(protocol: WireProtocol, send: ReceivedCall, one: Recipient) -> str:
    return one.key or f"{protocol.name}:{send.id}:{one.receiver}"


def _worded(fate: FaultDecision, verdict: Verdict) -> str:
    if fate.ending is not ConnectionEnd.ANSWER:
        return fate.ending.value
    if verdict.repeated:
        return "duplicate"
    return fate.code or verdict.code or str(fate.status)


def _told(protocol: WireProtocol, question: Question, fate: FaultDecision) -> Reply:
    refused = _refusal(protocol, fate)
    return question.answer() if refused is None else refused


def _answered(
    protocol: WireProtocol, send: ReceivedCall, verdicts: Sequence[Verdict], fate: FaultDecision
) -> Reply:
    refused = _refusal(protocol, fate)
    return protocol.reply(send, verdicts) if refused is None else refused


def _refusal(protocol: WireProtocol, fate: FaultDecision) -> Reply | None:
    if fate.code:
        return protocol.refuse(fate.code)
    if fate.status != 200:
        return Reply(b'{"error":"status %d"}' % fate.status, fate.status)
    return None


def _nothing() -> None:
    """Does nothing: the call's answer waits for all records."""
