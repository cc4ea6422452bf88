"""Apple Push Notification service: literal requests and answers, then the simulator's own opinion."""

import base64
import json
from collections.abc import Iterator
from time import time
from typing import Any, ClassVar
from uuid import UUID

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from channels.channel import Account, Call, Failure, LoginRefused, Phase, TokenSource
from channels.engine import Engine
from channels.http2_client.transport import Http2Transport
from channels.probe.probe import ExchangeRecorder, OwnTokens
from channels.providers.apns import adapter as apns
from channels.providers.apns.adapter import ApnsChannel
from channels.providers.apns.token_source import LIFE_S, STEP_S, ApnsTokens, issued_at, signed
from channels.registry import PROVIDERS, AccountError
from channels.secret import Secret
from channels.transports import TransportRouter
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from simulator import Faults, Simulator
from simulator.servers.certificates import Authority
from tests.channels.providers.chats import KEY, TIMEOUT_S, Peer, account_of, deliveries
from tests.conformance.samples.apns import ACCOUNT, PRIVATE_KEY
from tests.conformance.samples.fcm import PRIVATE_KEY as RSA_KEY
from tests.harness.simulators import spawn

NOW = 1_700_000_000.5
EXPIRES_AT = 1_700_000_300_500
UUID_OF_KEY = "01234567-89ab-cdef-0123-456789abcdef"
DEVICE = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
CHANNEL = ApnsChannel(lambda: NOW)
TABLE = {
    "provider": "apns",
    "team_id": "DEF123GHIJ",
    "key_id": "ABC123DEFG",
    "private_key": PRIVATE_KEY,
    "topic": "com.example.MyApp",
}
DOCUMENTED = {
    400: "BadCollapseId BadDeviceToken BadExpirationDate BadMessageId BadPriority BadTopic"
    " DeviceTokenNotForTopic DuplicateHeaders IdleTimeout InvalidPushType MissingDeviceToken"
    " MissingTopic PayloadEmpty TopicDisallowed",
    403: "BadCertificate BadCertificateEnvironment ExpiredProviderToken Forbidden"
    " InvalidProviderToken MissingProviderToken UnrelatedKeyIdInToken BadEnvironmentKeyIdInToken",
    404: "BadPath",
    405: "MethodNotAllowed",
    410: "ExpiredToken Unregistered",
    413: "PayloadTooLarge",
    429: "TooManyProviderTokenUpdates TooManyRequests",
    500: "InternalServerError",
    503: "ServiceUnavailable Shutdown",
}
"""All of "Handling notification responses from APNs", read 2026-11-22."""
STATUSES = {reason: status for status, names in DOCUMENTED.items() for reason in names.split()}


def call(content: dict[str, Any] | None = None, receiver: str = DEVICE, **account: Any) -> Call:
    made = deliveries(
        "push", [receiver], content or {"title": "t", "text": "b"}, expires_at=EXPIRES_AT
    )
    return Call(account_of(TABLE, **account), made, "J.W.T")


def headers_of(content: dict[str, Any], expires_at: int = EXPIRES_AT) -> dict[str, str]:
    (one,) = deliveries("push", [DEVICE], content, expires_at=expires_at)
    return dict(CHANNEL.request(Call(account_of(TABLE), [one], "J.W.T")).headers)


def payload_of(content: dict[str, Any]) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads(CHANNEL.request(call(content)).read())
    return payload


def answer(status: int, body: object = None, **headers: str) -> httpx.Response:
    content = b"" if body is None else json.dumps(body).encode()
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, content=content, headers=fields)


def refused(reason: str, status: int = 0, **more: object) -> httpx.Response:
    return answer(status or STATUSES.get(reason, 400), {"reason": reason, **more})


def outcome_of(
    given: httpx.Response | Failure, content: dict[str, Any] | None = None
) -> AnyOutcome:
    (outcome,) = CHANNEL.outcomes(call(content), given)
    return outcome


def refusal(content: dict[str, Any] | None, receiver: str = DEVICE) -> str:
    template = None if content is not None else Template("T", {})
    (one,) = deliveries("push", [receiver], content, template)
    return CHANNEL.refusal(account_of(TABLE), one)


