"""Firebase Cloud Messaging: literal requests out, literal answers in, then the simulator's own opinion."""

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from channels.channel import Call, Failure, Phase, TokenRefused
from channels.http_client.transport import Transport
from channels.providers.fcm.adapter import FcmChannel
from channels.providers.fcm.token_source import FcmTokens, signed
from channels.registry import AccountError
from channels.secret import Secret
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from simulator import Faults, Simulator
from tests.channels.providers.chats import KEY, Peer, account_of, deliveries
from tests.conformance.samples.fcm import PRIVATE_KEY
from tests.harness.simulators import spawn

NOW = 1_700_000_000.5
EXPIRES_AT = 1_700_000_300_500
CHANNEL = FcmChannel(lambda: NOW)
TOKENS = FcmTokens(lambda: NOW)
TABLE = {
    "provider": "fcm",
    "project_id": "my-project",
    "client_email": "sender@my-project.iam.gserviceaccount.com",
    "private_key": PRIVATE_KEY,
}
FCM_ERROR = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
OWN = {
    "UNSPECIFIED_ERROR",
    "INVALID_ARGUMENT",
    "UNREGISTERED",
    "SENDER_ID_MISMATCH",
    "QUOTA_EXCEEDED",
    "UNAVAILABLE",
    "INTERNAL",
    "THIRD_PARTY_AUTH_ERROR",
}
"""All that https://firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode lists."""


def call(
    content: dict[str, Any] | None = None, receiver: str = "bk3RNwTe3H0:CI2k_HHw-1", **account: Any
) -> Call:
    made = deliveries(
        "push", [receiver], content or {"title": "t", "text": "b"}, expires_at=EXPIRES_AT
    )
    return Call(account_of(TABLE, **account), made, "ya29.x")


def message_of(content: dict[str, Any], receiver: str = "token") -> dict[str, Any]:
    message: dict[str, Any] = json.loads(CHANNEL.request(call(content, receiver)).read())["message"]
    return message


def answer(body: object, status: int = 200, **headers: str) -> httpx.Response:
    return httpx.Response(status, content=json.dumps(body).encode(), headers=headers)


def error(code: str, status: str = "X", http: int = 400, **headers: str) -> httpx.Response:
    details = [{"@type": "other", "x": 1}, {"@type": FCM_ERROR, "errorCode": code}]
    said = {"code": http, "message": "why", "status": status, "details": details if code else []}
    return answer({"error": said}, http, **headers)


def outcome_of(given: httpx.Response | Failure) -> AnyOutcome:
    (outcome,) = CHANNEL.outcomes(call(), given)
    return outcome


def refusal(content: dict[str, Any] | None, receiver: str = "token") -> str:
    template = None if content is not None else Template("T", {})
    (one,) = deliveries("push", [receiver], content, template)
    return CHANNEL.refusal(account_of(TABLE), one)


def test_the_message_names_itself_and_its_end_on_every_kind_of_device() -> None:
    request = CHANNEL.request(call())
    assert request.method == "POST"
    assert str(request.url) == "https://provider.example/v1/projects/my-project/messages:send"
    assert request.headers["authorization"] == "Bearer ya29.x"
    assert json.loads(request.read()) == {
        "message": {
            "token": "bk3RNwTe3H0:CI2k_HHw-1",
            "notification": {"title": "t", "body": "b"},
            "android": {"ttl": "300s", "notification": {"tag": KEY}},
            "apns": {"headers": {"apns-expiration": "1700000300", "apns-collapse-id": KEY}},
            "webpush": {"headers": {"TTL": "300"}, "notification": {"tag": KEY}},
        }
    }


