"""The handles of the processes that a run kills."""

from __future__ import annotations

from typing import ClassVar

from tests.harness.worker import WorkerProcess


class ChaosProcess(WorkerProcess):
    """A program whose settings have no id."""

    @property
    def _id_variable(self) -> str:
        return "CHAOS_ID"

    @property
    def at_work(self) -> bool:
        """Whether its log says that it is at work."""
        return f"{self.program}_started" in self.log_text()


class RelayProcess(ChaosProcess):
    """A real `hongyan relay`."""

    program = "relay"


class LookbackProcess(ChaosProcess):
    """A real `hongyan lookback`."""

    program = "lookback"


class GatewayProcess(ChaosProcess):
    """A real `hongyan gateway`."""

    program = "gateway"

    @property
    def url(self) -> str:
        """Address for clients; empty before it serves."""
        started = self.events("gateway_started") if self.at_work else []
        return f"http://{started[-1]['address']}" if started else ""


class BusinessProcess(ChaosProcess):
    """A process of the business; it ends with 0 once its numbers are at their end."""

    program = "business"
    launcher: ClassVar[str] = "tests.chaos.producing.business"


class TellerProcess(ChaosProcess):
    """A process that sends by the client and keeps a journal; it ends with 0 once it has its count."""

    program = "teller"
    launcher: ClassVar[str] = "tests.chaos.producing.teller"