def test_the_request_is_as_apple_documents_it() -> None:
    request = CHANNEL.request(call())
    assert request.method == "POST"
    assert str(request.url) == f"https://provider.example/3/device/{DEVICE}"
    assert json.loads(request.read()) == {"aps": {"alert": {"title": "t", "body": "b"}}}
    assert dict(request.headers) == {
        "host": "provider.example",
        "user-agent": "hongyan",
        "authorization": "bearer J.W.T",
        "apns-id": UUID_OF_KEY,
        "apns-push-type": "alert",
        "apns-priority": "10",
        "apns-topic": "com.example.MyApp",
        "apns-expiration": "1700000300",
        "apns-collapse-id": KEY,
        "content-type": "application/json",
        "content-length": str(len(request.read())),
    }


def test_the_id_is_the_calls_key_in_canonical_form() -> None:
    given = CHANNEL.request(call()).headers["apns-id"]
    assert given == str(UUID(KEY)) == given.lower()


def test_the_endpoint_is_apples_own_unless_the_account_says_another() -> None:
    assert PROVIDERS["apns"].endpoint == "https://api.push.apple.com"
    sandbox = call(endpoint="https://api.sandbox.push.apple.com")
    assert CHANNEL.request(sandbox).url.host == "api.sandbox.push.apple.com"


def test_only_calls_of_one_key_share_a_connection() -> None:
    of: list[dict[str, Any]] = [
        {},
        {"topic": "other"},
        {"key_id": "KEY4567890"},
        {"team_id": "TEAM567890"},
    ]
    logins = [CHANNEL.request(call(**more)).extensions["login"] for more in of]
    assert logins[0] == logins[1]
    assert len(set(logins)) == 3


def test_what_the_content_says_itself_stands() -> None:
    content = {
        "title": "t",
        "apns": {
            "payload": {"aps": {"alert": "mine", "badge": 3}, "extra": 1},
            "headers": {
                "apns-priority": "5",
                "apns-collapse-id": "mine",
                "apns-expiration": "0",
                "apns-topic": "com.example.other",
            },
        },
        "data": {"k": {"deep": True}, "extra": 0},
    }
    assert payload_of(content) == {
        "aps": {"alert": "mine", "badge": 3},
        "k": {"deep": True},
        "extra": 1,
    }
    headers = headers_of(content)
    assert headers["apns-priority"] == "5"
    assert headers["apns-collapse-id"] == "mine"
    assert headers["apns-expiration"] == "0"
    assert headers["apns-topic"] == "com.example.other"


def test_data_alone_is_a_background_push_of_low_priority_without_a_name() -> None:
    assert payload_of({"data": {"k": "v"}}) == {"aps": {"content-available": 1}, "k": "v"}
    headers = headers_of({"data": {"k": "v"}})
    assert (headers["apns-push-type"], headers["apns-priority"]) == ("background", "5")
    assert "apns-collapse-id" not in headers


def test_an_empty_collapse_id_switches_it_off() -> None:
    headers = headers_of({"text": "a", "apns": {"headers": {"apns-collapse-id": ""}}})
    assert "apns-collapse-id" not in headers


@pytest.mark.parametrize(
    ("kind", "topic"),
    [
        ("voip", "com.example.MyApp.voip"),
        ("liveactivity", "com.example.MyApp.push-type.liveactivity"),
        ("location", "com.example.MyApp.location-query"),
        ("pushtotalk", "com.example.MyApp.voip-ptt"),
    ],
)
def test_a_push_type_has_the_topic_that_apple_documents(kind: str, topic: str) -> None:
    own = {"payload": {"k": 1}, "headers": {"apns-push-type": kind}}
    assert headers_of({"apns": own})["apns-topic"] == topic


