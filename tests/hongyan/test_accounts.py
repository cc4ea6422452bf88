"""`hongyan accounts`: one test send, all of it shown and nothing of it that is secret."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from channels.channel import Account, TokenSource
from channels.probe.probe import OwnTokens
from channels.secret import Secret
from simulator import ECHOING, Faults, Lists, Simulator, spawn
from tests.conformance.samples import UNLIMITED, Sample, samples
from tests.harness.secret_files import secrets_aside
from tests.hongyan.conftest import Run

SAMPLES = {one.provider: one for one in samples()}
TOKEN = "wh-token-4711"


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    folder = tmp_path_factory.mktemp("simulator")
    at_once = {**UNLIMITED, "dingtalk": {"results_after_ms": "0"}}
    with spawn(folder, fsync=False, smtp_port=0, lists=ECHOING, behaviours=at_once) as started:
        yield started


@pytest.fixture(autouse=True)
def no_faults(simulator: Simulator) -> None:
    simulator.control(rules=[], lists=ECHOING)


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The access tokens that were given out."""
    given: list[str] = []
    renew = OwnTokens.renew

    def noted(self: OwnTokens, account: Account, source: TokenSource, stale: str) -> str:
        given.append(renew(self, account, source, stale))
        return given[-1]

    monkeypatch.setattr(OwnTokens, "renew", noted)
    return given


def configure(folder: Path, name: str, **options: Any) -> None:
    table = secrets_aside(folder, name, options)
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    with (folder / "hongyan.toml").open("a") as file:
        file.write(f"[accounts.{name}]\n" + "\n".join(lines) + "\n")


@pytest.fixture
def hook(folder: Path, simulator: Simulator) -> str:
    options = {"endpoint": f"{simulator.url}/hook", "token": TOKEN, "status_query": True}
    configure(folder, "hook", provider="webhook", **options)
    return "hook"


def test_a_test_waits_as_long_as_a_worker_would_in_that_lane(
    hongyan: Run, folder: Path, simulator: Simulator
) -> None:
    mail: dict[str, Any] = {
        **SAMPLES["smtp"].account_table,
        "provider": "smtp",
        "endpoint": simulator.smtp,
    }
    configure(folder, "mail", **mail)
    simulator.control(rules=[Faults(latency_ms="1000")])
    send = ("accounts", "test", "mail", "--to", "ann@example.com", "--text", "hi")
    said = hongyan(*send)
    assert said.code == 0
    assert "waiting for up to 1200 s" in said.err
    table = '[lanes."email.notice".smtp]\nfinal_ms = 100\n'
    (folder / "policy.toml").write_text(table)
    cut_off = hongyan(*send, "--json")
    assert cut_off.code == 1
    assert cut_off.json["outcome"]["outcome"] == "unknown"
    assert hongyan(*send, "--kind", "marketing").code == 0
    assert hongyan(*send, "--kind", "sometimes").code == 2


def test_accounts_are_listed_with_what_their_providers_offer(
    hongyan: Run, folder: Path, hook: str
) -> None:
    configure(folder, "none", provider="null")
    said = hongyan("accounts", "list")
    assert said.code == 0
    assert said.out.splitlines()[0].split()[:3] == ["ACCOUNT", "PROVIDER", "CHANNEL"]
    found = hongyan("accounts", "list", "--json")
    assert [one["name"] for one in found.json] == ["hook", "none"]
    assert TOKEN not in said.out + found.out


def test_without_accounts_it_says_where_they_go(hongyan: Run) -> None:
    said = hongyan("accounts", "list")
    assert (said.code, said.out) == (0, "")
    assert "add [accounts.NAME] to hongyan.toml" in said.err


def test_a_send_is_shown_with_its_request_its_answer_and_what_it_means(
    hongyan: Run, hook: str, simulator: Simulator
) -> None:
    said = hongyan("accounts", "test", hook, "--to", "user-4711", "--text", "你好", "--resolve")
    assert said.code == 0
    assert f"POST {simulator.url}/hook" in said.out
    assert "Authorization: Bearer ***" in said.out
    assert '"text": "你好"' in said.out
    assert "200 OK" in said.out
    assert "Accepted" in said.out
    assert "a worker would settle it SENT" in said.out
    assert "resolve  the provider has it" in said.out
    assert TOKEN not in said.out
    assert "user-4711" not in said.out
    assert "us***11" in said.out


