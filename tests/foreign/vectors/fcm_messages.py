"""Writes messages as Google's own SDK for Firebase words them, for tests/foreign/test_fcm_messages.py.

The SDK is not installed with the others: it brings Firestore, Storage and gRPC along. From the
repository's root:

    uv run --isolated --no-project --with firebase-admin==7.7.0 python tests/foreign/vectors/fcm_messages.py

The name of a case names the content that ours is made of; key, times and receivers are those of the test.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from firebase_admin import messaging
from firebase_admin._messaging_encoder import MessageEncoder

KEY = "0123456789abcdef0123456789abcdef"
ENDS_S = 1_790_000_600
LEFT_S = 600


def android(**more: Any) -> Any:
    """Returns the part for Android, with our adapter's ttl."""
    return messaging.AndroidConfig(ttl=timedelta(seconds=LEFT_S), **more)


def apns(name: str = "", **more: Any) -> Any:
    """Returns the part for Apple's devices, with our adapter's end and name."""
    named = {"apns-collapse-id": name} if name else {}
    headers = {"apns-expiration": str(ENDS_S), **named}
    return messaging.APNSConfig(headers=headers, **more)


def webpush(**more: Any) -> Any:
    """Returns the part for browsers, with our adapter's TTL."""
    return messaging.WebpushConfig(headers={"TTL": str(LEFT_S)}, **more)


def shown(**target: str) -> Any:
    """Returns a notification to one target."""
    return messaging.Message(
        notification=messaging.Notification(title="订单", body="已发货"),
        android=android(notification=messaging.AndroidNotification(tag=KEY)),
        apns=apns(KEY),
        webpush=webpush(notification=messaging.WebpushNotification(tag=KEY)),
        **target,
    )


CASES = {
    "notification to a device": shown(token="token-1"),
    "notification to a topic": shown(topic="news"),
    "data alone": messaging.Message(
        data={"order": "1", "state": "已发货"},
        android=android(),
        apns=apns(),
        webpush=webpush(),
        token="token-1",
    ),
    "a channel, a sound and a link": messaging.Message(
        notification=messaging.Notification(
            title="订单", body="已发货", image="https://e.cn/1.png"
        ),
        data={"order": "1"},
        android=android(
            priority="high",
            notification=messaging.AndroidNotification(
                tag=KEY, channel_id="orders", color="#112233", click_action="OPEN"
            ),
        ),
        apns=apns(KEY, payload=messaging.APNSPayload(messaging.Aps(badge=3, sound="default"))),
        webpush=webpush(
            notification=messaging.WebpushNotification(tag=KEY, icon="https://e.cn/i.png"),
            fcm_options=messaging.WebpushFCMOptions(link="https://e.cn/1"),
        ),
        fcm_options=messaging.FCMOptions(analytics_label="orders"),
        token="token-1",
    ),
}


def main() -> None:
    """Write them beside this file."""
    encoder = MessageEncoder()
    made = {name: encoder.default(message) for name, message in CASES.items()}
    text = json.dumps(made, ensure_ascii=False, indent=1, sort_keys=True)
    Path(__file__).with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    main()