def test_thirty_days_are_the_longest() -> None:
    assert headers_of({"text": "a"}, 1_900_000_000_000)["apns-expiration"] == "1702592000"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no_provider_template: "),
        ({}, "bad_content: give text, title, data or apns.payload"),
        ({"apns": {}}, "bad_content: give text, title, data or apns.payload"),
        ({"text": ""}, "bad_content: "),
        ({"unknown": 1}, "bad_content: "),
        ({"data": {"aps": {}}}, "bad_content: data: the key 'aps' is Apple's own"),
        ({"apns": {"payload": {"aps": []}}}, "bad_content: apns.payload.aps must be an object"),
        ({"text": "a", "apns": {"headers": {"apns-id": "x"}}}, "bad_content: apns.headers: an unk"),
        ({"text": "a", "apns": {"headers": {"apns-priority": "7"}}}, "bad_content: apns.headers:"),
        ({"text": "a", "apns": {"headers": {"apns-push-type": "x"}}}, "bad_content: apns.headers:"),
        (
            {"text": "a", "apns": {"headers": {"apns-collapse-id": "x" * 65}}},
            "bad_content: apns.headers: apns-collapse-id",
        ),
        (
            {"text": "a", "apns": {"headers": {"apns-topic": "a\r\nb: c"}}},
            "bad_content: apns.headers: apns-topic",
        ),
        (
            {"text": "a", "apns": {"headers": {"apns-push-type": "background"}}},
            "bad_content: a background push has no alert",
        ),
        (
            {"data": {"k": 1}, "apns": {"headers": {"apns-priority": "10"}}},
            "bad_content: a background push has apns-priority",
        ),
        (
            {"data": {"k": 1}, "apns": {"headers": {"apns-push-type": "alert"}}},
            "bad_content: an alert shows",
        ),
        ({"data": {"k": "v" * 4_096}}, "too_long: APNs takes 4,096 bytes"),
        ({"text": "\ud800"}, "bad_content: cannot be written as JSON"),
    ],
)
def test_a_content_that_cannot_be_sent_is_refused_in_one_sentence(
    content: dict[str, Any] | None, said: str
) -> None:
    assert refusal(content).startswith(said)


def test_the_payload_may_have_4096_bytes_and_of_voip_5120() -> None:
    voip = {"headers": {"apns-push-type": "voip"}}
    for size, own, fits in (
        (4_096, {}, True),
        (4_097, {}, False),
        (5_120, voip, True),
        (5_121, voip, False),
    ):
        content: dict[str, Any] = {"data": {"k": ""}, "apns": own}
        content["data"]["k"] = "v" * (size - len(CHANNEL.request(call(content)).read()))
        assert (refusal(content) == "") is fits


@pytest.mark.parametrize(
    "receiver", ["", "token-1", DEVICE[:-1], DEVICE[:30], DEVICE * 4, f"{DEVICE}/../x", "group:a"]
)
def test_what_can_be_no_device_token_is_refused(receiver: str) -> None:
    assert refusal({"text": "a"}, receiver or "-").split(":")[0] in ("bad_receiver", "wrong_group")


@pytest.mark.parametrize("receiver", [DEVICE, DEVICE.upper(), "ab" * 16, "ab" * 100])
def test_a_device_token_may_have_any_documented_length(receiver: str) -> None:
    assert refusal({"text": "a"}, receiver) == ""


def test_the_documents_list_of_reasons_is_the_table() -> None:
    assert {row.code for row in CHANNEL.errors} == STATUSES.keys()
    assert {code: int(status) for code, status in apns._STATUSES.items()} == STATUSES


def test_a_token_that_has_expired_is_what_its_row_says() -> None:
    row = CHANNEL.errors.row("ExpiredProviderToken")
    assert row is not None
    assert outcome_of(refused(row.code)) == NotSent(
        row.code, row.meaning, row.delay_ms, row.account, row.limit
    )


def test_a_burst_to_one_device_paces_that_device_alone() -> None:
    outcome = outcome_of(refused("TooManyRequests"))
    assert isinstance(outcome, NotSent)
    assert outcome.limit is Limit.RECEIVER
    assert not outcome.account


def test_a_retry_after_goes_before_the_tables() -> None:
    outcome = outcome_of(answer(429, {"reason": "TooManyRequests"}, Retry_After="7"))
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after_ms == 7_000


def test_a_device_that_is_gone_is_rejected_with_the_time_that_apple_names() -> None:
    outcome = outcome_of(refused("Unregistered", timestamp=1_454_948_015_990))
    assert isinstance(outcome, Rejected)
    assert "1454948015990" in outcome.detail
    assert not outcome.account


@pytest.mark.parametrize("reason", ["BadTopic", "MissingTopic", "TopicDisallowed"])
def test_a_topic_of_the_accounts_halts_it_and_one_of_the_contents_does_not(reason: str) -> None:
    own = {"text": "a", "apns": {"headers": {"apns-topic": "com.example.other"}}}
    of_account, of_content = outcome_of(refused(reason)), outcome_of(refused(reason), own)
    assert isinstance(of_account, NotSent)
    assert of_account.account
    assert isinstance(of_content, Rejected)
    assert not of_content.account


