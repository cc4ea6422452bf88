"""The simulated provider of `make up`, and the configuration that points `hongyan` at it and the servers.

`hongyan.toml`, `policy.toml` and `templates.toml` are in the stack's folder. Each `up` sets the addresses;
all other lines stay as they were edited.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from deploy.local import probe
from deploy.local.errors import StackError
from deploy.local.layout import HOST, RECEIPTS, RECOVERY, REPOSITORY, WORKER, Layout
from deploy.local.server import LocalServer
from deploy.local.system import Say
from hongyan.dev.config_files import CONTROL_FILE, write_files

PROGRAMS = REPOSITORY / ".venv" / "bin"


class SimulatorServer(LocalServer):
    """`hongyan simulator` out of `.venv/`: a provider for SMS, e-mail and webhooks."""

    ready_s = 30.0
    stop_s = 10.0

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout, "simulator", layout.simulator_ports["http"])

    @property
    def ports(self) -> list[int]:
        return list(self.layout.simulator_ports.values())

    @property
    def python(self) -> Path:
        return PROGRAMS / "python"

    def prepare(self, say: Say) -> None:
        if not self.python.exists():
            raise StackError("there is no .venv/ for the simulator; run `make venv` first.")
        super().prepare(say)
        write_config(self.layout)
        self._scenario.write_text(scenario(self.layout))

    def command(self) -> list[str]:
        # `env` becomes the simulator, so that its process id is the one that is kept.
        path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
        program = [str(self.python), "-m", "simulator", "--scenario", str(self._scenario)]
        return ["env", f"PYTHONPATH={path}", *program]

    def ready(self) -> bool:
        return probe.http_answers(self.layout.simulator_ports["control"], "/_report?summary=1")

    @property
    def _scenario(self) -> Path:
        return self.folder / "scenario.toml"


def write_config(layout: Layout) -> Path:
    """Writes what is missing of the configuration, and the addresses of this stack. Returns its path."""
    control = f"http://{HOST}:{layout.simulator_ports['control']}"
    try:
        (layout.root / CONTROL_FILE).write_text(f"{control}\n")
        return write_files(layout.root, layout.database_url, addresses(layout))
    except OSError as error:
        raise StackError(f"{layout.config} could not be written ({error.strerror}).") from error


def addresses(layout: Layout) -> Mapping[tuple[str, str], str]:
    provider, base = layout.simulator_ports, layout.port_base
    return {
        ("kafka", "bootstrap"): layout.bootstrap,
        ("redis", "url"): layout.redis_url,
        ("worker", "health_address"): f"{HOST}:{base + WORKER}",
        ("recovery", "health_address"): f"{HOST}:{base + RECOVERY}",
        ("receipts", "listen"): f"{HOST}:{base + RECEIPTS}",
        ("accounts.sms", "endpoint"): f"http://{HOST}:{provider['http']}/aliyun_sms",
        ("accounts.mail", "endpoint"): f"smtp://{HOST}:{provider['smtp']}",
        ("accounts.hook", "endpoint"): f"http://{HOST}:{provider['http']}/hook",
    }


def scenario(layout: Layout) -> str:
    """The simulator's file; JSON's texts and numbers are TOML's too."""
    ports, folder = layout.simulator_ports, layout.root / "simulator"
    receipts = f"http://{HOST}:{layout.port_base + RECEIPTS}/receipts/sms?secret=simulator-secret"
    return f"""\
port = {ports["http"]}
admin_port = {ports["control"]}
smtp_port = {ports["smtp"]}
ledger = {json.dumps(str(folder / "provider.jsonl"))}

[lists]
status_query = true

[[rules]]
latency_ms = "p50=20,p99=80"

[receipts.aliyun_sms]
url = {json.dumps(receipts)}
delay_ms = "1000-2000"
attempts = 20
"""


def to_paste(layout: Layout, shell: Mapping[str, str] = os.environ) -> list[str]:
    """The lines that a shell needs before `hongyan` works with this stack; at most two."""
    lines = [f'export HONGYAN_CONFIG="{layout.config}"']
    if str(PROGRAMS) not in shell.get("PATH", "").split(os.pathsep):
        lines.insert(0, f'export PATH="{PROGRAMS}:$PATH"')
    return lines
