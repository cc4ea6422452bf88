"""A template that is missing: real workers park its deliveries and call a person.

Once it is there, `resend` has each of them sent once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from message.envelope import Template
from simulator import Simulator
from tests.harness import Fleet, await_, notifications
from tests.harness.simulators import spawn
from tests.integration.test_persons_and_groups import table
from tests.integration.test_policy_gates import traced

MakeFleet = Callable[..., Fleet]
PROGRAM = Path(sys.executable).with_name("hongyan")
LANE, QUICK = "wecom.notice", "wecom.marketing"
WELCOME = """[templates.welcome]
channel = "wecom"
text = "{{ code }}"
variables = { code = "string", minutes = { type = "int", default = 5 } }
"""


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Simulator]:
    with spawn(tmp_path, fsync=False) as started:
        yield started


def resend(fleet: Fleet, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROGRAM), "resend", *arguments],
        env={**os.environ, "HONGYAN_CONFIG": str(fleet.config)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def sent(provider: Simulator) -> Counter[str]:
    return Counter(record.receiver for record in provider.records() if record.accepted)


def test_a_template_that_is_missing_is_told_and_its_deliveries_go_once_when_it_is_there(
    fleet: MakeFleet, provider: Simulator
) -> None:
    one = fleet(
        lanes=[LANE, QUICK],
        policy={QUICK: {"guarantee": "best_effort"}},
        provider=provider,
        accounts={"app": table("wecom", provider)},
    )
    (worker,) = one.start(1)
    named = {"content": None, "template": Template("welcome", {"code": "4711"})}
    members = [f"li{number}" for number in range(4)]
    good = notifications(2, LANE, receivers=["wang"], content={"text": "hello"})
    one.send([*notifications(4, LANE, receivers=lambda n: [members[n]], **named), *good])
    one.send(notifications(1, QUICK, receivers=["zhao"], **named))
    one.await_states(PARKED=4, SENT=2)
    one.await_committed()
    assert set(one.books.reasons("PARKED")) == {
        "template_unknown: there is no template 'welcome', and no provider of channel wecom has templates"
    }
    await_(lambda: traced(one, "parked") == 4, what="the trace says so")
    await_(lambda: traced(one, "dropped") == 1, what="the trace says what nothing keeps")
    await_(lambda: len(worker.events("alert")) == 2, what="a person is called")
    told = {line["rule"]: line for line in worker.events("alert")}
    assert (told["parked"]["lane"], told["parked"]["count"]) == (LANE, 4)
    assert (told["dropped"]["lane"], told["dropped"]["count"]) == (QUICK, 1)
    assert "'welcome'" in told["parked"]["text"]
    lines = worker.events("deliveries_stopped")
    assert sum(line["count"] for line in lines) == 5
    assert {line["level"] for line in lines} == {"warning"}

    # Not mended yet: recovery parks it again, and calls again.
    recovery = one.recovery().wait_ready()
    first = resend(one, "--state", "PARKED", "--reason-code", "template_unknown", "--since", "1h")
    assert (first.returncode, "4 retried" in first.stdout) == (0, True), first
    recovery.await_metric(
        "alerts", 4, rule="parked", lane=LANE
    )  # the log has it with the next window
    one.await_states(PARKED=4, SENT=2)
    recovery.stop()

    (one.folder / "templates.toml").write_text(WELCOME)
    one.recovery().wait_ready()
    again = resend(one, "--state", "PARKED", "--reason-code", "template_unknown", "--since", "1h")
    assert (again.returncode, "4 retried" in again.stdout) == (0, True), again
    one.await_states(SENT=6)
    assert sent(provider) == {"wang": 2, **dict.fromkeys(members, 1)}