def test_success_is_the_notifications_own_id() -> None:
    assert outcome_of(answer(200, apns_id=UUID_OF_KEY)) == Accepted(UUID_OF_KEY)
    upper = UUID_OF_KEY.upper()
    assert outcome_of(answer(200, apns_id=upper)) == Accepted(upper)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (answer(200), Unknown),
        (answer(200, apns_id="123e4567-e89b-12d3-a456-4266554400a0"), Unknown),
        (answer(202, apns_id=UUID_OF_KEY), Unknown),
        (answer(200, {"reason": "BadDeviceToken"}, apns_id=UUID_OF_KEY), Unknown),
        (answer(302, apns_id=UUID_OF_KEY), Unknown),
        (refused("BadDeviceToken", 500), Unknown),
        (refused("BadDeviceToken", 302), Unknown),
        (refused("InternalServerError", 400), Unknown),
        (refused("Shutdown", 503), Unknown),
        (refused("NewReason", 400), Rejected),
        (refused("NewReason", 403), NotSent),
        (refused("NewReason", 409), Unknown),
        (refused("NewReason", 429), NotSent),
        (refused("NewReason", 500), Unknown),
        (httpx.Response(400, content=b"<html>"), NotSent),
        (httpx.Response(403, content=b"<html>"), NotSent),
        (httpx.Response(502, content=b"<html>"), Unknown),
        (httpx.Response(500, content=b'{"reason":7}'), Unknown),
        (httpx.Response(400, content=b"[" * 100_000), NotSent),
        (Failure(Phase.NOT_WRITTEN, "connect"), NotSent),
        (Failure(Phase.WRITTEN, "timeout"), Unknown),
    ],
)
def test_answers_that_the_documents_do_not_know_are_judged_by_status_and_phase(
    given: httpx.Response | Failure, kind: type[AnyOutcome]
) -> None:
    assert type(outcome_of(given)) is kind


def test_a_new_reason_about_keys_halts_the_account_and_rejects_no_message() -> None:
    outcome = outcome_of(refused("NewReason", 403))
    assert isinstance(outcome, NotSent)
    assert outcome.account


def test_only_an_expired_provider_token_is_renewed() -> None:
    assert CHANNEL.token_refused(refused("ExpiredProviderToken"))
    assert not CHANNEL.token_refused(refused("ExpiredProviderToken", 400))
    assert not CHANNEL.token_refused(refused("InvalidProviderToken"))
    assert not CHANNEL.token_refused(refused("TooManyProviderTokenUpdates"))
    assert not CHANNEL.token_refused(answer(200, apns_id=UUID_OF_KEY))


# ---- the provider token -----------------------------------------------------------------------


def part(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def test_the_token_says_what_apple_asks_for_and_is_signed_by_the_key() -> None:
    header, claims, signature = signed(account_of(TABLE).options, 1_699_999_200).split(".")
    assert part(header) == {"alg": "ES256", "kid": "ABC123DEFG"}
    assert part(claims) == {"iss": "DEF123GHIJ", "iat": 1_699_999_200}
    raw = base64.urlsafe_b64decode(signature + "==")
    assert len(raw) == 64
    numbers = int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
    key = load_pem_private_key(PRIVATE_KEY.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    key.public_key().verify(
        encode_dss_signature(*numbers), f"{header}.{claims}".encode(), ec.ECDSA(SHA256())
    )


def token_at(seconds: float, stale: str = "") -> tuple[str, float]:
    token = ApnsTokens(lambda: seconds).request(account_of(TABLE), stale)
    return token.text, token.expires_in_s


def test_whoever_signs_in_a_half_hour_signs_the_same_token() -> None:
    begin = 1_699_999_200
    assert begin % STEP_S == 0
    assert token_at(begin) == (token_at(begin + 0.5)[0], LIFE_S)
    first, last = token_at(begin), token_at(begin + STEP_S - 1)
    assert first[0] == last[0]
    assert token_at(begin + STEP_S)[0] != first[0]


def test_no_token_is_used_that_apple_calls_expired_and_none_replaced_too_soon() -> None:
    """Under an hour old at its end, and the next one begins 20 minutes later or more, whenever in the
    half hour the fleet began; the store replaces it up to 240 s before its end."""
    for begun in range(1_699_999_200, 1_699_999_200 + STEP_S, 60):
        first, left_s = token_at(begun)
        ends = begun + left_s
        assert ends - issued_at(first) < 3_600
        second, _ = token_at(ends - 240)
        assert second != first
        assert ends - 240 - begun >= 20 * 60


def test_a_fresh_token_that_is_called_expired_is_a_refused_login_and_not_replaced() -> None:
    fresh, _ = token_at(NOW)
    with pytest.raises(LoginRefused, match="check this machine's clock"):
        token_at(NOW, fresh)
    assert token_at(NOW + STEP_S, fresh)[0] != fresh
    assert token_at(NOW, "no token of ours")[0] == fresh


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("private_key", "x", "private_key is not a P-256 private key"),
        ("team_id", "short", "team_id"),
        ("key_id", "ABC123DEF!", "key_id"),
        ("topic", "a b", "topic"),
        ("topic", "", "topic"),
    ],
)
def test_a_wrong_option_is_told_at_start(option: str, value: str, said: str) -> None:
    with pytest.raises(AccountError, match=said):
        account_of({**TABLE, option: value})