def test_what_the_content_says_of_a_device_stands() -> None:
    message = message_of(
        {
            "notification": {"title": "t"},
            "android": {"ttl": "5s", "notification": {"tag": "mine", "sound": "s"}},
            "apns": {"payload": {"aps": {"badge": 1}}, "headers": {"apns-collapse-id": "mine"}},
            "webpush": {"headers": {"TTL": "7"}, "notification": {"tag": "mine"}},
            "fcm_options": {"analytics_label": "l"},
        }
    )
    assert message["android"] == {"ttl": "5s", "notification": {"tag": "mine", "sound": "s"}}
    assert message["apns"]["headers"]["apns-collapse-id"] == "mine"
    assert message["apns"]["payload"] == {"aps": {"badge": 1}}
    assert message["webpush"] == {"headers": {"TTL": "7"}, "notification": {"tag": "mine"}}
    assert message["fcm_options"] == {"analytics_label": "l"}


def test_data_alone_shows_nothing_and_so_has_no_name() -> None:
    assert message_of({"data": {"k": "v"}}) == {
        "token": "token",
        "data": {"k": "v"},
        "android": {"ttl": "300s"},
        "apns": {"headers": {"apns-expiration": "1700000300"}},
        "webpush": {"headers": {"TTL": "300"}},
    }


def test_a_topic_is_named_as_one() -> None:
    message = message_of({"text": "a"}, "/topics/news")
    assert message["topic"] == "news"
    assert "token" not in message


def test_four_weeks_are_the_longest_and_what_is_past_waits_for_nothing() -> None:
    for expires_at, ttl in ((1_900_000_000_000, "2419200s"), (1_600_000_000_000, "0s")):
        (one,) = deliveries("push", ["token"], {"text": "a"}, expires_at=expires_at)
        body = json.loads(CHANNEL.request(Call(account_of(TABLE), [one], "t")).read())
        assert body["message"]["android"]["ttl"] == ttl


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no_provider_template: "),
        ({}, "bad_content: give text, notification or data"),
        ({"android": {}}, "bad_content: give text, notification or data"),
        ({"text": "a", "notification": {"body": "b"}}, "bad_content: give notification, or text"),
        ({"data": {"k": 1}}, "bad_content: Expected `str`"),
        ({"data": {"from": "x"}}, "bad_content: data: the key 'from' is FCM's own"),
        ({"data": {"google.x": "x"}}, "bad_content: data: the key 'google.x' is FCM's own"),
        ({"text": "a", "apns": {"headers": 1}}, "bad_content: apns.headers must be an object"),
        ({"text": "a", "webpush": {"notification": []}}, "bad_content: webpush.notification must"),
        ({"data": {"k": "v" * 4_096}}, "too_long: "),
        ({"text": "\ud800"}, "bad_content: cannot be written as JSON"),
        ({"text": "a", "android": {"x": "\ud800"}}, "bad_content: cannot be written as JSON"),
    ],
)
def test_a_content_that_cannot_be_sent_is_refused_in_one_sentence(
    content: dict[str, Any] | None, said: str
) -> None:
    assert refusal(content).startswith(said)


def test_a_topic_takes_half_as_much() -> None:
    content = {"data": {"k": "v" * 2_048}}
    assert refusal(content) == ""
    assert refusal(content, "/topics/news").startswith("too_long: FCM takes 2,048 bytes")


@pytest.mark.parametrize("receiver", ["a token", "/topics/", "/topic/x", "to/ken", "https://x"])
def test_what_can_be_no_token_and_no_topic_is_refused(receiver: str) -> None:
    assert refusal({"text": "a"}, receiver).startswith("bad_receiver: ")


def test_fcms_own_list_of_errors_is_in_the_table() -> None:
    assert {row.code for row in CHANNEL.errors} >= OWN


def test_the_documents_example_of_an_invalid_token_is_a_rejection() -> None:
    said = {
        "error": {
            "code": 400,
            "message": "The registration token is not a valid FCM registration token",
            "status": "INVALID_ARGUMENT",
            "details": [{"@type": FCM_ERROR, "errorCode": "INVALID_ARGUMENT"}],
        }
    }
    outcome = outcome_of(answer(said, 400))
    assert isinstance(outcome, Rejected)
    assert outcome.detail == "The registration token is not a valid FCM registration token"


