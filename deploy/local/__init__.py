"""The local stack: real Kafka, PostgreSQL, Redis and MariaDB on loopback, without Docker.

    layout      where things are: folders, ports, addresses
    process     start, watch and end programs by process id
    system      the distribution's packages
    probe       is a server answering?
    kafka, postgres, redis_server, mariadb    one server each
    simulator_server    a simulated provider, and the hongyan.toml for all of it
    stack       all of them together; what tests use
    __main__    up, down, status, env

Standard library only: it runs before `.venv/` exists.
"""

import sys

FOUND = sys.version_info[:2]

if FOUND < (3, 11):
    found = ".".join(map(str, FOUND))
    sys.exit(
        f"hongyan: Python {found} is too old; name 3.11 or newer: `make up PYTHON=python3.12`."
    )
