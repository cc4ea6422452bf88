"""Scenario files, and what the simulator plans to report."""

import subprocess
import sys
from pathlib import Path

import pytest

from simulator.cli import _options, _parser
from simulator.faults import BadFaults
from simulator.options import Rules, SimulatorOptions
from simulator.receipts.formats import FORMATS
from simulator.receipts.plan import DELIVERED, SENT, UNDELIVERED, Plan, ReceiptOptions, check
from simulator.scenario import BadScenario, load
from tests.receipts.test_round_trip import checked_with

EXAMPLES = sorted(Path("examples/scenarios").glob("*.toml"))
URL = "http://127.0.0.1:9470/receipts/x"
MANY = [f"id-{n}" for n in range(4_000)]


def options_of(*arguments: str) -> SimulatorOptions:
    return _options(_parser().parse_args(arguments), arguments)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_can_be_played(path: Path) -> None:
    options = load(path)
    Rules(options.rules)
    check(options.receipts, FORMATS)
    assert options.port == 8899


def test_there_are_examples_of_rules_and_of_receipts() -> None:
    loaded = [load(path) for path in EXAMPLES]
    assert any(one.rules for one in loaded)
    assert {name for one in loaded for name in one.receipts} == set(FORMATS)


def test_flags_hold_instead_of_what_the_file_says() -> None:
    scenario = str(EXAMPLES[0])
    said = options_of("--scenario", scenario, "--port", "0", "--seed", "9", "--no-fsync")
    assert (said.port, said.seed, said.fsync, said.admin_port) == (0, "9", False, 8898)
    moved = options_of("--scenario", scenario, "--port", "7001", "--latency", "5")
    assert moved.port == 7001
    assert moved.rules[:-1] == load(scenario).rules
    assert moved.rules[-1].latency_ms == "5"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 1", "unknown field prot"),
        ("port = 'x'", "port: Expected int"),
        ("[[rules]]\nreset = 2", "rules[0].reset"),
        ("port = ", "Invalid value"),
        ("[receipts.twilio]\ndelay_ms = '5'", "receipts[...]: Object missing required field url"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(BadScenario) as caught:
        load(path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("[receipts.webhook]", f"url = '{URL}'"), "receipts.webhook: receipts are pushed by"),
        (("[receipts.twilio]", "url = 'nowhere'"), "receipts.twilio.url"),
        (("[receipts.twilio]", f"url = '{URL}'", "delay_ms = 'soon'"), "receipts.twilio: delay_ms"),
        (
            ("[receipts.twilio]", f"url = '{URL}'", "undelivered = {a = 0.6, b = 0.6}"),
            "add up to more than 1",
        ),
    ],
)
def test_the_program_refuses_receipts_that_cannot_be_played(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("\n".join(arguments))
    done = subprocess.run(
        [sys.executable, "-m", "simulator", "--scenario", str(path)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    assert said in done.stderr


def test_the_same_seed_plans_the_same_receipts() -> None:
    options = ReceiptOptions(url=URL, delay_ms="5-60", undelivered={"1": 0.5}, doubled=0.5)
    one, again = (Plan("twilio", options, "7") for _ in range(2))
    other = Plan("twilio", options, "8")
    planned = [one.of(key, steps=True) for key in MANY]
    assert planned == [again.of(key, steps=True) for key in MANY]
    assert planned != [other.of(key, steps=True) for key in MANY]


def test_rates_are_the_shares_of_what_was_accepted() -> None:
    options = ReceiptOptions(
        url=URL, delay_ms="10", undelivered={"a": 0.2, "b": 0.1}, never=0.1, doubled=0.3
    )
    plan = Plan("aliyun_sms", options, "1")
    planned = [plan.of(key, steps=False) for key in MANY]
    told = [one for one in planned if one]
    assert len(told) / len(MANY) == pytest.approx(0.9, abs=0.02)
    assert sum(len(one) == 2 for one in told) / len(told) == pytest.approx(0.3, abs=0.03)
    codes = [one[0].code for one in told]
    assert codes.count("a") / len(told) == pytest.approx(0.2, abs=0.03)
    assert codes.count("b") / len(told) == pytest.approx(0.1, abs=0.02)


def test_steps_come_in_order_unless_they_are_to_be_reordered() -> None:
    for reordered, wanted in ((0.0, [SENT, DELIVERED]), (1.0, [DELIVERED, SENT])):
        options = ReceiptOptions(url=URL, delay_ms="10", reordered=reordered)
        planned = Plan("twilio", options, "1").of("id", steps=True)
        assert [one.status for one in planned] == wanted


def test_a_contradiction_says_the_opposite_later() -> None:
    options = ReceiptOptions(url=URL, delay_ms="10", contradicted=1.0)
    first, second = Plan("aliyun_sms", options, "1").of("id", steps=False)
    assert (first.status, second.status) == (DELIVERED, UNDELIVERED)
    assert first.delay_ms < second.delay_ms


def test_a_plan_of_nonsense_is_refused() -> None:
    with pytest.raises(BadFaults, match="delay_ms"):
        Plan("twilio", ReceiptOptions(url=URL, delay_ms="soon"), "1")


def test_every_format_has_a_parser_and_every_parser_a_format() -> None:
    from receipts.parsers import PARSERS

    assert set(PARSERS) == set(FORMATS)
    assert all(checked_with(name, URL) for name in FORMATS)