def test_for_programs_it_is_one_json_value(hongyan: Run, hook: str) -> None:
    said = hongyan(
        "accounts", "test", hook, "--to", "user-4711", "--text", "x", "--json", "--resolve"
    )
    assert [one["purpose"] for one in said.json["exchanges"]] == ["send", "query"]
    assert said.json["outcome"]["outcome"] == "accepted"
    assert said.json["resolved"]["resolution"] == "sent"
    assert said.json["exchanges"][0]["body"]["receiver"] == "us***11"


def test_it_asks_until_the_provider_shows_the_message(
    hongyan: Run, folder: Path, simulator: Simulator
) -> None:
    """Tencent's reports come late, and with a SessionContext where it was switched on."""
    simulator.control(lists=Lists(lag_ms=1_500, contexts=True))
    add(folder, SAMPLES["tencent_sms"], simulator, query_lag_s=60)
    said = hongyan(*tencent("+8613800000011"), "--wait", "30", "--json")
    assert said.code == 0, said.out
    assert said.json["resolved"]["resolution"] == "sent"
    assert said.json["advice"] == ""
    assert len(said.json["exchanges"]) > 2


def test_a_lag_that_is_set_too_short_is_told(
    hongyan: Run, folder: Path, simulator: Simulator
) -> None:
    simulator.control(lists=Lists(lag_ms=1_500, contexts=True))
    add(folder, SAMPLES["tencent_sms"], simulator, query_lag_s=0)
    said = hongyan(*tencent("+8613800000013"), "--wait", "30", "--json")
    assert said.code == 1
    assert said.json["resolved"]["resolution"] == "sent"
    assert "set query_lag_s to much more" in said.json["advice"]


def test_what_has_to_be_switched_on_is_said(
    hongyan: Run, folder: Path, simulator: Simulator
) -> None:
    simulator.control(lists=Lists(lag_ms=0))
    add(folder, SAMPLES["tencent_sms"], simulator)
    said = hongyan(*tencent("+8613800000012"), "--wait", "0")
    assert said.code == 1
    assert "cannot tell yet" in said.out
    assert "return SessionContext" in said.out


def test_an_endpoint_without_the_query_is_told_so(
    hongyan: Run, hook: str, simulator: Simulator
) -> None:
    simulator.control(lists=Lists())
    flags = ["accounts", "test", hook, "--to", "u", "--text", "x", "--resolve", "--wait", "0"]
    said = hongyan(*flags, "--json")
    assert said.code == 1
    assert said.json["resolved"]["resolution"] == "ask_later"
    assert "answers the query with its state" in said.json["advice"]


def tencent(receiver: str) -> list[str]:
    """A test send that the simulator takes."""
    notification = SAMPLES["tencent_sms"].notification(1)
    assert notification.template is not None
    params = notification.template.params.items()
    flags = ["accounts", "test", "tencent_sms", "--to", receiver, "--resolve"]
    flags += ["--template", notification.template.id]
    return flags + [flag for key, value in params for flag in ("--param", f"{key}={value}")]


@pytest.mark.parametrize(
    ("faults", "name", "meaning"),
    [
        (Faults(errors={"400": 1.0}), "Rejected", "it was not sent and never will be"),
        (Faults(errors={"429": 1.0}, retry_after="3"), "NotSent", "would try again after 3 s"),
        (Faults(reset=1.0), "Unknown", "it may have been sent: a worker would never repeat it"),
    ],
)
def test_what_was_not_accepted_ends_with_one_and_is_explained(
    hongyan: Run, hook: str, simulator: Simulator, faults: Faults, name: str, meaning: str
) -> None:
    simulator.control(rules=[faults])
    said = hongyan("accounts", "test", hook, "--to", "user-4711", "--text", "x")
    assert said.code == 1
    assert name in said.out
    assert meaning in said.out


