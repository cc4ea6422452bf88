"""A signal that comes before a command has read its configuration counts as any other."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backends.settings import DatabaseSettings, Settings
from tests.harness.databases import upgraded

CONFIG = """
[kafka]
bootstrap = "127.0.0.1:1"
[database]
url_file = "{pipe}"
[worker]
health_address = "127.0.0.1:0"
[receipts]
listen = "127.0.0.1:0"
[receipts.accounts.ali]
secret_file = "secret"
[recovery]
health_address = "127.0.0.1:0"
[trace]
kafka = false
[accounts.ali]
provider = "aliyun_sms"
access_key_id = "id"
access_key_secret_file = "key"
"""
PROGRAM = [sys.executable, "-c", "from hongyan.program import main; main()"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", ["worker", "recovery", "receipts"])
def test_a_signal_at_the_very_start_ends_it_well(
    command: str, number: signal.Signals, sqlite_database: str, tmp_path: Path
) -> None:
    upgraded(Settings(database=DatabaseSettings(url=sqlite_database)))
    config, url = tmp_path / "hongyan.toml", tmp_path / "url"
    os.mkfifo(url)
    config.write_text(CONFIG.format(pipe=url))
    (tmp_path / "key").write_text("key-of-ali")
    (tmp_path / "secret").write_text("s3cret-of-ali")
    process = subprocess.Popen(
        [*PROGRAM, "-c", str(config), command], stderr=subprocess.PIPE, text=True
    )
    with url.open("w") as pipe:  # waits until the command opens it, in the middle of its settings
        process.send_signal(number)
        pipe.write(sqlite_database)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "Traceback" not in said