def test_an_overload_leaves_the_call_in_doubt_even_where_it_names_a_time() -> None:
    late = error("UNAVAILABLE", http=503, **{"Retry-After": "30"})
    assert isinstance(outcome_of(late), Unknown)
    assert isinstance(outcome_of(error("UNAVAILABLE", http=503)), Unknown)


def test_a_plain_not_found_is_a_dead_token_and_halts_no_account() -> None:
    outcome = outcome_of(error("", "NOT_FOUND", 404))
    assert isinstance(outcome, Rejected)
    assert not outcome.account


def test_the_apns_keys_older_name_leaves_the_account_open() -> None:
    outcome = outcome_of(error("APNS_AUTH_ERROR", "UNAUTHENTICATED", 401))
    assert isinstance(outcome, NotSent)
    assert not outcome.account
    assert not CHANNEL.token_refused(error("APNS_AUTH_ERROR", "UNAUTHENTICATED", 401))


def test_the_quotas_own_wish_goes_before_the_tables() -> None:
    outcome = outcome_of(error("QUOTA_EXCEEDED", http=429, **{"Retry-After": "90"}))
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after_ms == 90_000


QUOTA_FAILURE = "type.googleapis.com/google.rpc.QuotaFailure"
PROJECT_WIDE = {"subject": "project:my-project", "description": "Message rate exceeded"}
OF_DEVICE = {"subject": "device:bk3RNwTe3H0", "description": "rate exceeded"}
OF_TOPIC = {"subject": "project:my-project", "description": "Topic message rate exceeded"}


def over_quota(
    violations: object, message: str = "Quota exceeded.", code: str = "QUOTA_EXCEEDED"
) -> httpx.Response:
    """A 429 of FCM; `violations` None: without a QuotaFailure. `code` empty: without an FcmError."""
    own = [{"@type": FCM_ERROR, "errorCode": code}] if code else []
    failure = [{"@type": QUOTA_FAILURE, "violations": violations}] if violations is not None else []
    said = {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED"}
    return answer({"error": {**said, "details": [*own, *failure]}}, 429)


@pytest.mark.parametrize("code", ["QUOTA_EXCEEDED", ""])
@pytest.mark.parametrize(
    ("violations", "limit"),
    [
        (None, Limit.ACCOUNT),
        ([], Limit.ACCOUNT),
        ([PROJECT_WIDE], Limit.ACCOUNT),
        ([OF_DEVICE], Limit.RECEIVER),
        ([OF_TOPIC], Limit.RECEIVER),
        ([OF_DEVICE, PROJECT_WIDE], Limit.ACCOUNT),
        ([{"quotaMetric": "fcm.googleapis.com/send_requests"}], Limit.ACCOUNT),
        ("devices", Limit.ACCOUNT),
        (["device"], Limit.ACCOUNT),
        ([{"subject": 7, "description": None}], Limit.ACCOUNT),
    ],
)
def test_a_quota_is_the_projects_unless_every_violation_names_a_device_or_a_topic(
    code: str, violations: object, limit: Limit
) -> None:
    outcome = outcome_of(over_quota(violations, code=code))
    assert isinstance(outcome, NotSent)
    assert (outcome.limit, outcome.account, outcome.retry_after_ms) == (limit, False, 60_000)


def test_without_a_violation_the_message_may_name_the_topic() -> None:
    outcome = outcome_of(over_quota(None, "Topic quota exceeded."))
    assert isinstance(outcome, NotSent)
    assert outcome.limit is Limit.RECEIVER
    wide = outcome_of(over_quota([PROJECT_WIDE], "Topic quota exceeded."))
    assert isinstance(wide, NotSent)
    assert wide.limit is Limit.ACCOUNT


def test_a_project_that_is_called_after_devices_is_no_device() -> None:
    wide = {"subject": "project:device-hub", "description": "Message rate exceeded"}
    asked = call(project_id="device-hub")
    (outcome,) = CHANNEL.outcomes(asked, over_quota([wide]))
    assert isinstance(outcome, NotSent)
    assert outcome.limit is Limit.ACCOUNT


def test_violations_of_another_detail_are_not_read() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.BadRequest", "violations": [OF_DEVICE]}]
    said = {"code": 429, "message": "", "status": "RESOURCE_EXHAUSTED", "details": details}
    outcome = outcome_of(answer({"error": said}, 429))
    assert isinstance(outcome, NotSent)
    assert outcome.limit is Limit.ACCOUNT


def test_success_is_named_by_the_message() -> None:
    name = "projects/my-project/messages/0:1500415314455276%31bd1c9631bd1c96"
    assert outcome_of(answer({"name": name})) == Accepted(name)


@pytest.mark.parametrize(
    "body",
    [b"", b"ok", b"[]", b"{}", b'{"name":7}', b'{"error":{}}', b"\xff", b"[" * 100_000],
)
def test_a_malformed_answer_leaves_the_call_in_doubt(body: bytes) -> None:
    assert isinstance(outcome_of(httpx.Response(200, content=body)), Unknown)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (httpx.Response(502, content=b"<html>"), Unknown),
        (httpx.Response(429), NotSent),
        (answer({"name": "projects/p/messages/1"}, 500), Unknown),
        (error("NEW_ERROR"), Rejected),
        (error("NEW_ERROR", http=500), Unknown),
        (error("NEW_ERROR", http=429), NotSent),
        (error("NEW_ERROR", http=409), Unknown),
        (Failure(Phase.NOT_WRITTEN, "connect"), NotSent),
        (Failure(Phase.WRITTEN, "timeout"), Unknown),
    ],
)
def test_answers_that_the_documents_do_not_know_are_judged_by_status_and_phase(
    given: httpx.Response | Failure, kind: type[AnyOutcome]
) -> None:
    assert type(outcome_of(given)) is kind


