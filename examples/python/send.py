"""Hands one SMS and one e-mail to Hongyan; prints their ids. Needs confluent-kafka alone.

    pip install confluent-kafka
    python send.py +8613800000001 ann@example.com

The topics must exist (`hongyan topics apply`), and the templates too (../templates.toml).
docs/producing.md has the reasons for each setting.
"""

import json
import os
import secrets
import sys
import time

from confluent_kafka import KafkaError, Message, Producer

BOOTSTRAP = os.environ.get("HONGYAN_KAFKA__BOOTSTRAP", "127.0.0.1:19092")
PREFIX = os.environ.get("HONGYAN_KAFKA__TOPIC_PREFIX", "hongyan")
SETTINGS = {
    "bootstrap.servers": BOOTSTRAP,
    "client.id": "shop",
    "acks": "all",
    "enable.idempotence": True,
    "delivery.timeout.ms": 30_000,
    "partitioner": "murmur2_random",  # as in Java: one key has one partition in every language
}


def new_id(now_ms: int) -> str:
    """Returns an id that sorts by time. Make it once, and keep it with the order: a repeat under the same
    id doubles nothing."""
    return f"{now_ms:012x}{secrets.token_hex(10)}"


def envelope(
    channel: str, kind: str, receiver: str, template: dict[str, object]
) -> dict[str, object]:
    """Returns one notification."""
    now_ms = time.time_ns() // 1_000_000
    return {
        "v": 1,
        "id": new_id(now_ms),
        "biz_id": "order-1001",
        "channel": channel,
        "kind": kind,
        "receivers": [receiver],
        "template": template,
        "created_at": now_ms,
    }


def main(phone: str, mail: str) -> int:
    """Sends both and waits for Kafka's acknowledgements. Returns the exit code."""
    code: dict[str, object] = {"id": "login-code", "params": {"code": "4711"}}
    paid: dict[str, object] = {"id": "order-paid", "params": {"order": "1001", "total": 1299.5}}
    notifications = [
        envelope("sms", "verification", phone, code) | {"ttl_ms": 300_000},
        envelope("email", "notice", mail, paid) | {"ordering_key": "order-1001"},
    ]
    refused: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        key = (message.key() or b"").decode()
        if error is not None:
            refused.append(f"{key}: {error}")

    producer = Producer(SETTINGS)
    for one in notifications:
        producer.produce(
            f"{PREFIX}.dispatch.{one['channel']}.{one['kind']}",
            key=str(one.get("ordering_key") or one["id"]).encode(),
            value=json.dumps(one).encode(),
            headers={"hongyan-id": str(one["id"]).encode()},
            on_delivery=on_delivery,
        )
    left = producer.flush(30)
    for fault in refused:
        print(f"not taken by Kafka: {fault}", file=sys.stderr)
    if refused or left:
        print("not everything was acknowledged; send it again under the same ids", file=sys.stderr)
        return 1
    for one in notifications:
        print(one["id"])
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: send.py PHONE MAIL")
    sys.exit(main(sys.argv[1], sys.argv[2]))
