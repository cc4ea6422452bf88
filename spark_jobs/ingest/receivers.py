"""Receivers as native columns: equal to `message.keys`, `tracing.masks` and `message.outcome_event`."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from message.foreign_text import MASK
from message.keys import KEY_LENGTH
from message.receivers import CHATS, GROUP

_SEPARATOR: Final = "\x1f"
_E164: Final = r"^\+[1-9][0-9]{4,14}\z"
_ASCII: Final = r"^[\x00-\x7f]*\z"
_SHA256: Final = 256
_PHONE_HEAD, _PHONE_PLUS, _PHONE_TAIL = 3, 3, 4
_OTHER_ENDS: Final = 2
_HIDDEN_AT_LEAST: Final = 3


def normalised(channel: Column, receiver: Column) -> Column:
    """Returns the receiver as `message.keys.normalise_receiver` does; null where that needs libphonenumber
    or more than ASCII's lower case."""
    number = F.when(receiver.rlike(_E164), receiver)
    return (
        F.when(channel == "sms", number)
        .when((channel == "email") & F.contains(receiver, F.lit("@")), _mail(receiver))
        .otherwise(receiver)
    )


def _mail(receiver: Column) -> Column:
    domain = F.substring_index(receiver, "@", -1)
    local = F.left(receiver, F.length(receiver) - F.length(domain))
    return F.when(domain.rlike(_ASCII), F.concat(local, F.lower(domain)))


def delivery_key(message_id: Column, channel: Column, receiver: Column) -> Column:
    """Returns the delivery key of a normalised receiver; null for null."""
    text = F.concat(message_id, F.lit(_SEPARATOR), channel, F.lit(_SEPARATOR), receiver)
    return F.left(F.sha2(text, _SHA256), F.lit(KEY_LENGTH))


def receiver_hash(inner: Column, outer: Column, channel: Column, receiver: Column) -> Column:
    """Returns HMAC-SHA256 in hex under the key of `inner` and `outer` (spark_jobs/ingest/secrets.py); null
    if one of them is null."""
    text = F.concat(channel, F.lit(_SEPARATOR), receiver).cast("binary")
    first = F.unhex(F.sha2(F.concat(inner, text), _SHA256))
    return F.sha2(F.concat(outer, first), _SHA256)


def mask(channel: Column, receiver: Column) -> Column:
    """Returns the receiver as a trace shows it."""
    plus = F.when(receiver.startswith("+"), _PHONE_HEAD + _PHONE_PLUS).otherwise(_PHONE_HEAD)
    name = F.substr(receiver, F.lit(len(GROUP) + 1))
    of_group = F.concat(F.lit(GROUP), _ends(name, F.lit(_OTHER_ENDS), _OTHER_ENDS))
    return (
        F.when((channel == "email") & F.contains(receiver, F.lit("@")), _masked_mail(receiver))
        .when(channel == "sms", _ends(receiver, plus, _PHONE_TAIL))
        .when(channel.isin(*sorted(CHATS)) & receiver.startswith(GROUP), of_group)
        .otherwise(_ends(receiver, F.lit(_OTHER_ENDS), _OTHER_ENDS))
    )


def _masked_mail(receiver: Column) -> Column:
    domain = F.substring_index(receiver, "@", -1)
    local_length = F.length(receiver) - F.length(domain) - 1
    first = F.when(local_length > 1, F.left(receiver, F.lit(1))).otherwise("")
    return F.concat(first, F.lit(f"{MASK}@"), domain)


def _ends(text: Column, head: Column, tail: int) -> Column:
    shown = F.concat(F.left(text, head), F.lit(MASK), F.right(text, F.lit(tail)))
    return F.when(F.length(text) < head + tail + _HIDDEN_AT_LEAST, MASK).otherwise(shown)
