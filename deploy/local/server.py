"""What every server of the stack has: a name, a port, a command, a way to see that it answers."""

import signal
from abc import ABC, abstractmethod
from pathlib import Path

from deploy.local.layout import HOST, Layout
from deploy.local.system import Say


class LocalServer(ABC):
    """How to run one server. It keeps no state: that is the stack's part."""

    programs: tuple[str, ...] = ()
    stop_signal = signal.SIGTERM
    crash_signal = signal.SIGKILL
    ready_s = 60.0
    stop_s = 30.0

    def __init__(self, layout: Layout, name: str, port: int) -> None:
        self.layout = layout
        self.name = name
        self.port = port

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def ports(self) -> list[int]:
        return [self.port]

    @property
    def log(self) -> Path:
        return self.layout.logs / f"{self.name}.log"

    @property
    def folder(self) -> Path:
        return self.layout.root / self.name

    @property
    def user(self) -> str | None:
        """Whom it runs as; None: as we do."""
        return None

    def prepare(self, say: Say) -> None:
        """Make its folders and files; called before each start, so cheap when they are there."""
        self.folder.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def ready(self) -> bool: ...

    def finish(self) -> None:  # noqa: B027 - most have nothing to do
        """What is left to do once it answers for the first time."""
