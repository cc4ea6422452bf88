from base64 import b64encode
from hashlib import sha256

import pytest

from backends.settings import DatabaseSettings, Settings, SettingsError
from idempotency.payload_cipher import DIGEST_BYTES, PayloadCipher, PayloadUnreadable, body_digest
from idempotency.sql_ledger import open_ledger
from tests.idempotency.making import World, claimed, deliveries, delivery

KEY = b64encode(bytes(range(32))).decode()
OTHER = b64encode(bytes(range(1, 33))).decode()


def test_the_digest_is_the_start_of_sha_256() -> None:
    assert body_digest(b"body") == sha256(b"body").digest()[:DIGEST_BYTES]


def test_what_was_sealed_opens_and_never_twice_alike() -> None:
    sealer = PayloadCipher(KEY)
    sealed = sealer.seal(b"hello", "m1")
    assert b"hello" not in sealed
    assert sealed != sealer.seal(b"hello", "m1")
    assert sealer.open(sealed, "m1") == b"hello"


def test_without_a_key_bytes_stay_as_they_are() -> None:
    assert PayloadCipher().seal(b"{}", "m1") == PayloadCipher().open(b"{}", "m1") == b"{}"


def test_plain_rows_from_before_the_key_still_open() -> None:
    assert PayloadCipher(KEY).open(b'{"v":1}', "m1") == b'{"v":1}'


@pytest.mark.parametrize("sealer", [PayloadCipher(), PayloadCipher(OTHER)])
def test_a_missing_or_other_key_is_named(sealer: PayloadCipher) -> None:
    wanted = sha256(bytes(range(32))).hexdigest()[:8]
    with pytest.raises(PayloadUnreadable, match=wanted):
        sealer.open(PayloadCipher(KEY).seal(b"hello", "m1"), "m1")


def test_a_payload_moved_to_another_message_does_not_open() -> None:
    with pytest.raises(PayloadUnreadable, match="damaged or moved"):
        PayloadCipher(KEY).open(PayloadCipher(KEY).seal(b"hello", "m1"), "m2")


@pytest.mark.parametrize("key", ["short", "not base64!", b64encode(b"x" * 31).decode()])
def test_a_bad_key_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(SettingsError, match="payload_key") as caught:
        open_ledger(Settings(database=DatabaseSettings(url="sqlite:///x.db", payload_key=key)))
    assert key not in str(caught.value)


def test_with_a_key_the_database_holds_neither_text_nor_receiver(url: str) -> None:
    world = World(url, payload_key=KEY)
    ledger = world.open()
    many = deliveries(receivers=["+8613800000001", "+8613800000002"], text="geheim")
    alone = delivery(text="geheim")
    claimed(ledger, *many, alone)
    stored = [
        bytes(value)
        for query in ("SELECT payload, receiver FROM deliveries", "SELECT payload FROM payloads")
        for row in world.rows(query)
        for value in row
        if value is not None
    ]
    assert len(stored) == 5
    assert not any(b"geheim" in value or b"+86138" in value for value in stored)
    for item in (*many, alone):
        kept = ledger.queries().kept(item.key)
        assert kept is not None
        assert (kept.payload, kept.receiver) == (item.payload, item.receiver)
    world.close()
