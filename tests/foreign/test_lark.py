"""Feishu's own SDK (package `lark-oapi`, 1.7.5) judges our adapter and our simulator.

The SDK's client logs in at our simulator, sends each kind of message and takes one back; what it puts on
the wire is what our adapter puts there. Its builders of contents and its reading of a receiver's type are
compared too. It reads the simulator's errors by the codes by which ours does.

The SDK takes seconds to import (11,000 modules), so it is imported once, by a fixture of this module. It
refuses a `domain` with a path, which our simulator has: its requests are led there (sdk_wire.py).

Not judged, because nothing of ours speaks it: event callbacks, urgent messages, who has read a message.
`lark_oapi.channel.errors.classify_error` judges nothing: it calls 99991400 a permission and 230020 a
recalled target, where Feishu documents two frequency limits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from typing import Any, NamedTuple
from unittest.mock import ANY

import pytest

from channels.channel import Call, LoginRefused, RecallStatus, SentCall
from channels.providers.feishu.app import FeishuChannel, FeishuTokens
from message.delivery import Delivery
from message.envelope import Template
from message.outcomes import Accepted
from simulator import Faults, Simulator
from tests.channels.providers.chats import KEY, account_of, deliveries
from tests.conformance.samples import UNLIMITED, sample
from tests.foreign.sdk_wire import Made, led, of_httpx
from tests.harness.simulators import spawn

FEISHU = "https://open.feishu.cn"
OURS = FeishuChannel()
PERSON, UNION = "ou_7d8a6e6df7621556ce0d21922b676706", "on_cad4860e7af114fb4ff6c5d496d1dd76"
GROUP, MAIL, USER = "oc_a0553eda9014c201e6969b478895c230", "ann@example.com", "3e3cf96b"
POST = {
    "zh_cn": {
        "title": "订单 & <状态>",
        "content": [
            [{"tag": "text", "text": "已发货 "}, {"tag": "a", "href": "https://e.cn", "text": "看"}]
        ],
    }
}
CARD = {"header": {"title": {"tag": "plain_text", "content": "订单"}}, "elements": [{"tag": "hr"}]}
CONTENTS: dict[str, dict[str, Any]] = {
    "text": {"text": '订单 "1"\n已发货 <at user_id="ou_1">Tom</at>'},
    "post": {"post": POST},
    "interactive": {"card": CARD},
    "image": {"image": {"image_key": "img_7ea74629-9191-4176-998c-2e603c9c5e8g"}},
    "file": {"file": {"file_key": "file_456a92d6-c6ea-4de4-ac3f-7afcf44ac78g"}},
    "audio": {"audio": {"file_key": "file_75235e0c-4f92-430a-a99b-8446610223cg"}},
    "sticker": {"sticker": {"file_key": "a1b2"}},
    "media": {"media": {"file_key": "file_1"}},
    "share_chat": {"share_chat": {"chat_id": GROUP}},
    "share_user": {"share_user": {"user_id": PERSON}},
}
TEMPLATE = Template("AAqCYXIYcBKDl", {"name": "王", "items": "[1]"})
LOGIN = ("simulator-id", "simulator-secret")
_KEYS = count()


class Lark(NamedTuple):
    """The SDK, and its client at our simulator."""

    sdk: Any
    client: Any
    simulator: Simulator
    made: list[Made]
    """The SDK's requests."""

    def as_application(self, app_id: str, secret: str) -> Lark:
        """Returns a copy with this application's client. Drops its token, which the SDK keeps by app_id."""
        manager = import_module("lark_oapi.core.token").TokenManager
        manager.cache.set(f"self_tenant_token:{app_id}", "", 0)
        built = self.sdk.Client.builder().app_id(app_id).app_secret(secret).build()
        return self._replace(client=built)

    def send(self, id_type: str, receiver: str, msg_type: str, content: str, uuid: str) -> Any:
        """The SDK's answer to im/v1/messages."""
        im = import_module("lark_oapi.api.im.v1")
        body = im.CreateMessageRequestBody.builder().receive_id(receiver).msg_type(msg_type)
        body = body.content(content).uuid(uuid).build()
        request = im.CreateMessageRequest.builder().receive_id_type(id_type).request_body(body)
        return self.client.im.v1.message.create(request.build())

    def take_back(self, message_id: str) -> Any:
        """The SDK's answer to the recall."""
        im = import_module("lark_oapi.api.im.v1")
        request = im.DeleteMessageRequest.builder().message_id(message_id).build()
        return self.client.im.v1.message.delete(request)


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    behaviours = {"feishu": dict(UNLIMITED["feishu"])}
    with spawn(tmp_path_factory.mktemp("lark"), fsync=False, behaviours=behaviours) as started:
        yield started