def test_a_template_of_ours_is_filled_in(hongyan: Run, hook: str, folder: Path) -> None:
    (folder / "templates.toml").write_text(
        '[templates.t]\nchannel = "webhook"\nsum = "{{ n + 1 }}"\nvariables = { n = "int" }\n'
    )
    flags = ("accounts", "test", hook, "--to", "user-4711", "--template", "t", "--json")
    said = hongyan(*flags, "--param", "n=6")
    assert said.json["exchanges"][0]["body"]["content"] == {"sum": "7"}
    wrong = hongyan(*flags, "--param", "n=six")
    assert wrong.code == 2
    assert "n: expected int" in wrong.err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["gone", "--to", "u", "--text", "x"], "there is no account 'gone'; hongyan.toml has hook"),
        (["hook", "--to", "u"], "give either --template or --content"),
        (["hook", "--to", "u", "--text", "x", "--template", "t"], "give one of --text, --template"),
        (["hook", "--to", "u", "--text", "x", "--subject", "s"], "--subject is for e-mail"),
        (["hook", "--to", "", "--text", "x"], "must be 1 to 256 characters"),
    ],
)
def test_wrong_flags_are_one_sentence(
    hongyan: Run, hook: str, simulator: Simulator, flags: list[str], sentence: str
) -> None:
    before = len(list(simulator.records()))
    said = hongyan("accounts", "test", *flags)
    assert said.code == 2
    assert sentence in said.err
    assert len(list(simulator.records())) == before


def test_what_the_adapter_refuses_is_told_and_not_sent(
    hongyan: Run, folder: Path, simulator: Simulator
) -> None:
    sample = SAMPLES["twilio"]
    add(folder, sample, simulator)
    before = len(list(simulator.records()))
    said = hongyan("accounts", "test", "twilio", "--to", "+8612", "--text", "x")
    assert said.code == 1
    assert "bad_number" in said.out
    assert "nothing was sent" in said.out
    assert len(list(simulator.records())) == before


def add(folder: Path, sample: Sample, simulator: Simulator, **options: Any) -> Account:
    endpoint = sample.address(simulator) + sample.path
    table = {**sample.account_table, "provider": sample.provider, "endpoint": endpoint, **options}
    configure(folder, sample.provider, **table)
    return sample.account(sample.address(simulator))


@pytest.mark.parametrize("provider", SAMPLES)
@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
def test_no_secret_no_token_and_no_receiver_is_shown_of_any_provider(
    hongyan: Run,
    folder: Path,
    simulator: Simulator,
    tokens: list[str],
    provider: str,
    as_json: bool,
) -> None:
    sample = SAMPLES[provider]
    account = add(folder, sample, simulator)
    notification = sample.notification(900_000 + as_json)
    receiver = notification.receivers[0]
    flags = ["accounts", "test", provider, "--to", receiver, "--resolve", "--wait", "0"]
    if notification.template is not None:
        params = notification.template.params.items()
        flags += ["--template", notification.template.id]
        flags += [flag for key, value in params for flag in ("--param", f"{key}={value}")]
    else:
        flags += ["--content", json.dumps(notification.content)]
    said = hongyan(*flags, *(["--json"] if as_json else []))
    assert said.code == sample.absence_alone, said.out
    shown = said.out + said.err
    assert bool(tokens) is (sample.channel.tokens is not None)
    hidden = [*secrets(account), *tokens]
    assert hidden
    for secret in hidden:
        assert secret not in shown
        assert quote(secret, safe="") not in shown
    assert receiver not in shown
    assert receiver.removeprefix("+") not in shown


def secrets(account: Account) -> list[str]:
    values = [getattr(account.options, name) for name in account.options.__struct_fields__]
    return [
        line
        for value in values
        if isinstance(value, Secret)
        for line in value.reveal().splitlines()
        if len(line) > 3
    ]


def test_help_has_examples(hongyan: Run) -> None:
    for command in ("list", "test", "catalogue"):
        assert f"hongyan accounts {command}" in hongyan("accounts", command, "--help").out
