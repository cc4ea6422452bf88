"""Redis from the distribution's package; it keeps nothing on disk, as a pre-filter may lose all."""

from deploy.local import probe
from deploy.local.layout import HOST, Layout
from deploy.local.server import LocalServer

DATABASES = 64
"""Enough for every test run beside another to have a number of its own."""


class Redis(LocalServer):
    programs = ("redis-server",)
    ready_s = 15.0

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout, "redis", layout.redis_port)

    def command(self) -> list[str]:
        settings = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self.folder),
            "databases": str(DATABASES),
            "maxmemory": "512mb",
            "maxmemory-policy": "noeviction",
            "appendonly": "no",
            "save": "",
            "daemonize": "no",
        }
        return ["redis-server", *(w for k, v in settings.items() for w in (f"--{k}", v))]

    def ready(self) -> bool:
        return probe.redis_answers(self.port)
