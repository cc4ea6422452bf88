"""Keys as columns of a one-row frame, which is joined to every record. A literal would be in plan, UI page
and event log; Spark shows no values of a local row (docs/decisions/136-keys-in-no-plan.md)."""

from __future__ import annotations

from base64 import b64decode
from hashlib import sha256
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from spark_jobs import jvm
from spark_jobs.config import JobConfig

COLUMNS: Final = ("seal_key", "seal_head", "hash_inner", "hash_outer")
"""Key and first bytes of a sealed body; the two padded keys of HMAC-SHA256. Null without the setting."""
_DDL: Final = ", ".join(f"{name} BINARY" for name in COLUMNS)
_MARK: Final = b"\x01"
_KEY_ID_BYTES: Final = 4
_BLOCK: Final = 64
"""Of SHA-256, in bytes."""
_INNER, _OUTER = 0x36, 0x5C


def with_secrets(spark: SparkSession, config: JobConfig, frame: DataFrame) -> DataFrame:
    """Returns the frame with COLUMNS."""
    values = [*_seal(config.payload_key), *_hash(config.hash_key)]
    return frame.crossJoin(F.broadcast(jvm.one_row(spark, _DDL, values)))


def _seal(payload_key: str) -> list[bytes | None]:
    if not payload_key:
        return [None, None]
    key = b64decode(payload_key)
    return [key, _MARK + sha256(key).digest()[:_KEY_ID_BYTES]]


def _hash(hash_key: str) -> list[bytes | None]:
    if not hash_key:
        return [None, None]
    key = hash_key.encode()
    key = (sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    return [bytes(byte ^ pad for byte in key) for pad in (_INNER, _OUTER)]