def test_a_key_of_another_kind_is_told_at_start_without_its_text() -> None:
    with pytest.raises(AccountError, match="private_key is not a P-256") as raised:
        account_of({**TABLE, "private_key": RSA_KEY})
    assert RSA_KEY.splitlines()[1] not in str(raised.value)


def test_the_key_is_never_shown() -> None:
    line = PRIVATE_KEY.splitlines()[1]
    assert line not in repr(account_of(TABLE)) + repr(call()) + repr(Secret(PRIVATE_KEY))


# ---- before the simulator ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(
        tmp_path_factory.mktemp("apns"), fsync=False, behaviours={"apns": {"limits": "off"}}
    ) as started:
        yield started


@pytest.fixture
def peer(simulator: Simulator) -> Iterator[Peer]:
    wires = TransportRouter()
    yield Peer("apns", simulator, wires)
    wires.close()


def at(simulator: Simulator, **options: Any) -> Account:
    """An account of the sample at a simulator."""
    return account_of({**ACCOUNT, **options}, simulator.url + "/apns")


def sent_with(
    channel: ApnsChannel, made: Call, tokens: OwnTokens, wires: TransportRouter
) -> AnyOutcome:
    (outcome,) = Engine(wires, tokens).send(channel, made, TIMEOUT_S)
    return outcome


def test_a_notification_is_accepted_under_its_own_id(peer: Peer) -> None:
    made = peer.call(1)
    (outcome,) = peer.send(made)
    assert outcome == Accepted(str(UUID(made.key)))
    assert [one.key for one in peer.simulator.records()] == [f"apns:{UUID(made.key)}"]


def test_no_request_asks_for_a_token(peer: Peer) -> None:
    assert isinstance(peer.send(peer.call(2))[0], Accepted)
    assert [one.purpose for one in peer.recorder.exchanges] == ["send"]


def test_a_repeat_bears_the_same_id_and_apple_sees_both(peer: Peer) -> None:
    """No idempotency: what is in doubt and sent again is accepted twice."""
    before = len(peer.accepted())
    (lost,) = peer.send(peer.call(3), Faults(reset=1.0))
    assert isinstance(lost, Unknown)
    (again,) = peer.send(peer.call(3, attempt=2))
    assert isinstance(again, Accepted)
    assert len(peer.accepted()) == before + 2
    assert {one.key for one in list(peer.simulator.records())[-2:]} == {
        f"apns:{UUID(peer.call(3).key)}"
    }


def test_an_expired_token_is_signed_anew_and_the_message_sent_once(peer: Peer) -> None:
    begun = [-7_200.0]

    class Late(ApnsChannel):
        tokens: ClassVar[TokenSource | None] = ApnsTokens(lambda: time() + begun[0])

    def later(request: httpx.Request) -> httpx.Response | Failure:
        answered = peer.recorder.send(request)
        begun[0] = 0.0  # our clock is set right
        return answered

    class Clocked:
        send = staticmethod(later)

    channel = Late()
    engine = Engine(Clocked(), peer.tokens)
    before = len(peer.accepted())
    (outcome,) = engine.send(channel, peer.call(4), TIMEOUT_S)
    assert isinstance(outcome, Accepted)
    statuses = [
        one.answer.status_code
        for one in peer.recorder.exchanges
        if isinstance(one.answer, httpx.Response)
    ]
    assert statuses == [403, 200]
    assert len(peer.accepted()) == before + 1


