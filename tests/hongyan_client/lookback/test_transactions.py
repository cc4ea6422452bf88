"""Prepare, commit and rollback: in one partition, in order, and never a rollback that nobody knows of."""

import struct
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from backends.kafka.embedded import EmbeddedKafka
from hongyan_client.errors import BufferFull, ClientError, SendInDoubt
from hongyan_client.lookback.errors import BadIdentity, LookBackError
from hongyan_client.lookback.identity import TransactionRef
from hongyan_client.lookback.transaction_state import StateReply, TransactionState
from hongyan_client.lookback.transactions import LookBack
from hongyan_client.publisher import Publisher
from hongyan_client.records import Acknowledged, Record
from message.lookback import CommitRecord, PrepareRecord, RollbackRecord, decode
from tests.hongyan_client.looking import contents

A_RECORD = Record("hongyan.dispatch.sms.notice", b"order-1", b"{}", [("hongyan-id", b"7")])


class Broker:
    """Acknowledges, unless it was told otherwise for a type of record."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.keys: list[bytes | None] = []
        self.fails: dict[type, Exception] = {}
        self.silent = False

    def publish(self, record: Record, deadline_s: float) -> Future[Acknowledged]:
        found = decode(record.value)
        error = self.fails.get(type(found))
        if isinstance(error, BufferFull):
            raise error
        self.taken.append(found)
        self.keys.append(record.key)
        future: Future[Acknowledged] = Future()
        if error is not None:
            future.set_exception(error)
        elif not self.silent:
            future.set_result(Acknowledged(record.topic, 0, len(self.taken), 0))
        return future

    @property
    def kinds(self) -> list[type]:
        return [type(one) for one in self.taken]


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def look_back(broker: Broker) -> LookBack:
    return LookBack(broker, "order", deadline_s=0.05)


def saying(state: TransactionState) -> Callable[[TransactionRef], StateReply]:
    return lambda ref: StateReply(state, ref.biz_id)


def test_the_message_is_prepared_whole_and_committed_under_one_key(
    look_back: LookBack, broker: Broker
) -> None:
    with look_back.transaction("订单-1", A_RECORD) as ref:
        assert broker.kinds == [PrepareRecord]

    prepared = broker.taken[0]
    assert broker.kinds == [PrepareRecord, CommitRecord]
    assert (prepared.topic, prepared.payload) == (A_RECORD.topic, A_RECORD.value)
    assert (prepared.key, prepared.headers) == ("order-1", {"hongyan-id": "7"})
    assert {one.tx_id for one in broker.taken} == {ref.tx_id}
    assert set(broker.keys) == {"order:订单-1".encode()}


@pytest.mark.parametrize("error", [SendInDoubt("no answer", "timed_out"), BufferFull("full")])
def test_without_an_acknowledgement_the_transaction_does_not_begin(
    error: Exception, look_back: LookBack, broker: Broker
) -> None:
    broker.fails[PrepareRecord] = error
    begun = []
    with pytest.raises(type(error)), look_back.transaction("1", A_RECORD):
        begun.append(1)
    assert not begun


def test_a_broker_that_says_nothing_keeps_the_transaction_from_beginning(
    look_back: LookBack, broker: Broker
) -> None:
    broker.silent = True
    with pytest.raises(ClientError, match="do not begin"):
        look_back.prepare("1", A_RECORD)


def failing(look_back: LookBack, **options: Any) -> None:
    with look_back.transaction("1", A_RECORD, **options):
        raise ConnectionError("the reply of COMMIT was lost")


def test_an_exception_alone_sends_no_decision(look_back: LookBack, broker: Broker) -> None:
    with pytest.raises(ConnectionError):
        failing(look_back)
    assert broker.kinds == [PrepareRecord]


@pytest.mark.parametrize(
    ("state", "sent"),
    [
        (TransactionState.COMMIT, [PrepareRecord, CommitRecord]),
        (TransactionState.ROLLBACK, [PrepareRecord, RollbackRecord]),
        (TransactionState.UNKNOWN, [PrepareRecord]),
    ],
)
def test_after_an_exception_the_barriers_word_is_passed_on(
    state: TransactionState, sent: list[type], look_back: LookBack, broker: Broker
) -> None:
    with pytest.raises(ConnectionError):
        failing(look_back, decide=saying(state))
    assert broker.kinds == sent


@pytest.mark.parametrize("error", [SendInDoubt("no answer", "timed_out"), BufferFull("full")])
def test_a_commit_that_kafka_does_not_take_breaks_nothing(
    error: Exception, look_back: LookBack, broker: Broker
) -> None:
    broker.fails[CommitRecord] = error
    assert not look_back.commit(look_back.prepare("1", A_RECORD))
    assert look_back.rollback(look_back.prepare("2", A_RECORD))


@pytest.mark.parametrize(
    "record",
    [
        A_RECORD._replace(topic="look_back_msg"),
        A_RECORD._replace(key=b"\xff"),
        A_RECORD._replace(key=struct.pack(">Q", 42)),
        A_RECORD._replace(value=b"x" * ((1 << 20) + 1)),
    ],
)
def test_a_message_that_nobody_would_forward_is_refused_at_once(
    record: Record, look_back: LookBack, broker: Broker
) -> None:
    with pytest.raises(LookBackError):
        look_back.prepare("1", record)
    assert not broker.taken


def test_each_try_has_an_id_of_its_own(look_back: LookBack) -> None:
    assert look_back.prepare("1", A_RECORD).tx_id != look_back.prepare("1", A_RECORD).tx_id


def test_a_bad_business_id_is_refused(look_back: LookBack) -> None:
    with pytest.raises(BadIdentity):
        look_back.prepare("", A_RECORD)


def test_one_transactions_records_are_in_order_in_one_partition(cluster: EmbeddedKafka) -> None:
    publisher = Publisher(cluster.bootstrap, client_id="tests")
    try:
        look_back = LookBack(publisher, "order", topic="tx")
        with look_back.transaction("1", A_RECORD):
            pass
    finally:
        publisher.close(5)

    found = contents(cluster.bootstrap, "tx", 2)

    assert [type(decode(one.value())) for one in found] == [PrepareRecord, CommitRecord]
    assert len({one.partition() for one in found}) == 1


def test_an_error_of_the_barrier_leaves_the_block_its_own_exception(
    look_back: LookBack, broker: Broker
) -> None:
    """The business saw an error of the check in place of its own."""

    def broken(_: TransactionRef) -> StateReply:
        raise OSError("no connection is free")

    with pytest.raises(KeyError, match="stock"), look_back.transaction("1", A_RECORD, broken):
        raise KeyError("stock")
    assert broker.kinds == [PrepareRecord]