@pytest.fixture(scope="module")
def sdk() -> Any:
    return import_module("lark_oapi")


@pytest.fixture
def lark(sdk: Any, simulator: Simulator) -> Iterator[Lark]:
    simulator.control(rules=[])
    with led({f"{FEISHU}/": f"{simulator.url}/feishu/"}) as made:
        yield Lark(sdk, None, simulator, made).as_application(*LOGIN)


def account(**changes: Any) -> Any:
    """Ours, at the provider's own address."""
    of = sample("feishu")
    assert of is not None
    return account_of({**of.account_table, **changes}, OURS.endpoint)


def ours(receiver: str, token: str, **said: Any) -> Made:
    """Returns our adapter's request of one message."""
    made: list[Delivery] = deliveries("feishu", [receiver], **said)
    call = Call(account(), made, token)
    assert not OURS.refusal(call.account, made[0])
    return of_httpx(OURS.request(call))


def token_of(made: Made) -> str:
    return made.fields["Authorization"].removeprefix("Bearer ")


def test_our_default_endpoint_and_the_one_we_document_are_the_sdks(lark: Lark) -> None:
    assert (lark.sdk.FEISHU_DOMAIN, lark.sdk.LARK_DOMAIN) == (FEISHU, "https://open.larksuite.com")
    assert OURS.endpoint == FEISHU


def test_the_sdk_logs_in_at_the_simulator_as_our_adapter_does(lark: Lark) -> None:
    lark.send("open_id", PERSON, "text", '{"text":"a"}', "")
    theirs = next(one for one in lark.made if "tenant_access_token" in one.address)
    mine = of_httpx(FeishuTokens().request(account(), ""))
    assert mine.named == theirs.named
    assert mine.json == theirs.json
    assert mine.fields["Content-Type"].startswith("application/json")
    assert token_of(lark.made[-1]).startswith("t-")


@pytest.mark.parametrize(
    ("id_type", "receiver"),
    [
        ("open_id", PERSON),
        ("union_id", UNION),
        ("chat_id", GROUP),
        ("email", MAIL),
        ("user_id", USER),
    ],
)
@pytest.mark.parametrize("kind", ["text", "post", "interactive", "template"])
def test_what_the_sdk_sends_the_simulator_takes_and_our_adapter_sends_the_same(
    lark: Lark, kind: str, id_type: str, receiver: str
) -> None:
    said: dict[str, Any] = {"content": CONTENTS.get(kind)}
    if kind == "template":
        said = {"template": TEMPLATE}
    words = {
        "text": CONTENTS["text"],
        "post": POST,
        "interactive": CARD,
        "template": {
            "type": "template",
            "data": {"template_id": TEMPLATE.id, "template_variable": TEMPLATE.params},
        },
    }[kind]
    content = lark.sdk.JSON.marshal(words)
    msg_type = "interactive" if kind == "template" else kind
    answer = lark.send(id_type, receiver, msg_type, content, KEY)
    assert answer.success(), answer.msg
    assert answer.data.message_id.startswith("om_")
    theirs = lark.made[-1]
    mine = ours(receiver, token_of(theirs), **said)
    assert mine.named == theirs.named
    assert mine.fields["Authorization"] == theirs.fields["Authorization"]
    # `create` adds a charset, which JSON has none of (RFC 8259 §11); the SDK's own `acreate` adds none.
    assert mine.fields["Content-Type"] == theirs.fields["Content-Type"].partition(";")[0]
    assert {**mine.json, "content": ANY} == theirs.json | {"content": ANY}
    assert isinstance(mine.json["content"], str)
    assert json.loads(mine.json["content"]) == json.loads(theirs.json["content"])


@pytest.mark.parametrize("kind", sorted(CONTENTS))
def test_each_content_is_worded_as_the_sdks_own_builder_words_it(lark: Lark, kind: str) -> None:
    build, types = (
        import_module(f"lark_oapi.channel.{name}") for name in ("outbound.sender", "types")
    )
    of = CONTENTS[kind]
    theirs = {
        "text": lambda: build._build_text(types.OutboundText(text=of["text"])),
        "post": lambda: build._build_post(types.OutboundPost(post=POST)),
        "interactive": lambda: build._build_card(types.OutboundCard(card=CARD)),
        "image": lambda: build._build_image(of["image"]["image_key"]),
        "file": lambda: build._build_file(of["file"]["file_key"]),
        "audio": lambda: build._build_audio(of["audio"]["file_key"]),
        "sticker": lambda: build._build_sticker(of["sticker"]["file_key"]),
        "media": lambda: build._build_video(of["media"]["file_key"]),
        "share_chat": lambda: build._build_share_chat(GROUP),
        "share_user": lambda: build._build_share_user(PERSON),
    }[kind]()
    mine = ours(PERSON, "t-1", content=of).json
    assert mine["msg_type"] == theirs["msg_type"]
    assert json.loads(mine["content"]) == json.loads(theirs["content"])