def test_a_clock_that_is_hours_behind_is_a_refused_login_that_says_so(peer: Peer) -> None:
    class Behind(ApnsChannel):
        tokens: ClassVar[TokenSource | None] = ApnsTokens(lambda: time() - 7_200)

    (outcome,) = Engine(peer.recorder, peer.tokens).send(Behind(), peer.call(5), TIMEOUT_S)
    assert isinstance(outcome, NotSent)
    assert (outcome.code, outcome.limit) == ("login_refused", Limit.LOGIN)
    assert "clock" in outcome.detail


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"key_id": "OTHERKEY01"}, "InvalidProviderToken"),
        ({"team_id": "OTHERTEAM1"}, "InvalidProviderToken"),
        ({"topic": "com.example.other"}, "TopicDisallowed"),
    ],
)
def test_what_is_wrong_with_an_account_halts_it(
    peer: Peer, options: dict[str, Any], reason: str
) -> None:
    (outcome,) = peer.send(peer.call(6, **options))
    assert isinstance(outcome, NotSent)
    assert (outcome.code, outcome.account) == (reason, True)


def test_accounts_of_two_keys_have_connections_of_their_own(peer: Peer) -> None:
    """Apple refuses a second key on a connection (UnrelatedKeyIdInToken), and so does the simulator."""
    for key_id in ("SIMULATOR1", "SIMULATOR2", "SIMULATOR1"):
        made = peer.call(7, key_id=key_id)
        tokens = OwnTokens(peer.recorder, TIMEOUT_S)
        (outcome,) = Engine(peer.recorder, tokens).send(peer.channel, made, TIMEOUT_S)
        assert isinstance(outcome, Accepted)


def test_a_second_key_on_one_connection_is_refused_by_the_simulator(simulator: Simulator) -> None:
    transport = Http2Transport()
    answers = []
    for key_id in ("SIMULATOR1", "SIMULATOR2"):
        account = at(simulator, key_id=key_id)
        token = ApnsTokens().request(account, "").text
        request = CHANNEL.request(Call(account, call().deliveries, token))
        del request.extensions["login"]
        answers.append(transport.send(request))
    transport.close()
    said = [one.content for one in answers if isinstance(one, httpx.Response)]
    assert said == [b"", b'{"reason":"UnrelatedKeyIdInToken"}']


def test_a_second_token_within_20_minutes_is_one_too_many(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    wires = TransportRouter()
    with spawn(tmp_path_factory.mktemp("limits"), fsync=False) as simulator:
        account = at(simulator)
        outcomes = []
        for earlier_s in (0.0, 0.0, STEP_S):
            tokens = OwnTokens(ExchangeRecorder(wires), TIMEOUT_S)
            tokens.texts[account.name] = (
                ApnsTokens(lambda back=earlier_s: time() - back).request(account, "").text  # type: ignore[misc]
            )
            made = Call(account, deliveries("push", [DEVICE], {"text": "a"}))
            outcomes.append(sent_with(ApnsChannel(), made, tokens, wires))
    wires.close()
    assert [type(one) for one in outcomes] == [Accepted, Accepted, NotSent]
    assert isinstance(outcomes[2], NotSent)
    assert (outcomes[2].code, outcomes[2].limit) == ("TooManyProviderTokenUpdates", Limit.ACCOUNT)


def test_a_burst_to_one_device_is_paced_and_other_devices_go_on(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    wires = TransportRouter()
    with spawn(tmp_path_factory.mktemp("burst"), fsync=False) as simulator:
        account, tokens = at(simulator), OwnTokens(ExchangeRecorder(wires), TIMEOUT_S)
        devices = [DEVICE] * 4 + ["ab" * 32]
        outcomes = [
            sent_with(
                ApnsChannel(),
                Call(account, deliveries("push", [one], {"text": "a"})),
                tokens,
                wires,
            )
            for one in devices
        ]
    wires.close()
    assert [type(one) for one in outcomes] == [Accepted, Accepted, Accepted, NotSent, Accepted]
    assert isinstance(outcomes[3], NotSent)
    assert outcomes[3].limit is Limit.RECEIVER


def test_the_provider_speaks_http2_alone(simulator: Simulator) -> None:
    answered = httpx.post(f"{simulator.url}/apns/3/device/{DEVICE}", trust_env=False)
    assert answered.status_code == 505


def test_it_is_sent_over_tls_as_apple_is(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    wires = TransportRouter()
    certificate = str(authority.certificate("127.0.0.1"))
    with spawn(folder, fsync=False, certificate=certificate) as simulator:
        account = at(simulator, ca_file=str(authority.file))
        tokens = OwnTokens(ExchangeRecorder(wires), TIMEOUT_S)
        made = Call(account, deliveries("push", [DEVICE], {"text": "a"}))
        assert isinstance(sent_with(ApnsChannel(), made, tokens, wires), Accepted)
    wires.close()
