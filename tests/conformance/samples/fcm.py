"""A valid FCM account and notification, for the suite over all adapters."""

from __future__ import annotations

from typing import Any

from message.envelope import Notification

PRIVATE_KEY = """\
-----BEGIN PRIVATE KEY-----
MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQCZlxEXAkEFfrYl
o0UgYws144rH+qIpXKFRzeqcihu2PO13Qa8UAgmAHF6p/UWvx4KC6MIL8fgTgCM5
acKNoBbHen5Wt4PSYIbcBnpjBd6dCMKNtPm8Ow4zsZ/EqJys7cl9iYn9+3WWIDbr
smzySB10ZAIT1bZwHUA1WOYV4J4LBB4d+NYXlEcb0Px9Moda6XqJSI/moiDwy+AV
zKpc6ziO77CcjRVktBhnyd5S+tmFr63vQ7KYqUXKoFLIVCgJnt7vT8MqOeFCf427
g3/wX+kXjPNwdr5DKNSoB1rQKzyTOzgRmO/HEnrw5XEv7LfRG4B9CMoaPLYGWzCp
V0v0ttVTAgMBAAECggEABptmB1xbkpXw8mnDuSnwrPYAiHLdVy0MlpuC9EdlGDqY
TBLqRpe688hvTvMokNPGZyjNOCdwcKHd8EP+wjSuO4LDkhug3by1DOONkAUogg7Y
TQa0F/jsmnnKZx1tvU6nkNTQKZ1lDBdy5V68x30lksfbAwXdgZTwi5ryLY6G1tMT
kFA4xhqTzZjYMeTKj3jwDGdrZ1HnY/rfKeVVdM/hFH+usf82MW42o4APS4JGQAez
yg+9sewTDqdaJDQJGWRaEXDqLAKnPWnsZM5GT4/n7QY3aMbRBP8SFMRXG4R/3218
6nMoXkMFbg0wiOorX1+vl6V8ZzA06LBLkO9ZXH+LqQKBgQDMuvghe5iDbPlmEiXo
Mk5rfuHplueNzmcQFn75cEusbWWAhSs2VWSG1tyHakuj/MY4EOcvrJIPxp/HMopi
K0uC0t7j3/f1jA3XVJGJ9xrSR/dBmr0Uln3dzeEOfcuPLutPtSnVvCkXJRK2vjnK
Kp1wXpyDejiXSppjSgckX5aDnQKBgQDADY3ref2Mb/n2CiQo2IVPG6RIkt3QMj2f
PvP+epeGpfxP9nqagQ2ERia05B9qb745KVvRMlWTaxbhup5r2g6jl/UrkCnBAgox
H+zdezFCZMPGNMSHCL8Gce1x/6fXkooiDuuIDOJVw+Wp1mYCqveDT3NdQUqQ4pGm
tXHJQohBrwKBgB80XD+WPA/EG1tQZtC2YjeGNl7JLm/xxsmv9BiG4jHc1ry5D3YP
m+vlceV98RuEmp3PDb25euXGq3HMJUWDPdYp1+k5qOyXNUDd1fUGYeMtLuWj9S/f
JD4bdDMmP1GKoDkc7sxyCn1JnEmYQuyqhCatdQOhLGD68P8zOFV18FYNAoGBAJ0/
e+A+Nhfy51tI2mqHPj+ThmPVvMBnIoVs6iKHBeI9reVbDu/KkuKm/bJGxmJDtCDh
eEhFSkQ1/ro8LtJn7GyOUzOkCkv5+5ZVaX+/CoouLw3uzqsxwhbo2V3p0ed0GJ3i
UX9H7VoD19vDrCqrCZX+S5sjhoYyvMce8Ve0nhQJAoGAD+38npp0KYjo/f2c6EY3
GgWDBZQxkHPB1p+EjlHTHJIjTRGV2uXoF4TmRxawCBsDif/FUvauS7DFpsR8FX0k
V16rvVTgCz0Tsd/Cyo+uVbNEQ0sj9u+jmjDaxRDUcowDkDKjAARBKsabTarKFcai
AIhPQx1vhhyDt4+at16U7nM=
-----END PRIVATE KEY-----
"""
"""Made for tests: the simulator knows its modulus, and nobody else takes it."""

PATH = "/fcm"
ACCOUNT: dict[str, Any] = {
    "provider": "fcm",
    "project_id": "simulator-id",
    "client_email": "simulator-id@simulator.example",
    "private_key": PRIVATE_KEY,
}
PER_RECEIVER: frozenset[str] = frozenset()
UNREACHABLE: dict[str, str] = {}


def notification(number: int) -> Notification:
    """One notification, unlike those of other numbers."""
    return Notification(
        id=f"{PATH[1:]}-{number}",
        channel="push",
        kind="notice",
        receivers=[f"token-{number}"],
        content={"title": "a notice", "text": f"notice {number}"},
        created_at=1_700_000_000_000,
        ttl_ms=86_400_000,
    )