def test_only_the_tokens_own_401_renews_it() -> None:
    assert CHANNEL.token_refused(error("", "UNAUTHENTICATED", 401))
    assert not CHANNEL.token_refused(error("THIRD_PARTY_AUTH_ERROR", "UNAUTHENTICATED", 401))
    assert not CHANNEL.token_refused(answer({"name": "projects/p/messages/1"}))


def part(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def test_the_jwt_says_what_google_asks_for_and_is_signed_by_the_account() -> None:
    account = account_of(TABLE, private_key_id="k1")
    header, claims, signature = signed(account.options, 1_700_000_000).split(".")
    assert part(header) == {"alg": "RS256", "typ": "JWT", "kid": "k1"}
    assert part(claims) == {
        "iss": "sender@my-project.iam.gserviceaccount.com",
        "scope": "https://www.googleapis.com/auth/firebase.messaging",
        "aud": "https://oauth2.googleapis.com/token",
        "iat": 1_700_000_000,
        "exp": 1_700_003_600,
    }
    key = load_pem_private_key(PRIVATE_KEY.encode(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    given = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    key.public_key().verify(given, f"{header}.{claims}".encode(), padding.PKCS1v15(), SHA256())


@pytest.mark.parametrize(
    ("account", "address"),
    [
        ({"endpoint": "https://fcm.googleapis.com"}, "https://oauth2.googleapis.com/token"),
        ({"endpoint": "https://proxy.example/fcm/"}, "https://proxy.example/fcm/token"),
        ({"token_uri": "https://tokens.example/t"}, "https://tokens.example/t"),
    ],
)
def test_the_token_is_asked_of_google_or_of_what_stands_in_for_it(
    account: dict[str, Any], address: str
) -> None:
    request = TOKENS.request(account_of(TABLE, **account), "")
    assert str(request.url) == address
    form = parse_qs(request.read().decode())
    assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    assert form["assertion"] == [signed(account_of(TABLE).options, 1_700_000_000)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            answer({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, 400),
            "invalid_grant: Invalid JWT Signature.",
        ),
        (answer({}, 200), "http_200: "),
        (httpx.Response(503), "http_503: an answer without a token"),
    ],
)
def test_a_refused_token_says_googles_error(given: httpx.Response, said: str) -> None:
    with pytest.raises(TokenRefused, match=said):
        TOKENS.read(given)


def test_a_token_is_read_with_its_time() -> None:
    token = TOKENS.read(
        answer({"access_token": "ya29.y", "expires_in": 3599, "token_type": "Bearer"})
    )
    assert (token.text, token.expires_in_s) == ("ya29.y", 3599.0)


@pytest.mark.parametrize(
    "key", ["-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "x"]
)
def test_a_key_that_cannot_sign_is_told_at_start_without_its_text(key: str) -> None:
    with pytest.raises(AccountError, match="private_key is not an RSA private key") as raised:
        account_of({**TABLE, "private_key": key})
    assert "AAAA" not in str(raised.value)


def test_the_key_is_never_shown() -> None:
    line = PRIVATE_KEY.splitlines()[1]
    assert line not in repr(account_of(TABLE)) + repr(call()) + repr(Secret(PRIVATE_KEY))


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(tmp_path_factory.mktemp("fcm"), fsync=False) as started:
        yield started


@pytest.fixture
def peer(simulator: Simulator) -> Iterator[Peer]:
    transport = Transport()
    yield Peer("fcm", simulator, transport)
    transport.close()


def test_a_repeat_bears_the_name_of_what_it_replaces(peer: Peer) -> None:
    (lost,) = peer.send(peer.call(1), Faults(reset=1.0))
    assert isinstance(lost, Unknown)
    (repeated,) = peer.send(peer.call(1, attempt=2))
    assert isinstance(repeated, Accepted)
    records = [one for one in peer.simulator.records() if one.receiver == "token-1"]
    assert [one.id for one in records] == [peer.call(1).key] * 2


def test_an_expired_token_is_renewed_once_and_the_message_sent_once(peer: Peer) -> None:
    assert isinstance(peer.send(peer.call(2))[0], Accepted)
    peer.simulator.control(expire_tokens=True)
    peer.recorder.exchanges.clear()
    assert isinstance(peer.send(peer.call(3))[0], Accepted)
    assert [one.purpose for one in peer.recorder.exchanges] == ["send", "token", "send"]
    assert peer.accepted().count("token-3") == 1


def test_another_key_or_another_sender_gets_no_token(peer: Peer) -> None:
    (outcome,) = peer.send(peer.call(4, client_email="other@simulator.example"))
    assert isinstance(outcome, NotSent)
    assert outcome.detail == "invalid_grant: Invalid grant: account not found"
    assertion = signed(peer.account.options, int(NOW)).rpartition(".")[0] + "." + "A" * 342
    forged = TOKENS.request(peer.account, "")
    body = f"grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer&assertion={assertion}"
    reply = peer.recorder.send(httpx.Request("POST", forged.url, content=body.encode()))
    assert isinstance(reply, httpx.Response)
    with pytest.raises(TokenRefused, match="Invalid JWT Signature"):
        TOKENS.read(reply)


def test_an_old_jwt_gets_no_token(peer: Peer) -> None:
    reply = peer.recorder.send(TOKENS.request(peer.account, ""))
    assert isinstance(reply, httpx.Response)
    with pytest.raises(TokenRefused, match="short-lived"):
        TOKENS.read(reply)


def test_a_device_that_is_gone_is_a_rejection(peer: Peer) -> None:
    (outcome,) = peer.send(peer.call(5), Faults(receiver_codes={"UNREGISTERED": 1.0}))
    assert isinstance(outcome, Rejected)
    assert "token-5" not in peer.accepted()
