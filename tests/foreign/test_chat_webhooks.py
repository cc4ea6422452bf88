"""Slack's own SDK (package `slack-sdk`) and the Discord library `discord-py` judge our incoming webhooks.

What `slack_sdk.webhook.WebhookClient` posts to our simulator is taken, and what it reads of the simulator's
answers is what our adapter reads. What `discord.SyncWebhook` would put on the wire is compared with ours:
address, query and `allowed_mentions`; its own search for mentions finds none in what we escape.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from requests.adapters import BaseAdapter
from slack_sdk.webhook import WebhookClient

from channels.channel import Call
from channels.registry import PROVIDERS
from simulator import Faults, Simulator
from tests.channels.providers.chats import account_of, deliveries
from tests.conformance.samples import UNLIMITED, sample
from tests.harness.simulators import spawn

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, about Python's audioop
    import discord

TOKEN = "a" * 68
DISCORD = f"api/webhooks/123456789012345678/{TOKEN}"
PINGS = "@everyone @here <@123456789> <@!123456789> <@&123456789> <#123456789> *a* _b_ `c`"


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    folder = tmp_path_factory.mktemp("slack")
    with spawn(folder, fsync=False, behaviours=UNLIMITED) as started:
        yield started


def slack_at(simulator: Simulator) -> WebhookClient:
    of = sample("slack")
    assert of is not None
    return WebhookClient(f"{simulator.url}/slack/{of.account_table['hook']}")


def test_slacks_client_is_taken_by_the_simulator_and_our_body_by_slacks_client(
    simulator: Simulator,
) -> None:
    simulator.control(rules=[])
    client = slack_at(simulator)
    plain = client.send(text="hello")
    assert (plain.status_code, plain.body) == (200, "ok")
    account = account_of({"provider": "slack", "hook": "services/T/B/x", "group": "ops"})
    content = {
        "text": "a",
        "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "b"}}],
    }
    made = Call(account, deliveries("chat", ["group:ops"], content))
    ours = client.send_dict(json.loads(PROVIDERS["slack"].request(made).read()))
    assert (ours.status_code, ours.body) == (200, "ok")


@pytest.mark.parametrize("code", ["no_service", "invalid_payload", "channel_is_archived"])
def test_slacks_client_reads_the_simulators_errors_as_ours_does(
    code: str, simulator: Simulator
) -> None:
    simulator.control(rules=[Faults(codes={code: 1.0})])
    answer = slack_at(simulator).send(text="hello")
    assert answer.body == code
    assert 400 <= answer.status_code < 500


class Wire(BaseAdapter):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[requests.PreparedRequest] = []

    def send(self, request: requests.PreparedRequest, *args: Any, **more: Any) -> requests.Response:
        self.sent.append(request)
        answer = requests.Response()
        answer.status_code = 204
        answer.request = request
        answer.headers["content-type"] = "application/json"
        return answer

    def close(self) -> None:
        """Nothing is open."""


def theirs(text: str, allowed: discord.AllowedMentions) -> requests.PreparedRequest:
    """What discord.py sends."""
    wire, session = Wire(), requests.Session()
    session.mount("https://", wire)
    webhook = discord.SyncWebhook.from_url(f"https://discord.com/{DISCORD}", session=session)
    webhook.send(text, allowed_mentions=allowed, wait=False)
    return wire.sent[0]


def ours(content: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What our adapter sends."""
    account = account_of({"provider": "discord", "hook": DISCORD, "group": "ops"})
    request = PROVIDERS["discord"].request(
        Call(account, deliveries("chat", ["group:ops"], content))
    )
    return str(request.url), json.loads(request.read())


@pytest.mark.parametrize(
    ("names", "allowed"),
    [
        ([], discord.AllowedMentions.none()),
        (
            ["everyone"],
            discord.AllowedMentions(everyone=True, users=False, roles=False, replied_user=False),
        ),
        (
            ["123456789"],
            discord.AllowedMentions(
                everyone=False, users=[discord.Object(123456789)], roles=False, replied_user=False
            ),
        ),
    ],
)
def test_who_may_be_called_on_is_what_discords_library_says(
    names: list[str], allowed: discord.AllowedMentions
) -> None:
    them = theirs("hello", allowed)
    assert isinstance(them.body, bytes | str)
    said = json.loads(them.body)["allowed_mentions"]
    url, body = ours({"markdown": "hello", "mention": names})
    mine = {
        name: value for name, value in body["allowed_mentions"].items() if value or name == "parse"
    }
    mine.update({n: [int(i) for i in mine[n]] for n in ("users", "roles") if n in mine})
    assert mine == said
    path = url.removeprefix("https://provider.example").partition("?")[0]
    assert path == re.sub(r"^/api/v\d+", "/api", (them.path_url or "").partition("?")[0])


def test_discords_library_finds_no_formatting_left_in_a_plain_text() -> None:
    _, body = ours({"text": PINGS})
    bare = re.sub(r"\\(.)", "", body["content"])
    assert discord.utils.escape_markdown(bare) == bare
    assert not re.search(r"<[@#]", bare)


@pytest.mark.parametrize("key", ["text", "markdown"])
def test_discords_library_finds_no_mention_of_all_behind_the_one_we_put_in_front(key: str) -> None:
    written = "\\@everyone a@here https://e.example/@everyone"
    _, body = ours({key: written, "mention": ["here"]})
    rest = body["content"].removeprefix("@here ")
    assert discord.utils.escape_mentions(rest) == rest
    assert discord.utils.escape_mentions(written) != written
