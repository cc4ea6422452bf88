"""Google's SDK for Firebase (`firebase-admin` 7.7.0) says how a message to a device is worded.

Its words are vectors/fcm_messages.json, made by vectors/fcm_messages.py, whose docstring has the command.
The simulator takes each of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from channels.channel import Call
from channels.providers.fcm.adapter import FcmChannel
from simulator.protocols.fcm import _problem
from tests.channels.providers.chats import account_of, deliveries
from tests.conformance.samples.fcm import ACCOUNT

VECTORS = json.loads((Path(__file__).parent / "vectors" / "fcm_messages.json").read_text())
NOW_S, ENDS_S = 1_790_000_000, 1_790_000_600
SHOWN = {"title": "订单", "text": "已发货"}
SAID: dict[str, tuple[str, dict[str, Any]]] = {
    "notification to a device": ("token-1", SHOWN),
    "notification to a topic": ("/topics/news", SHOWN),
    "data alone": ("token-1", {"data": {"order": "1", "state": "已发货"}}),
    "a channel, a sound and a link": (
        "token-1",
        {
            "notification": {"title": "订单", "body": "已发货", "image": "https://e.cn/1.png"},
            "data": {"order": "1"},
            "android": {
                "priority": "high",
                "notification": {
                    "channel_id": "orders",
                    "color": "#112233",
                    "click_action": "OPEN",
                },
            },
            "apns": {"payload": {"aps": {"badge": 3, "sound": "default"}}},
            "webpush": {
                "notification": {"icon": "https://e.cn/i.png"},
                "fcm_options": {"link": "https://e.cn/1"},
            },
            "fcm_options": {"analytics_label": "orders"},
        },
    ),
}


@pytest.mark.parametrize("case", sorted(VECTORS))
def test_a_message_is_worded_as_googles_sdk_words_it(case: str) -> None:
    receiver, content = SAID[case]
    account = account_of(ACCOUNT)
    made = deliveries("push", [receiver], content, expires_at=ENDS_S * 1_000)
    channel = FcmChannel(lambda: NOW_S)
    assert not channel.refusal(account, made[0])
    request = channel.request(Call(account, made, "t"))
    assert json.loads(request.read()) == {"message": VECTORS[case]}
    assert not _problem(VECTORS[case])
