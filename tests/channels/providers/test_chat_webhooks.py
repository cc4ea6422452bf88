"""Incoming webhooks of Slack, Discord, Mattermost and Teams: the address is a secret, nobody is called on
by accident, and each answer is what its provider says."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from backends.settings import FileText
from channels.channel import Call, Channel, Failure, Phase, RecallStatus, SentCall
from channels.http_client.transport import Transport
from channels.probe.probe import ShownExchange
from channels.probe.redaction import Masks
from channels.registry import PROVIDERS, AccountError, load_accounts
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from simulator import Faults, Simulator
from tests.channels.providers.chats import KEY, Peer, account_of, deliveries
from tests.conformance.samples import UNLIMITED
from tests.harness.simulators import spawn

HOOKS = {
    "slack": "services/T000/B000/an-address",
    "discord": "api/webhooks/123456789/an-address",
    "mattermost": "hooks/an-address",
    "teams": "workflows/1/triggers/manual/paths/invoke?api-version=1&sp=%2Frun&sig=an-address",
}
NAMES = sorted(HOOKS)
PINGS = (
    "<!channel> <!here> <!everyone> <!all> <@U0123456> <@123456789> <@!123456789> <@&123456789> "
    "@everyone @here @channel @all @ann _@channel_ 你好@channel <!subteam^S0123456> <at>ann</at> "
    "https://example.com/@all/x?to=@here [a](https://example.com/@ann)@all https://@ann/@everyone"
)
"""Whatever of the four calls on somebody."""


def table(provider: str) -> dict[str, Any]:
    return {"provider": provider, "hook": HOOKS[provider], "group": "ops"}


def call(provider: str, content: dict[str, Any] | None = None) -> Call:
    said = content or {"text": "你好"}
    return Call(account_of(table(provider)), deliveries("chat", ["group:ops"], said))


def body(provider: str, content: dict[str, Any]) -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(PROVIDERS[provider].request(call(provider, content)).read())
    return sent


def outcome_of(provider: str, given: httpx.Response | Failure) -> AnyOutcome:
    (outcome,) = PROVIDERS[provider].outcomes(call(provider), given)
    return outcome


def refusal(provider: str, content: dict[str, Any], receiver: str = "group:ops") -> str:
    (one,) = deliveries("chat", [receiver], content)
    return PROVIDERS[provider].refusal(account_of(table(provider)), one)


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    folder = tmp_path_factory.mktemp("chat")
    with spawn(folder, fsync=False, behaviours=UNLIMITED) as started:
        yield started


@pytest.fixture
def transport() -> Iterator[Transport]:
    opened = Transport()
    yield opened
    opened.close()


def sent(peer: Peer, content: dict[str, Any]) -> tuple[AnyOutcome, int]:
    """The outcome at the simulator, and how many were called on."""
    made = deliveries("chat", ["group:ops"], content)
    before = called_on(peer)
    (outcome,) = peer.send(Call(peer.account, made))
    return outcome, called_on(peer) - before


def called_on(peer: Peer) -> int:
    counts = peer.simulator.report(summary_only=True).summary.counts
    return counts.get(f"{peer.sample.provider}.mentions", 0)


# ---- the address ------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", NAMES)
def test_the_hook_stands_behind_the_endpoint_and_is_masked_wherever_it_is_shown(
    provider: str,
) -> None:
    made = call(provider)
    request = PROVIDERS[provider].request(made)
    url = str(request.url)
    assert url.startswith(f"https://provider.example/{HOOKS[provider]}")
    assert "an-address" not in repr(made) + repr(made.account)
    masks = Masks(made.account, [], "group:ops", "group:***")
    answer = httpx.Response(404, content=f"no hook at {url}".encode(), request=request)
    shown = repr(masks.exchange(ShownExchange("send", request, answer, 1.0)))
    assert "an-address" not in shown
    assert HOOKS[provider].partition("?")[0] not in shown


@pytest.mark.parametrize("provider", NAMES)
@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ("https://hooks.example/an-address", "hook: give what follows the host"),
        ("an address", "hook: holds characters that no address has"),
        ("an-address#part", "hook: holds characters that no address has"),
        ("/", "hook: holds characters that no address has"),
    ],
)
def test_a_hook_that_is_no_end_of_an_address_is_refused_without_showing_it(
    provider: str, hook: str, said: str
) -> None:
    with pytest.raises(AccountError) as refused:
        account_of({**table(provider), "hook": hook})
    assert said in str(refused.value)
    assert "address" not in str(refused.value).replace("webhook's address", "").replace(
        "no address has", ""
    )


def test_a_hook_in_the_configuration_file_itself_is_refused() -> None:
    literal = {**table("slack"), "hook": FileText("services/T/B/an-address")}
    with pytest.raises(AccountError, match=r"accounts\.ops\.hook"):
        load_accounts({"ops": literal})


@pytest.mark.parametrize("provider", NAMES)
def test_an_account_names_its_group_and_takes_no_other_receiver(provider: str) -> None:
    with pytest.raises(AccountError, match=r"accounts\.main\.group: is missing"):
        account_of({"provider": provider, "hook": HOOKS[provider]})
    assert refusal(provider, {"text": "a"}) == ""
    assert refusal(provider, {"text": "a"}, "group:sales").startswith("wrong_group: ")
    assert refusal(provider, {"text": "a"}, "ann").startswith("wrong_receiver: ")


def test_two_accounts_of_one_webhook_are_counted_as_one() -> None:
    first, second, third = (
        account_of({**table("slack"), "hook": hook})
        for hook in ("services/a", "services/a", "services/b")
    )
    assert first.counted == second.counted != third.counted


# ---- what is said -----------------------------------------------------------------------------


def test_slack_escapes_a_text_and_turns_formatting_off() -> None:
    assert body("slack", {"text": "a < b & *c* <!channel>"}) == {
        "text": "a &lt; b &amp; *c* &lt;!channel&gt;",
        "mrkdwn": False,
    }


def test_slack_keeps_the_links_of_its_markdown_and_of_blocks() -> None:
    link = "*see* <https://example.com/?a=1&amp;b=2|here> <!channel>"
    quiet = "*see* <https://example.com/?a=1&amp;b=2|here> &lt;!channel>"
    section = {"type": "section", "text": {"type": "mrkdwn", "text": link}}
    assert body("slack", {"markdown": link}) == {"text": quiet}
    said = body("slack", {"text": "short", "blocks": [section]})
    assert said["blocks"] == [{"type": "section", "text": {"type": "mrkdwn", "text": quiet}}]
    assert said["text"] == "short"


def test_discord_names_who_may_be_called_on_in_every_message() -> None:
    assert body("discord", {"text": "a_b @everyone https://example.com/a_b"}) == {
        "allowed_mentions": {"parse": [], "users": [], "roles": []},
        "content": "a\\_b \\@everyone https://example.com/a_b",
    }
    assert body("discord", {"markdown": "**x**", "mention": ["here", "role:55555", "12345"]}) == {
        "allowed_mentions": {"parse": ["everyone"], "users": ["12345"], "roles": ["55555"]},
        "content": "@here <@&55555> <@12345> **x**",
    }


@pytest.mark.parametrize("called", ["everyone", "here"])
@pytest.mark.parametrize(
    ("content", "sent_as"),
    [
        ({"markdown": "from @everyone"}, "from @\u200beveryone"),
        ({"text": "from @here"}, "from \\@\u200bhere"),
        ({"markdown": "a@everyone <@1>"}, "a@\u200beveryone <@1>"),
        ({"text": "https://e.example/@here"}, "https://e.example/%40here"),
        ({"markdown": "[a](https://e.example/x@everyone)"}, "[a](https://e.example/x%40everyone)"),
    ],
)
def test_a_value_mentions_not_everybody_where_discord_may(
    content: dict[str, Any], sent_as: str, called: str
) -> None:
    said = body("discord", {**content, "mention": [called]})
    assert said["content"] == f"@{called} {sent_as}"


def test_mattermost_parts_the_sign_from_the_name() -> None:
    said = body("mattermost", {"markdown": "@channel ann@example.com <!here> **x**"})
    assert said == {"text": "@\u200bchannel ann@example.com <\u200b!here> **x**"}


@pytest.mark.parametrize(
    ("written", "sent_as"),
    [
        ("https://medium.com/@team/a-42", "https://medium.com/%40team/a-42"),
        ("[b](https://npmjs.com/package/@acme/x)", "[b](https://npmjs.com/package/%40acme/x)"),
        (
            "https://e.example/?to=@ann&cc=@bob#@x",
            "https://e.example/?to=%40ann&cc=%40bob#%40x",
        ),
        ("https://e.example/logo@2x.png", "https://e.example/logo@2x.png"),
        ("https://ann:pw@e.example/", "https://ann:pw@e.example/"),
        ("[a](https://e.example/x)@all", "[a](https://e.example/x)@\u200ball"),
        ("见 https://e.example/x，@张三", "见 https://e.example/x，@\u200b张三"),
    ],
)
def test_mattermosts_web_addresses_mention_nobody_and_still_open(
    written: str, sent_as: str
) -> None:
    assert body("mattermost", {"markdown": written}) == {"text": sent_as}
    attachment = {"title": "Build", "title_link": written, "text": "x"}
    said = body("mattermost", {"attachments": [attachment]})
    assert said["attachments"] == [{**attachment, "title_link": sent_as}]


def test_lines_that_would_begin_a_list_are_escaped() -> None:
    said = body("mattermost", {"text": "1. a\n- b\n# c\n2026 was *long*"})
    assert said == {"text": "1\\. a\n\\- b\n\\# c\n2026 was \\*long\\*"}


def test_teams_gets_a_card_whose_text_is_never_read_as_markdown() -> None:
    said = body("teams", {"text": "*a*\n\nb"})
    card = said["attachments"][0]["content"]
    assert said["type"] == "message"
    assert [block["inlines"][0]["text"] for block in card["body"]] == ["*a*", " ", "b"]
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    card = {"type": "AdaptiveCard", "version": "1.4", "body": []}
    assert body("teams", {"card": card})["attachments"][0]["content"] == card


CONTENTS: dict[str, list[dict[str, Any]]] = {
    "slack": [
        {"blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": PINGS}}]},
        {"attachments": [{"text": PINGS, "fields": [{"title": PINGS, "value": PINGS}]}]},
    ],
    "discord": [{"embeds": [{"description": PINGS}]}],
    "mattermost": [{"attachments": [{"text": PINGS, "fields": [{"value": PINGS}]}]}],
    "teams": [],
}


@pytest.mark.parametrize(
    ("provider", "content"),
    [
        (provider, content)
        for provider in NAMES
        for content in ({"text": PINGS}, {"markdown": PINGS}, *CONTENTS[provider])
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_nothing_in_a_value_calls_on_anybody(
    provider: str, content: dict[str, Any], simulator: Simulator, transport: Transport
) -> None:
    outcome, called = sent(Peer(provider, simulator, transport), content)
    assert isinstance(outcome, Accepted)
    assert called == 0


@pytest.mark.parametrize(
    ("provider", "names"),
    [
        ("slack", ["channel", "U0123456", "S0123456"]),
        ("discord", ["everyone", "123456789", "role:123456789"]),
        ("discord", ["here"]),
        ("mattermost", ["all", "ann"]),
    ],
)
@pytest.mark.parametrize("key", ["text", "markdown"])
def test_mention_calls_on_exactly_those_it_names(
    provider: str, names: list[str], key: str, simulator: Simulator, transport: Transport
) -> None:
    peer = Peer(provider, simulator, transport)
    outcome, called = sent(peer, {key: f"look {PINGS}", "mention": names})
    assert isinstance(outcome, Accepted)
    assert called == len(names)


@pytest.mark.parametrize(
    ("provider", "content", "said"),
    [
        ("slack", {}, "bad_content: give text, markdown, blocks, attachments"),
        ("slack", {"text": "a", "markdown": "b"}, "bad_content: give text or markdown, not both"),
        ("slack", {"text": "a", "embeds": [{}]}, "bad_content: embeds is not slack's"),
        ("slack", {"text": "a" * 40_001}, "too_long: "),
        ("slack", {"blocks": [{"type": "divider"}] * 51}, "too_long: "),
        ("slack", {"text": "a", "mention": ["ann"]}, "bad_content: mention: "),
        ("slack", {"text": "a", "mention": ["U1>"]}, "bad_content: mention: "),
        ("slack", {"text": "\ud800"}, "bad_content: cannot be written as JSON"),
        ("slack", {"text": 1}, "bad_content: "),
        ("discord", {"text": "a" * 2_001}, "too_long: "),
        ("discord", {"text": "*" * 1_001}, "too_long: "),
        ("discord", {"embeds": [{"title": "a"}] * 11}, "too_long: "),
        ("discord", {"text": "a", "mention": ["role:x"]}, "bad_content: mention: "),
        ("mattermost", {"text": "a" * 16_384}, "too_long: "),
        ("mattermost", {"text": "a", "mention": ["an n"]}, "bad_content: mention: "),
        ("teams", {"text": "a", "mention": ["ann"]}, "bad_content: mention: "),
        ("teams", {"text": "a" * 30_000}, "too_long: "),
        ("teams", {"text": "a", "card": {"type": "AdaptiveCard"}}, "bad_content: give card, "),
    ],
)
def test_a_content_that_cannot_be_sent_is_refused_in_one_sentence(
    provider: str, content: dict[str, Any], said: str
) -> None:
    assert refusal(provider, content).startswith(said)


# ---- what comes back --------------------------------------------------------------------------


def test_discord_gives_its_id_and_the_others_the_calls_key() -> None:
    assert outcome_of("slack", httpx.Response(200, content=b"ok")) == Accepted(KEY)
    assert outcome_of("mattermost", httpx.Response(200, content=b"ok")) == Accepted(KEY)
    given = httpx.Response(200, content=b'{"id": "1084000000000000001", "type": 0}')
    assert outcome_of("discord", given) == Accepted("1084000000000000001")
    run = httpx.Response(202, headers={"x-ms-workflow-run-id": "08585287554177334956CU17"})
    assert outcome_of("teams", run) == Accepted("08585287554177334956CU17")
    nameless = httpx.Response(202, headers={"x-ms-request-id": "westeurope:1"})
    assert outcome_of("teams", nameless) == Accepted(KEY)


@pytest.mark.parametrize(
    ("provider", "status", "content"),
    [
        ("slack", 200, b"<html>a proxy</html>"),
        ("slack", 500, b"rollup_error"),
        ("discord", 204, b""),
        ("discord", 200, b"{}"),
        ("discord", 200, b'{"id": "not an id"}'),
        ("discord", 500, b"[" * 100_000),
        ("mattermost", 200, b'{"status": "OK"}'),
        ("mattermost", 500, b""),
        ("teams", 200, b"Webhook message delivery failed with error: 429"),
        ("teams", 200, b"1"),
        ("teams", 202, b""),
        ("slack", 404, b"ok"),
        ("mattermost", 302, b"ok"),
        ("discord", 401, b'{"id": "1084000000000000001"}'),
        ("teams", 502, b'{"error": {"code": "NoResponse", "message": "x"}}'),
        ("teams", 500, b"\xff"),
    ],
)
def test_an_answer_that_is_no_proof_leaves_the_call_in_doubt(
    provider: str, status: int, content: bytes
) -> None:
    assert isinstance(outcome_of(provider, httpx.Response(status, content=content)), Unknown)


@pytest.mark.parametrize("provider", NAMES)
def test_a_4xx_without_a_code_of_the_providers_rejects_nothing(provider: str) -> None:
    outcome = outcome_of(provider, httpx.Response(400, content=b"Bad <b>Request</b>"))
    assert isinstance(outcome, NotSent)
    assert outcome.code == "http_400"


def test_a_4xx_with_an_unknown_code_of_the_providers_refuses() -> None:
    for provider, content in (
        ("discord", b'{"code": 59999, "message": "new"}'),
        ("mattermost", b'{"id": "web.new.app_error", "message": "new"}'),
        ("teams", b'{"error": {"code": "New", "message": "new"}}'),
    ):
        assert isinstance(outcome_of(provider, httpx.Response(400, content=content)), Rejected)


@pytest.mark.parametrize("provider", NAMES)
def test_failures_are_judged_by_what_was_written(provider: str) -> None:
    assert isinstance(outcome_of(provider, Failure(Phase.NOT_WRITTEN, "connect")), NotSent)
    assert isinstance(outcome_of(provider, Failure(Phase.WRITTEN, "reset")), Unknown)


def paced(provider: str, headers: dict[str, str], content: bytes = b"") -> int | None:
    outcome = outcome_of(provider, httpx.Response(429, headers=headers, content=content))
    assert isinstance(outcome, NotSent)
    assert outcome.limit is not None
    return outcome.retry_after_ms


def test_a_limit_is_kept_to_for_as_long_as_the_provider_asks() -> None:
    assert paced("slack", {"Retry-After": "30"}, b"rate_limited") == 30_000
    assert paced("mattermost", {"Retry-After": "3"}) == 3_000
    assert paced("teams", {"Retry-After": "17"}) == 17_000
    # Discord's own field is finer than the header.
    told = b'{"message": "You are being rate limited.", "retry_after": 0.3, "global": false}'
    assert paced("discord", {"Retry-After": "1"}, told) == 300
    assert paced("discord", {"Retry-After": "600"}, b"<html>banned</html>") == 600_000
    for odd in (b"-1", b"1e400", b"1e300"):
        said = paced("discord", {"Retry-After": "2"}, b'{"message": "", "retry_after": %s}' % odd)
        assert said is not None
        assert 2_000 <= said <= 48 * 3_600_000


@pytest.mark.parametrize("provider", NAMES)
def test_the_pace_that_a_provider_documents_is_refused_beyond_it(
    provider: str, tmp_path_factory: pytest.TempPathFactory, transport: Transport
) -> None:
    with spawn(tmp_path_factory.mktemp(provider), fsync=False) as simulator:
        peer = Peer(provider, simulator, transport)
        outcomes = [peer.send(peer.call(number))[0] for number in range(12)]
    late = outcomes[-1]
    assert isinstance(outcomes[0], Accepted)
    assert isinstance(late, NotSent)
    assert late.limit is not None


@pytest.mark.parametrize("provider", NAMES)
def test_a_webhook_that_is_gone_halts_its_account_alone(
    provider: str, simulator: Simulator, transport: Transport
) -> None:
    peer = Peer(provider, simulator, transport)
    hook = f"{peer.sample.account_table['hook']}x"
    (outcome,) = peer.send(peer.call(1, hook=hook))
    assert isinstance(outcome, NotSent)
    assert outcome.account
    assert outcome.limit is Limit.LOGIN


@pytest.mark.parametrize("provider", NAMES)
def test_a_message_whose_answer_was_lost_is_in_doubt_and_was_sent(
    provider: str, simulator: Simulator, transport: Transport
) -> None:
    peer = Peer(provider, simulator, transport)
    before = len(peer.accepted())
    (outcome,) = peer.send(peer.call(5), Faults(reset=1.0))
    assert isinstance(outcome, Unknown)
    assert len(peer.accepted()) == before + 1


# ---- taking back ------------------------------------------------------------------------------


def recalled(channel: Channel, peer: Peer, provider_id: str) -> RecallStatus:
    dialogue = channel.recall(peer.account, SentCall(provider_id))
    assert dialogue is not None
    answer = peer.recorder.send(next(dialogue))
    with pytest.raises(StopIteration) as ended:
        dialogue.send(answer)
    taken: RecallStatus = ended.value.value.taken
    return taken


def test_discord_takes_a_message_back_and_twice_does_no_harm(
    simulator: Simulator, transport: Transport
) -> None:
    peer = Peer("discord", simulator, transport)
    (outcome,) = peer.send(peer.call(9))
    assert isinstance(outcome, Accepted)
    assert recalled(peer.channel, peer, outcome.provider_id) is RecallStatus.BACK
    assert recalled(peer.channel, peer, outcome.provider_id) is RecallStatus.BACK
    assert peer.channel.recall(peer.account, SentCall(KEY)) is None


@pytest.mark.parametrize(
    ("answer", "taken"),
    [
        (httpx.Response(401, content=b'{"code": 50027, "message": ""}'), RecallStatus.REFUSED),
        (httpx.Response(404, content=b'{"code": 10015, "message": ""}'), RecallStatus.REFUSED),
        (httpx.Response(429, content=b'{"retry_after": 1}'), RecallStatus.ASK_LATER),
        (httpx.Response(503), RecallStatus.ASK_LATER),
        (Failure(Phase.WRITTEN, "reset"), RecallStatus.ASK_LATER),
    ],
)
def test_a_recall_that_went_wrong_is_not_believed(
    answer: httpx.Response | Failure, taken: RecallStatus
) -> None:
    dialogue = PROVIDERS["discord"].recall(
        account_of(table("discord")), SentCall("1084000000000000")
    )
    assert dialogue is not None
    request = next(dialogue)
    assert request.method == "DELETE"
    assert str(request.url).endswith("/api/webhooks/123456789/an-address/messages/1084000000000000")
    with pytest.raises(StopIteration) as ended:
        dialogue.send(answer)
    assert ended.value.value.taken is taken
