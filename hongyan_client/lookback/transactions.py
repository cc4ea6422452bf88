"""Transactional messages, as a business sends them.

    ref = look_back.prepare("order-1001", record)      acknowledged by Kafka before the transaction begins
    ... the business transaction, with `barrier.pass_through(session, ref)` as its first statement ...
    look_back.commit(ref)

Once `prepare` returned, the message is forwarded if the transaction was committed, whatever dies in
between: without a word from the business the look-back service asks its check. So `commit` and `rollback`
raise nothing, and only make it quicker.

An exception out of a commit does not prove a rollback: the database may have committed and its reply been
lost. `transaction` therefore sends a rollback only if the barrier says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final

from hongyan_client.errors import ClientError
from hongyan_client.lookback.errors import BadIdentity, PrepareLate
from hongyan_client.lookback.identity import TransactionRef
from hongyan_client.lookback.transaction_state import StateReply, TransactionState
from hongyan_client.records import Acknowledged, Record, RecordPublisher
from message.ids import new_id
from message.lookback import (
    TOPIC,
    CommitRecord,
    LookbackMessageError,
    LookbackRecord,
    PrepareRecord,
    RollbackRecord,
    encode,
    record_key,
)

log = logging.getLogger("hongyan_client")

_DEADLINE_S: Final = 10.0


class LookBack:
    """Transactions of one business type. Safe from any thread; one for a process."""

    def __init__(
        self,
        publisher: RecordPublisher,
        biz_type: str,
        *,
        deadline_s: float = _DEADLINE_S,
        topic: str = TOPIC,
        check: str | None = None,
        new_tx: Callable[[], str] = new_id,
    ) -> None:
        """`deadline_s`: longest wait of each call. `check`: name of the check's endpoint, which the
        service compares with its configuration."""
        self._publisher = publisher
        self._biz_type = biz_type
        self._deadline_s = deadline_s
        self._topic = topic
        self._check = check
        self._new_tx = new_tx

    def prepare(self, biz_id: str, record: Record) -> TransactionRef:
        """Returns once Kafka has the message; begin the business transaction afterwards, never before.
        Raises ClientError: then do not begin it. Raises BadIdentity for a message or a name that nobody
        would forward."""
        ref = TransactionRef(self._biz_type, biz_id, self._new_tx())
        prepared = _prepared(ref, record, self._check)
        try:
            self._published(ref, prepared).result(self._deadline_s)
        except TimeoutError as exc:
            raise PrepareLate(
                f"Kafka did not acknowledge the message within {self._deadline_s:g} s;"
                " do not begin the transaction"
            ) from exc
        return ref

    def commit(self, ref: TransactionRef) -> bool:
        """Tells that the transaction was committed. Returns whether Kafka has the word; False changes
        nothing but the time: the check will answer."""
        return self._told(ref, CommitRecord(**ref._asdict()))

    def rollback(self, ref: TransactionRef) -> bool:
        """Tells that the transaction was rolled back, and can never commit. Returns as `commit`."""
        return self._told(ref, RollbackRecord(**ref._asdict()))

    @contextmanager
    def transaction(
        self,
        biz_id: str,
        record: Record,
        decide: Callable[[TransactionRef], StateReply] | None = None,
    ) -> Iterator[TransactionRef]:
        """Prepares before the block, and commits after it. After an exception it asks `decide`, such as
        `Barrier.decide`, and passes its word on; without it nothing is sent, and the check will answer.
        The exception goes on."""
        ref = self.prepare(biz_id, record)
        try:
            yield ref
        except (
            BaseException
        ):  # any end of the block but its last line: it is the barrier's to decide
            if decide is not None:
                self._pass_on(ref, decide)
            raise
        self.commit(ref)

    def _pass_on(self, ref: TransactionRef, decide: Callable[[TransactionRef], StateReply]) -> None:
        """Sends the word of `decide`. An error of its own must not replace the block's."""
        try:
            state = decide(ref).state
        except Exception as exc:
            log.warning("the decision about %s is left to its check: %r", ref.tx_id, exc)
            return
        if state is TransactionState.COMMIT:
            self.commit(ref)
        elif state is TransactionState.ROLLBACK:
            self.rollback(ref)

    def _told(self, ref: TransactionRef, record: LookbackRecord) -> bool:
        try:
            self._published(ref, encode(record)).result(self._deadline_s)
        except (ClientError, TimeoutError) as exc:
            log.warning("the decision about %s is left to its check: %s", ref.tx_id, exc)
            return False
        return True

    def _published(self, ref: TransactionRef, value: bytes) -> Future[Acknowledged]:
        key = record_key(ref.biz_type, ref.biz_id)
        return self._publisher.publish(Record(self._topic, key, value), self._deadline_s)


def _prepared(ref: TransactionRef, record: Record, check: str | None) -> bytes:
    """Returns the value of the prepare. Raises BadIdentity."""
    try:
        return encode(
            PrepareRecord(
                **ref._asdict(),
                topic=record.topic,
                payload=record.value,
                key=None if record.key is None else record.key.decode(),
                headers={name: value.decode() for name, value in record.headers},
                check=check,
            )
        )
    except UnicodeDecodeError as exc:
        raise BadIdentity("key and headers of the record must be UTF-8") from exc
    except LookbackMessageError as exc:
        raise BadIdentity(f"{exc.path}: {exc.detail}") from exc
