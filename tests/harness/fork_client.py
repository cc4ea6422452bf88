"""pytest-xdist starts this in place of an interpreter. It asks `tests.prefork` for a fork, which gets this
process's input, output, environment and folder, and ends with the fork."""

import json
import os
import socket
import sys
from pathlib import Path

MOST_BYTES = 100_000
"""Longest request."""


def main() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as parent:
        parent.connect(f"\0{sys.argv[1]}")
        told = json.dumps([dict(os.environ), str(Path.cwd())]).encode()
        socket.send_fds(parent, [told], [0, 1, 2])
        os.close(0)  # the fork alone has its ends of pytest-xdist's pipes
        os.close(1)
        parent.recv(1)


if __name__ == "__main__":
    main()
