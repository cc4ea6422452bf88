"""`hongyan send --wait` beside a real worker: it ends with the delivery, and the exit code says how."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from message.keys import delivery_key
from tests.harness import Fleet

MakeFleet = Callable[..., Fleet]
PROGRAM = Path(sys.executable).with_name("hongyan")
CONTENT = '{"text": "hello"}'


class Ended(NamedTuple):
    """One run of the program."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def send(fleet: Fleet, *flags: str, stdin: str = "") -> Ended:
    """Runs `hongyan send` with the fleet's configuration."""
    done = subprocess.run(
        [str(PROGRAM), "send", *flags],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "HONGYAN_CONFIG": str(fleet.config)},
        timeout=60,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def one(*receivers: str) -> list[str]:
    to = [flag for receiver in receivers for flag in ("--to", receiver)]
    return ["--lane", "webhook.notice", *to, "--content", CONTENT]


@pytest.mark.soak(small="tests/hongyan/test_send_wait.py::test_every_delivery_arrived")
def test_the_command_ends_with_the_deliveries_and_says_whether_they_arrived(
    fleet: MakeFleet,
) -> None:
    running = fleet()
    running.worker()
    human = send(running, *one("u1", "u2"), "--id", "m1", "--wait", "30")
    assert human.code == 0, human.err
    keys = [delivery_key("m1", "webhook", receiver) for receiver in ("u1", "u2")]
    assert human.out.startswith("sent m1")
    assert all(human.out.count(key) == 2 for key in keys), "at once, and at the end"
    assert human.out.count("SENT") == 2
    assert human.out.endswith("2 of 2 arrived\n")

    lines = "\n".join(
        json.dumps(
            {"channel": "webhook", "kind": "notice", "receivers": [f"r{n}"], "content": {"n": n}}
        )
        for n in range(40)
    )
    many = send(running, "--file", "-", "--wait", "--json", stdin=lines)
    assert many.code == 0, many.err
    assert [one["arrived"] for one in many.json["deliveries"]] == [True] * 40
    assert {one["state"] for one in many.json["deliveries"]} == {"SENT"}

    running.slow(0, errors={"400": 1.0})
    refused = send(running, *one("u1"), "--wait", "30")
    assert refused.code == 1
    assert "REJECTED" in refused.out
    assert refused.out.endswith("0 of 1 arrived\n")
