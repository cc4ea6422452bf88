"""Postfix on loopback ports of its own: the distribution's package, unpacked and never installed, so that
no machine gets a mail server from running tests."""

from __future__ import annotations

import grp
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.foreign.judges_folder import unpacked_judge
from tests.foreign.loopback import all_answer, free_port
from tests.services import give_up

_OWNER, _GROUP, _OTHER = "mail", "news", "nobody"
"""Users and a group that every Debian has; Postfix wants two that are not root, and a group of its own."""
_OWNED: Final = (
    *("active", "bounce", "corrupt", "defer", "deferred", "flush", "hold", "incoming"),
    *("private", "saved", "trace"),
)
_MASTER: Final = """
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
proxymap unix - - n - - proxymap
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"""
_NAMED = re.compile(r"postfix/cleanup\[\d+\]: (\w+): message-id=<([^>]+)>")
_CONNECTED = re.compile(r"postfix/smtpd\[\d+\]: connect from")
_QUEUED = re.compile(r"postfix/qmgr\[\d+\]: (\w+): from=<")


class Door(NamedTuple):
    """One port with the settings of its own."""

    name: str
    settings: str
    """As in master.cf: `-o { name = value }`."""


class Postfix:
    """A running server; leaving it ends its processes by their ids."""

    def __init__(self, doors: Iterable[Door]) -> None:
        self._programs = programs()
        self._folder = Path(tempfile.mkdtemp(prefix="postfix-"))
        self._folder.chmod(0o755)  # Postfix's own user must get in
        self.ports = {door.name: free_port() for door in doors}
        self._configure(doors)
        self._prepare_queue()

    def __enter__(self) -> Self:
        sbin = self._programs / "usr/lib/postfix/sbin"
        environment = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(self._programs / "usr/lib/postfix"),
        }
        with (self._folder / "out").open("wb") as output:
            self._process = subprocess.Popen(
                [sbin / "master", "-c", self._folder / "etc", "-d"],
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,  # it ends its own processes as a group
            )
        if not all_answer(self._process, self.ports.values()):
            said = self._said()
            self._end()
            give_up(f"Postfix did not start: {said}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            print(self._said())
        self._end()

    def copies(self) -> Counter[str]:
        """How many copies of each Message-ID it took into its queue; one that broke off is none."""
        log = self._log()
        names = dict(_NAMED.findall(log))
        return Counter(names[found] for found in dict.fromkeys(_QUEUED.findall(log)))

    def connections(self) -> int:
        """How many it took so far; those it has not greeted yet count."""
        return len(_CONNECTED.findall(self._log()))

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _log(self) -> str:
        log = self._folder / "log"
        return log.read_text("utf-8", "replace") if log.exists() else ""

    def _said(self) -> str:
        return ((self._folder / "out").read_text("utf-8", "replace") + self._log())[-3_000:]

    def _configure(self, doors: Iterable[Door]) -> None:
        root, base = self._programs, self._folder
        settings = {
            "compatibility_level": "3.6",
            "queue_directory": base / "queue",
            "data_directory": base / "data",
            "daemon_directory": root / "usr/lib/postfix/sbin",
            "command_directory": root / "usr/sbin",
            "shlib_directory": root / "usr/lib/postfix",
            "meta_directory": root / "etc/postfix",
            "mail_owner": _OWNER,
            "setgid_group": _GROUP,
            "default_privs": _OTHER,
            "import_environment": "MAIL_CONFIG LD_LIBRARY_PATH",
            "maillog_file": base / "log",
            "maillog_file_prefixes": base,
            "myhostname": "postfix.test",
            "mydestination": "",
            "mynetworks": "127.0.0.0/8",
            "inet_interfaces": "127.0.0.1",
            "inet_protocols": "ipv4",
            "smtpd_relay_restrictions": "permit_mynetworks, reject",
            "smtpd_client_connection_count_limit": "0",
            "smtpd_delay_reject": "no",
            "default_transport": "discard",
            "alias_maps": "",
            "alias_database": "",
            "local_recipient_maps": "",
        }
        (base / "etc").mkdir()
        main = "".join(f"{name} = {value}\n" for name, value in settings.items())
        (base / "etc/main.cf").write_text(main)
        lines = [
            f"127.0.0.1:{self.ports[door.name]} inet n - n - - smtpd {door.settings}".rstrip()
            for door in doors
        ]
        (base / "etc/master.cf").write_text("\n".join(lines) + _MASTER)

    def _prepare_queue(self) -> None:
        """As the package's post-install script lays it out."""
        owner, group = pwd.getpwnam(_OWNER).pw_uid, grp.getgrnam(_GROUP).gr_gid
        queue = self._folder / "queue"
        (queue / "pid").mkdir(parents=True)
        for name, mode in {
            **dict.fromkeys(_OWNED, 0o700),
            "maildrop": 0o730,
            "public": 0o710,
        }.items():
            (queue / name).mkdir()
            (queue / name).chmod(mode)
            os.chown(queue / name, owner, 0 if name in _OWNED else group)
        (self._folder / "data").mkdir(mode=0o700)
        os.chown(self._folder / "data", owner, 0)


def programs() -> Path:
    """The root that the package was unpacked under. Skips the test where it cannot be had or run, and fails
    it where everything must be."""
    if os.geteuid() != 0:
        give_up("Postfix starts as root alone")
    return unpacked_judge("postfix")
