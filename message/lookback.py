"""The wire format of look-back records on the topic `look_back_msg` (docs/lookback.md).

Each value is one JSON object with the field `type`: `prepare`, `commit` or `rollback`. `decode` returns its
struct or raises LookbackMessageError with the field's path. The record's key is `record_key`, so that a
prepare precedes its decision in one partition.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Annotated, Final

import msgspec

from message.envelope import CONTROL, MAX_AHEAD_MS, MAX_BYTES

TOPIC: Final = "look_back_msg"
VERSION: Final = 1
MAX_NAME: Final = 64
MAX_BIZ_ID: Final = 256
MAX_HEADERS: Final = 32
MAX_VALUE_BYTES: Final = 2 * MAX_BYTES
"""Of a whole record: base64 adds a third to a payload of MAX_BYTES."""
TX_HEADER: Final = "hongyan-tx-id"
"""Header of a forwarded record with its tx_id."""
_TX_ID = re.compile(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_CONTROL = re.compile(CONTROL)
_MS_BITS: Final = 12
_MS_PER_DAY: Final = 86_400_000

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
BizId = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_BIZ_ID)]


class LookbackMessageError(ValueError):
    """A value that is no look-back record: `code` for programs, `detail` for people."""

    def __init__(self, code: str, path: str, detail: str) -> None:
        super().__init__(f"{code} at {path}: {detail}")
        self.code = code
        self.path = path
        self.detail = detail


class _TxRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    v: int = VERSION
    biz_type: Name
    """Kind of business transaction, such as `order`: the look-back's configuration has its terms."""
    biz_id: BizId
    """The business's own id of the transaction, such as the order's number."""
    tx_id: str
    """32 lower-case hex digits of a UUIDv7, made by the business for this transaction."""


class PrepareRecord(_TxRecord, frozen=True, kw_only=True, tag="prepare"):
    """A message that must be forwarded once its transaction is committed."""

    topic: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
    """Topic to which the payload is forwarded."""
    payload: bytes
    """The value to forward, as it is; base64 in JSON."""
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)] | None = None
    """Key of the forwarded record, without NUL; None: `biz_id`."""
    headers: dict[str, str] = {}
    """Headers of the forwarded record."""
    check: Name | None = None
    """Name of the check endpoint in the configuration, for comparison; None: that of `biz_type`."""

    @property
    def forward_key(self) -> str:
        """The key of the forwarded record: the same at each repeat, so that the partition is."""
        return self.key or self.biz_id

    @property
    def body_hash(self) -> bytes:
        """SHA-256 over all that is forwarded."""
        parts = [self.topic, self.forward_key, sorted(self.headers.items())]
        return sha256(msgspec.json.encode(parts) + b"\0" + self.payload).digest()


class CommitRecord(_TxRecord, frozen=True, kw_only=True, tag="commit"):
    """The business transaction was committed."""


class RollbackRecord(_TxRecord, frozen=True, kw_only=True, tag="rollback"):
    """The business transaction was rolled back."""


LookbackRecord = PrepareRecord | CommitRecord | RollbackRecord

_decoder = msgspec.json.Decoder(LookbackRecord)
_encoder = msgspec.json.Encoder()


def record_key(biz_type: str, biz_id: str) -> bytes:
    """Returns the key of a transaction's records on TOPIC."""
    return f"{biz_type}:{biz_id}".encode()


def is_tx_id(text: str) -> bool:
    """Returns whether the text has the form of a tx_id."""
    return _TX_ID.fullmatch(text) is not None


def created_ms(tx_id: str) -> int:
    """Returns the time in a tx_id, epoch milliseconds by the clock of its maker."""
    return int(tx_id[:_MS_BITS], 16)


def day_of(tx_id: str) -> int:
    """Returns the day in a tx_id, counted from 1970-01-01 in UTC: it names the partition of the row."""
    return created_ms(tx_id) // _MS_PER_DAY


def encode(record: LookbackRecord) -> bytes:
    """Returns the wire form, checked by the same rules as `decode`. Raises LookbackMessageError."""
    try:
        value = _encoder.encode(record)
    except (UnicodeEncodeError, TypeError) as exc:
        raise LookbackMessageError("not_json", "$", f"cannot be written as JSON: {exc}") from exc
    decode(value)
    return value


def decode(value: bytes | None) -> LookbackRecord:
    """Returns the record in a Kafka value. Raises LookbackMessageError."""
    if not value:
        raise LookbackMessageError("not_json", "$", "the value is empty; send one JSON object")
    if len(value) > MAX_VALUE_BYTES:
        fault = f"{len(value):,} bytes; at most {MAX_VALUE_BYTES:,} are taken"
        raise LookbackMessageError("too_large", "$", fault)
    try:
        record: LookbackRecord = _decoder.decode(value)
    except msgspec.ValidationError as exc:
        text, _, path = str(exc).partition(" - at `")
        raise LookbackMessageError("wrong_type", path.rstrip("`") or "$", text) from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise LookbackMessageError("not_json", "$", f"the value is not JSON: {exc}") from exc
    _check(record)
    return record


def check_arrival(record: LookbackRecord, now_ms: int) -> None:
    """Checks the time in `tx_id`, which names the day of its row. Raises LookbackMessageError."""
    if created_ms(record.tx_id) > now_ms + MAX_AHEAD_MS:
        ahead = (created_ms(record.tx_id) - now_ms) // 1_000
        fault = f"made {ahead} s ahead of our clock; check the clock of its maker"
        raise LookbackMessageError("created_ahead", "$.tx_id", fault)


def _check(record: LookbackRecord) -> None:
    if record.v != VERSION:
        fault = f"version {record.v}; this one reads {VERSION}"
        raise LookbackMessageError("unknown_version", "$.v", fault)
    if not _TX_ID.fullmatch(record.tx_id):
        fault = "must be the 32 lower-case hex digits of a UUIDv7"
        raise LookbackMessageError("bad_tx_id", "$.tx_id", fault)
    if not _NAME.fullmatch(record.biz_type):
        fault = "only letters, digits, dots, dashes and underscores are taken"
        raise LookbackMessageError("bad_biz_type", "$.biz_type", fault)
    if _CONTROL.search(record.biz_id):
        fault = "control characters are not taken"
        raise LookbackMessageError("control_character", "$.biz_id", fault)
    if isinstance(record, PrepareRecord):
        _check_body(record)


def _check_body(record: PrepareRecord) -> None:
    if not _NAME.fullmatch(record.topic):
        fault = "only letters, digits, dots, dashes and underscores are taken"
        raise LookbackMessageError("bad_topic", "$.topic", fault)
    if record.topic == TOPIC:
        fault = f"{TOPIC} itself is no target: its records would go round"
        raise LookbackMessageError("bad_topic", "$.topic", fault)
    if record.key is not None and "\0" in record.key:
        fault = "the character NUL is not taken; write a number as its digits"
        raise LookbackMessageError("control_character", "$.key", fault)
    if len(record.payload) > MAX_BYTES:
        fault = f"{len(record.payload):,} bytes; at most {MAX_BYTES:,} are taken"
        raise LookbackMessageError("too_large", "$.payload", fault)
    if len(record.headers) > MAX_HEADERS:
        fault = f"{len(record.headers)} headers; at most {MAX_HEADERS} are taken"
        raise LookbackMessageError("too_many_headers", "$.headers", fault)
    if TX_HEADER in record.headers:
        fault = f"{TX_HEADER} is set by the look-back service; leave it out"
        raise LookbackMessageError("bad_header", "$.headers", fault)
