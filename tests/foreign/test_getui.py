"""GeTui's own Java SDK (`com.getui.push:restful-sdk` 1.0.2.1, Maven Central) says what is on the wire.

The SDK is Java. Its words are vectors/getui.json, made by vectors/Getui.java; its comment has the command.
They are for GeTui's own channel (`GTNotification`), Android's makers (`ThirdNotification`) and iOS (`Aps`).
"""

from __future__ import annotations

import json
from pathlib import Path

from channels.channel import Call
from channels.providers.getui.adapter import GetuiChannel, GetuiTokens
from tests.channels.providers.chats import KEY, account_of, deliveries

TABLE = {"provider": "getui", "app_id": "appid", "app_key": "appkey", "master_secret": "a-secret"}
CID = "0123456789abcdef0123456789abcdef"
VECTORS = json.loads((Path(__file__).parent / "vectors" / "getui.json").read_text())


def test_a_login_is_signed_as_getuis_sdk_signs_it() -> None:
    theirs = VECTORS["login"]
    tokens = GetuiTokens(lambda: theirs["timestamp"] / 1_000)
    ours = json.loads(tokens.request(account_of(TABLE), "").read())
    # GeTui's document has the time as a text, its SDK as a number.
    assert {**ours, "timestamp": int(ours["timestamp"])} == theirs


def test_a_push_is_worded_as_getuis_sdk_words_it() -> None:
    now_s = 1_795_339_867.0
    made = deliveries(
        "push",
        [CID],
        {"title": "a title", "text": "a text"},
        expires_at=int(now_s * 1_000) + 60_000,
    )
    request = GetuiChannel(lambda: now_s).request(Call(account_of(TABLE), made, "t"))
    assert made[0].call_key == KEY == CID
    assert json.loads(request.read()) == VECTORS["push"]
