"""WeCom's kinds of messages beyond texts: what application and robot take, and how it is worded."""

import json
from base64 import b64encode
from hashlib import md5
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from channels.channel import Call
from channels.engine import Engine
from channels.http_client.transport import Transport
from channels.probe.probe import ExchangeRecorder, OwnTokens
from channels.providers.wecom.app import WecomChannel
from channels.providers.wecom.robot import WecomRobotChannel
from message.delivery import Delivery, deliveries_of
from message.outcomes import Accepted, Rejected
from tests.conformance.samples import sample
from tests.harness.simulators import spawn

APP, ROBOT = WecomChannel(), WecomRobotChannel()
PICTURE = b"\x89PNG picture"
ENCODED = b64encode(PICTURE).decode()
DIGEST = md5(PICTURE, usedforsecurity=False).hexdigest()
VIDEO = {"media_id": "M", "title": "t", "description": "d"}


def one(provider: str, content: dict[str, Any], address: str = "https://provider.example") -> Call:
    of = sample(provider)
    assert of is not None
    notification = msgspec.structs.replace(of.notification(1), content=content, template=None)
    (delivery,) = deliveries_of(notification, b"", expires_at=4_000_000_000_000)
    return Call(of.account(address), [delivery], "T")


def refused(channel: WecomChannel | WecomRobotChannel, content: dict[str, Any]) -> str:
    call = one(channel.provider, content)
    (delivery,) = call.deliveries
    assert isinstance(delivery, Delivery)
    return channel.refusal(call.account, delivery)


@pytest.mark.parametrize(
    ("content", "worded"),
    [
        ({"image": {"media_id": "M"}}, {"media_id": "M"}),
        ({"voice": {"media_id": "M"}}, {"media_id": "M"}),
        ({"video": VIDEO}, VIDEO),
    ],
)
def test_an_application_sends_what_was_uploaded(
    content: dict[str, Any], worded: dict[str, Any]
) -> None:
    assert refused(APP, content) == ""
    body = json.loads(APP.request(one("wecom", content)).read())
    (kind,) = content
    assert (body["msgtype"], body[kind]) == (kind, worded)


@pytest.mark.parametrize(
    ("content", "worded"),
    [
        ({"image": {"base64": ENCODED}}, {"base64": ENCODED, "md5": DIGEST}),
        ({"image": {"base64": ENCODED, "md5": DIGEST}}, {"base64": ENCODED, "md5": DIGEST}),
        ({"voice": {"media_id": "M"}}, {"media_id": "M"}),
        ({"markdown_v2": "| a | b |"}, {"content": "| a | b |"}),
    ],
)
def test_a_robot_sends_an_image_itself_and_tables(
    content: dict[str, Any], worded: dict[str, Any]
) -> None:
    assert refused(ROBOT, content) == ""
    body = json.loads(ROBOT.request(one("wecom_robot", content)).read())
    (kind,) = content
    assert (body["msgtype"], body[kind]) == (kind, worded)


@pytest.mark.parametrize(
    ("channel", "content"),
    [
        (APP, {"markdown_v2": "a"}),
        (APP, {"image": {"base64": ENCODED}}),
        (APP, {"image": {}}),
        (APP, {"voice": {"media_id": ""}}),
        (APP, {"video": {"media_id": ""}}),
        (ROBOT, {"video": VIDEO}),
        (ROBOT, {"image": {"media_id": "M"}}),
        (ROBOT, {"image": {"base64": "?"}}),
        (ROBOT, {"image": {"base64": ENCODED, "md5": "0" * 32}}),
        (ROBOT, {"markdown_v2": {"content": ""}}),
    ],
)
def test_what_the_other_of_the_two_sends_is_refused_in_one_sentence(
    channel: WecomChannel | WecomRobotChannel, content: dict[str, Any]
) -> None:
    assert refused(channel, content).startswith("bad_content: ")


def test_too_long_is_counted_in_bytes() -> None:
    assert refused(APP, {"video": {"media_id": "M", "title": "鸿" * 43}}).startswith("too_long: ")
    assert refused(ROBOT, {"markdown_v2": "鸿" * 1_366}).startswith("too_long: ")
    large = b64encode(b"x" * (2 * 1_024 * 1_024 + 1)).decode()
    assert refused(ROBOT, {"image": {"base64": large}}).startswith("too_long: ")


def textcard(**fields: str) -> dict[str, Any]:
    return {"textcard": {"title": "t", "description": "d", "url": "https://e.cn", **fields}}


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"title": "鸿" * 128, "description": "雁" * 512}, ""),
        ({"title": "鸿" * 129}, "too_long: textcard.title is 129 characters; 128 are taken"),
        (
            {"description": "雁" * 513},
            "too_long: textcard.description is 513 characters; 512 are taken",
        ),
        (
            {"url": f"https://e.cn/{'鸿' * 679}"},
            "too_long: textcard.url is 2,050 bytes; 2,048 are taken",
        ),
    ],
)
def test_a_textcards_texts_are_counted_in_characters_and_its_url_in_bytes(
    fields: dict[str, str], refusal: str
) -> None:
    assert refused(APP, textcard(**fields)) == refusal


@pytest.mark.parametrize("code", [45002, 45003, 45004])
def test_what_wecom_itself_finds_too_long_is_rejected(code: int) -> None:
    call = one(APP.provider, textcard(title="鸿" * 128))
    answer = httpx.Response(200, json={"errcode": code, "errmsg": "size out of limit"})
    (found,) = APP.outcomes(call, answer)
    assert isinstance(found, Rejected)


def test_an_articles_texts_are_counted_in_bytes() -> None:
    article = {"title": "鸿" * 43, "url": "https://e.cn"}
    said = refused(APP, {"news": {"articles": [article]}})
    assert said == "too_long: news.title is 129 bytes; 128 are taken"


@pytest.mark.parametrize("kind", ["markdown", "markdown_v2"])
def test_mentions_that_wecom_would_ignore_are_refused(kind: str) -> None:
    said = refused(ROBOT, {kind: {"content": "a", "mentioned_list": ["@all"]}})
    assert said.startswith("bad_content: WeCom mentions nobody in ")
    assert refused(ROBOT, {"text": {"content": "a", "mentioned_list": ["@all"]}}) == ""


def test_the_provider_takes_each_kind(tmp_path: Path) -> None:
    with spawn(tmp_path, fsync=False) as simulator:
        transport = Transport()
        recorder = ExchangeRecorder(transport)
        engine = Engine(recorder, OwnTokens(recorder, 5.0))
        kinds: list[tuple[WecomChannel | WecomRobotChannel, list[dict[str, Any]]]] = [
            (APP, [{"image": {"media_id": "M"}}, {"voice": {"media_id": "M"}}, {"video": VIDEO}]),
            (ROBOT, [{"image": {"base64": ENCODED}}, {"markdown_v2": "a"}]),
        ]
        for channel, contents in kinds:
            for content in contents:
                call = one(channel.provider, content, simulator.url)
                (outcome,) = engine.send(channel, call, 5.0)
                assert isinstance(outcome, Accepted), (content, outcome)
        transport.close()
