"""GeTui's own Java SDK (`com.getui.push:restful-sdk` 1.0.2.1, Maven Central) says what is on the wire.

The SDK is Java, so its words are kept here as it wrote them. They were made by

    mvn dependency:copy-dependencies -DoutputDirectory=lib      (a POM that names the artifact alone)
    javac -cp 'lib/*' V.java && java -cp 'lib/*:.' V

with a V.java that prints `new DefaultJson().toJson(…)` of `AuthDTO.build("appkey", "a-secret")`, and of a
`PushDTO<Audience>` with the request id, ttl, CID, title and text that stand below, for GeTui's own channel
(`GTNotification`), for Android's makers (`ThirdNotification`) and for iOS (`Aps`, `Alert`).
"""

from __future__ import annotations

import json

from channels.channel import Call
from channels.providers.getui import GetuiChannel, GetuiTokens
from tests.channels.providers.chats import KEY, account_of, deliveries

TABLE = {"provider": "getui", "app_id": "appid", "app_key": "appkey", "master_secret": "a-secret"}
CID = "0123456789abcdef0123456789abcdef"
LOGIN = (
    '{"sign":"cf798e38331bed64f73a252ddc7a696922cd738a90e8d2843377a644742d7021",'
    '"timestamp":1795339867927,"appkey":"appkey"}'
)
PUSH = (
    '{"request_id":"0123456789abcdef0123456789ab0001","settings":{"ttl":60000},'
    '"audience":{"cid":["0123456789abcdef0123456789abcdef"]},"push_message":{"notification":'
    '{"title":"a title","body":"a text","click_type":"startapp"}},"push_channel":{"ios":{"aps":'
    '{"alert":{"title":"a title","body":"a text"}},"type":"notify"},"android":{"ups":'
    '{"notification":{"title":"a title","body":"a text","click_type":"startapp"}}}}}'
)


def test_a_login_is_signed_as_getuis_sdk_signs_it() -> None:
    theirs = json.loads(LOGIN)
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
    assert json.loads(request.read()) == json.loads(PUSH)