@pytest.mark.parametrize("receiver", [PERSON, UNION, GROUP, MAIL, USER])
def test_a_receivers_type_is_what_the_sdk_infers(lark: Lark, receiver: str) -> None:
    infer = import_module("lark_oapi.channel.outbound.routing").infer_receive_id_type
    mine = ours(receiver, "t-1", content=CONTENTS["text"])
    assert mine.query == {"receive_id_type": infer(receiver)}


def test_a_uuid_sends_once_and_names_the_first_message_to_both(lark: Lark) -> None:
    uuid = f"uuid-{next(_KEYS)}"
    first, second = (lark.send("open_id", PERSON, "text", '{"text":"b"}', uuid) for _ in range(2))
    assert first.data.message_id == second.data.message_id
    call = Call(account(), deliveries("feishu", [PERSON], CONTENTS["text"]))
    assert OURS.outcomes(call, lark.made[-1].answer) == [Accepted(first.data.message_id)]


def test_every_code_of_ours_is_read_by_the_sdk_as_by_us(lark: Lark) -> None:
    call = Call(account(), deliveries("feishu", [PERSON], CONTENTS["text"]))
    assert lark.send("open_id", PERSON, "text", '{"text":"c"}', "").success()  # it has a token
    for row in OURS.errors:
        lark.simulator.control(rules=[Faults(codes={row.code: 1.0})])
        answer = lark.send("open_id", PERSON, "text", '{"text":"c"}', f"uuid-{next(_KEYS)}")
        assert not answer.success()
        assert (str(answer.code), answer.data) == (row.code, None)
        (outcome,) = OURS.outcomes(call, lark.made[-1].answer)
        assert not isinstance(outcome, Accepted)
        assert (outcome.code, outcome.detail) == (row.code, answer.msg)


@pytest.mark.parametrize(("app_id", "secret"), [("cli_nobody", LOGIN[1]), (LOGIN[0], "wrong")])
def test_a_refused_login_has_the_code_that_the_sdk_raises(
    lark: Lark, app_id: str, secret: str
) -> None:
    raised = import_module("lark_oapi.core.exception").ObtainAccessTokenException
    with pytest.raises(raised) as refused:
        lark.as_application(app_id, secret).send("open_id", PERSON, "text", '{"text":"d"}', "")
    theirs = lark.made[-1]
    mine = of_httpx(FeishuTokens().request(account(app_id=app_id, app_secret=secret), ""))
    assert mine.json == theirs.json
    with pytest.raises(LoginRefused, match=rf"^{refused.value.code}: "):
        FeishuTokens().read(theirs.answer)


def test_an_expired_token_is_refused_to_the_sdk_with_a_code_that_makes_ours_fetch_another(
    lark: Lark,
) -> None:
    assert lark.send("open_id", PERSON, "text", '{"text":"e"}', "").success()
    lark.simulator.control(expire_tokens=True)
    refused = lark.send("open_id", PERSON, "text", '{"text":"e"}', "")
    known = import_module("lark_oapi.channel.errors")._TOKEN_INVALID_CODES
    assert refused.code in known
    assert OURS.token_refused(lark.made[-1].answer)
    again = lark.as_application(*LOGIN)
    assert again.send("open_id", PERSON, "text", '{"text":"e"}', "").success()


def test_the_sdk_takes_a_message_back_as_our_adapter_does(lark: Lark) -> None:
    message = lark.send("open_id", PERSON, "text", '{"text":"f"}', "").data.message_id
    assert lark.take_back(message).success()
    theirs = lark.made[-1]
    dialogue = OURS.recall(account(), SentCall(message, token_of(theirs)))
    assert dialogue is not None
    mine = of_httpx(next(dialogue))
    assert mine.named == theirs.named
    assert mine.fields["Authorization"] == theirs.fields["Authorization"]
    assert mine.body == theirs.body == b""
    again = lark.take_back(message)
    assert not again.success()
    with pytest.raises(StopIteration) as ended:
        dialogue.send(lark.made[-1].answer)
    assert ended.value.value.taken is RecallStatus.BACK
