"""The page of spools: figures, masked records, who may drain, and that looking makes nothing."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from admin.access import Role
from admin.app import create_app
from admin.audit.journal import AuditFilter
from admin.parts import ConsoleParts
from backends.kafka.embedded import EmbeddedKafka
from hongyan_client.spool.store import KeptRecord
from tests.admin.conftest import Browser
from tests.hongyan_client.spool.making import NEVER, Bench, FakeKafka, envelope, record

User = Callable[..., int]
NUMBER = "+8613800000001"
pytestmark = pytest.mark.parametrize("parts", ["sqlite"], indirect=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A spool of a process that has ended: one notification that waits, and one that is parked."""
    bench = Bench(tmp_path / "spool", FakeKafka())
    some = [envelope("order-1", NUMBER, bench.now), envelope("order-2", NUMBER, bench.now)]
    kept = [KeptRecord(one, NEVER) for one in some]
    bench.store.keep(kept, bench.folder.marker, bench.now)
    with bench.store._keeper.transaction() as connection:
        connection.execute("UPDATE records SET parked = 1 WHERE id = 2")
    bench.close()
    return tmp_path / "spool"


@pytest.fixture
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as kafka:
        yield kafka


@pytest.fixture
def console(parts: ConsoleParts, folder: Path, tmp_path: Path) -> Iterator[Callable[..., Browser]]:
    """Opens a browser of a user on a console with this spool, one that is gone, and one not made yet."""
    (tmp_path / "new").mkdir()
    folders = [str(folder), str(tmp_path / "gone"), str(tmp_path / "new")]
    with_folders = msgspec.structs.replace(parts.settings.console, spool_dirs=folders)

    def opened(name: str, bootstrap: str = "127.0.0.1:1") -> Browser:
        kafka = msgspec.structs.replace(parts.settings.kafka, bootstrap=bootstrap)
        settings = msgspec.structs.replace(parts.settings, console=with_folders, kafka=kafka)
        client = TestClient(create_app(dataclasses.replace(parts, settings=settings)))
        client.__enter__()
        clients.append(client)
        one = Browser(client)
        one.sign_in(name)
        return one

    clients: list[TestClient[Litestar]] = []
    yield opened
    for client in clients:
        client.__exit__(None, None, None)


def test_figures_and_masked_records_are_shown_and_nothing_is_made(
    console: Callable[..., Browser], user: User, tmp_path: Path
) -> None:
    user("lin", {Role.VIEWER: ("*",)})
    page = console("lin").get("/spools").text
    for part in ("order-1", "needs a person", "no such folder", "no spool yet", "parked"):
        assert part in page, part
    assert NUMBER not in page
    assert "4711" not in page
    assert 'action="/spools/drain"' not in page, "a viewer drains nothing"
    assert not (tmp_path / "gone").exists()
    assert list((tmp_path / "new").iterdir()) == []


def test_a_person_sees_records_of_ones_lanes_alone(
    console: Callable[..., Browser], user: User
) -> None:
    user("bo", {Role.OPERATOR: ("email.*",)})
    bo = console("bo")
    page = bo.get("/spools").text
    assert "order-1" not in page
    assert "None of its first records" in page


def test_draining_needs_all_lanes_a_reason_and_a_configured_folder(
    console: Callable[..., Browser], user: User, folder: Path
) -> None:
    user("bo", {Role.OPERATOR: ("sms.*",)})
    user("lin", {Role.OPERATOR: ("*",)})
    given = {"folder": str(folder)}
    assert console("bo").post("/spools/drain", reason="x", **given).status_code == 403
    lin = console("lin")
    assert lin.post("/spools/drain", **given).status_code == 422
    assert lin.post("/spools/drain", reason="x", folder="/etc").status_code == 422


def test_an_operator_of_every_channel_and_kind_is_one_of_all_lanes(
    console: Callable[..., Browser], user: User, folder: Path
) -> None:
    user("wu", {Role.OPERATOR: ("*.*",)})
    wu = console("wu")
    assert 'action="/spools/drain"' in wu.get("/spools").text
    answer = wu.post("/spools/drain", reason="x", folder=str(folder.parent))
    assert answer.status_code == 422, "the folder is refused, not the person"


def test_an_operator_drains_what_waits_and_what_is_parked_with_audit(
    console: Callable[..., Browser],
    user: User,
    folder: Path,
    broker: EmbeddedKafka,
    parts: ConsoleParts,
) -> None:
    user("lin", {Role.OPERATOR: ("*",)})
    lin = console("lin", broker.bootstrap)
    given = {"folder": str(folder), "parked": "on", "reason": "the application is gone"}
    assert lin.post("/spools/drain", **given).status_code == 303
    assert "order-1" not in lin.get("/spools").text
    (row,) = parts.journal.page(AuditFilter(action="spool.drain"), 10)
    assert (row.person, row.subject, row.reason) == ("lin", str(folder), "the application is gone")


def test_looking_leaves_no_file_open(
    console: Callable[..., Browser], user: User, folder: Path
) -> None:
    user("lin", {Role.VIEWER: ("*",)})
    lin = console("lin")
    lin.get("/spools")

    def open_files() -> int:
        links = [one.readlink() for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
        return sum(link.is_relative_to(folder) for link in links)

    gc.collect()  # whoever made the spool may still have its marker open
    before = open_files()
    for _ in range(3):
        lin.get("/spools")
    assert open_files() == before == 0


def test_a_record_of_no_lane_needs_all_lanes(
    parts: ConsoleParts, tmp_path: Path, user: User, console: Callable[..., Browser], folder: Path
) -> None:
    bench = Bench(folder, FakeKafka())
    other = record(7, topic="orders")
    bench.store.keep([KeptRecord(other, NEVER)], bench.folder.marker, bench.now)
    bench.close()
    user("bo", {Role.VIEWER: ("sms.*",)})
    user("lin", {Role.VIEWER: ("*",)})
    assert ">orders<" not in console("bo").get("/spools").text
    assert ">orders<" in console("lin").get("/spools").text
