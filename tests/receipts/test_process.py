"""`hongyan receipts` as a process: it serves, says where, and ends in order."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import structlog

from backends.settings import DatabaseSettings, ReceiptsSettings, Settings, TraceSettings
from idempotency.fleet.snapshots import ReceiptSnapshot
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.states import Event
from receipts.matcher import Matcher
from receipts.process import run_receipts
from receipts.puller import Puller
from sending.runtime.exit_codes import EXIT_FAILED
from tests.idempotency.making import World, claimed, delivery, settle, wait_until

CONFIG = """
[database]
url = "{url}"
[trace]
kafka = false
[accounts.ali]
provider = "aliyun_sms"
access_key_id = "id"
access_key_secret_file = "key"
[receipts.accounts.ali]
secret_file = "secret"
"""
ACCOUNT = {
    "provider": "tencent_sms",
    "secret_id": "id",
    "secret_key": "key",
    "sdk_app_id": "1400006666",
}
REPORT = [{"phone_number": "13800000001", "success": True, "biz_id": "biz-1"}]


def write_secrets(folder: Path) -> None:
    (folder / "key").write_text("key-of-ali")
    (folder / "secret").write_text("s3cret-of-ali")


@contextmanager
def running(folder: Path, url: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    config = folder / "hongyan.toml"
    config.write_text(CONFIG.format(url=url))
    write_secrets(folder)
    command = [sys.executable, "-c", "from hongyan.program import main; main()"]
    process = subprocess.Popen(
        [*command, "-c", str(config), "receipts", "--listen", "127.0.0.1:0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        started = next(line for line in process.stderr if "receipts_started" in line)
        yield process, f"http://{json.loads(started)['address']}"
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def push(url: str, body: Any = REPORT, secret: str = "s3cret-of-ali") -> httpx.Response:
    return httpx.post(f"{url}/receipts/ali", params={"secret": secret}, json=body, timeout=10)


def test_it_moves_deliveries_and_ends_in_order_on_sigterm(
    world: World, ledger: SqlLedger, tmp_path: Path
) -> None:
    (item,) = claimed(ledger, delivery())
    item.account = "ali"
    settle(ledger, item, Event.ACCEPTED, provider_id="biz-1")
    (tmp_path / "policy.toml").write_text('[lanes."sms.notice"]\noutcomes = "topic"\n')
    with running(tmp_path, world.url) as (process, url):
        assert push(url, secret="nobody's").status_code == 401
        assert push(url).status_code == 200
        wait_until(lambda: world.states()[item.key] == "DELIVERED")
        assert httpx.get(f"{url}/readyz").status_code == 200
        assert "hongyan_trace_dropped_total" in httpx.get(f"{url}/metrics").text
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
        assert process.returncode == 0
    assert '"stopped"' in said
    for hidden in ("s3cret", "nobody's", "key-of-ali", "13800000001"):
        assert hidden not in said
    told = world.rows("SELECT events FROM trace_events")
    assert '"stage":"receipt"' in str(told)
    ((ends,),) = world.rows("SELECT ends FROM outcome_batches")
    assert "DELIVERED" in ends, "it follows the policy"


def test_a_push_under_way_is_answered_although_the_end_was_asked_for(
    world: World, ledger: SqlLedger, tmp_path: Path
) -> None:
    body = json.dumps(REPORT).encode()
    head = (
        "POST /receipts/ali?secret=s3cret-of-ali HTTP/1.1\r\nHost: x\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with running(tmp_path, world.url) as (process, url):
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(head.encode() + body[:5])
            assert httpx.get(f"{url}/healthz").status_code == 200  # the half push was read before
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: _refuses(host, int(port)))
            client.sendall(body[5:])
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
        process.communicate(timeout=20)
        assert process.returncode == 0
    assert world.rows("SELECT count(*) FROM receipts") == [(1,)]


def _refuses(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return True
    return False


@pytest.mark.parametrize("listen", ["9470", "127.0.0.1:99999", ":1", "127.0.0.1:port"])
def test_an_address_that_is_none_is_named(
    world: World, ledger: SqlLedger, tmp_path: Path, listen: str
) -> None:
    config = tmp_path / "hongyan.toml"
    config.write_text(CONFIG.format(url=world.url))
    write_secrets(tmp_path)
    program = [sys.executable, "-c", "from hongyan.program import main; main()", "-c", str(config)]
    done = subprocess.run(
        [*program, "receipts", "--listen", listen], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2
    assert "receipts.listen" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", [Matcher, Puller])
def test_the_death_of_a_loop_ends_the_process(
    world: World, ledger: SqlLedger, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(_self: object) -> float:
        raise RuntimeError("a bug")

    monkeypatch.setattr(kind, "run_once", dies)
    if kind is Matcher:  # no provider is asked
        monkeypatch.setattr(Puller, "run_once", lambda _self: 60.0)
    settings = msgspec.structs.replace(
        world.settings,
        accounts={"tencent": ACCOUNT},
        receipts=ReceiptsSettings(listen="127.0.0.1:0", accounts={"tencent": {"pull": True}}),
        trace=TraceSettings(kafka=False),
    )
    stop = threading.Event()
    guard = threading.Timer(20.0, stop.set)
    guard.start()
    with structlog.testing.capture_logs() as entries:
        assert run_receipts(settings, stop) == EXIT_FAILED
    guard.cancel()
    (died,) = [entry for entry in entries if entry["event"] == "receipts_failed"]
    assert died["cause"] == "RuntimeError('a bug')"


def test_its_heartbeat_names_its_accounts_and_an_order_to_drain_ends_it(
    world: World, ledger: SqlLedger, tmp_path: Path
) -> None:
    settings = Settings(
        database=DatabaseSettings(url=world.url)
    )  # the process's clock is the wall's
    with running(tmp_path, world.url) as (process, url), closing(open_ledger(settings)) as own:
        (shown,) = own.fleet_status().processes()
        assert (shown.kind, shown.pid, shown.lanes) == ("receipts", process.pid, [])
        assert shown.snapshot is not None
        assert shown.snapshot.receipts == {"ali": ReceiptSnapshot()}
        assert push(url).status_code == 200
        assert own.controls().drain(shown.id, author="lin", reason="a new version")
        _, said = process.communicate(timeout=30)
        assert process.returncode == 0
        assert own.fleet_status().processes() == [], "it retired its row"
    assert "lin: a new version" in said
