"""The bundles of trusted authorities."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from channels.tls import Trust


def test_every_thread_that_asks_first_gets_a_bundle_that_stays(tmp_path: Path) -> None:
    extras = [tmp_path / f"{number}.pem" for number in range(8)]
    for extra in extras:
        extra.write_bytes(b"-----\xff not UTF-8 " + extra.name.encode())
    trust = Trust()
    with ThreadPoolExecutor(32) as threads:
        bundles = list(threads.map(trust.with_extra, [str(e) for e in extras] * 16))
    assert len(set(bundles)) == len(extras)
    assert all(Path(bundle).is_file() for bundle in bundles)
    trust.close()
    assert not any(Path(bundle).exists() for bundle in bundles)
