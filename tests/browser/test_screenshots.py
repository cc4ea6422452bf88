"""Every page of the navigation on the demo's own data, in a real browser, and a picture of each.

SCREENSHOTS=1 (`make screenshots`) runs the whole demo and writes docs/images/console-NAME.png. Without it
the demo is short, and the pictures go to the test's folder.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser

from admin.access import Role
from deploy.local.layout import REPOSITORY
from hongyan.commands import demo
from tests.browser.conftest import Watched
from tests.harness.waiting import await_
from tests.hongyan.conftest import PROGRAM
from tests.hongyan.test_demo_console import console

WRITES = bool(os.environ.get("SCREENSHOTS"))
IMAGES = REPOSITORY / "docs" / "images"
FEW = 60
SCREEN = {"width": 1280, "height": 800}


class DemoConsole(NamedTuple):
    """A console on the ledger of a demo, with the passwords of its operators."""

    address: str
    passwords: dict[str, str]


@pytest.fixture(scope="module")
def demo_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoConsole]:
    folder = tmp_path_factory.mktemp("demo")
    file = demo.examples()
    if not WRITES:
        with file.open("rb") as lines:
            file = folder / "few.jsonl"
            file.write_bytes(b"".join(islice(lines, FEW)))
    command = [str(PROGRAM), "demo", "--file", str(file), "--keep", "kept"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=180)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    with console(folder, "--folder", "kept") as (address, passwords):
        yield DemoConsole(address, passwords)


@pytest.mark.timeout(300)
def test_each_page_of_the_navigation_shows_the_demos_data(
    demo_console: DemoConsole, chromium: Browser, tmp_path: Path
) -> None:
    folder = IMAGES if WRITES else tmp_path
    folder.mkdir(exist_ok=True)
    for role in (Role.OPERATOR, Role.ADMIN):
        context = chromium.new_context(locale="en", color_scheme="light", viewport=SCREEN)  # type: ignore[arg-type]
        try:
            one = Watched(context.new_page(), demo_console.address)
            one.sign_in(role, demo_console.passwords[role])
            await_(lambda: "RUNNING" in one.page.content(), what="the demo's processes")  # noqa: B023
            links = one.page.locator("nav a[data-go]").all()
            paths = [str(link.get_attribute("href")) for link in links]
            assert paths[0] == "/"
            for path in paths:
                name = path.strip("/") or "overview"
                one.page.goto(one.address + path)
                one.page.wait_for_load_state("domcontentloaded")
                one.page.screenshot(path=folder / f"console-{name}.png")
            assert one.complaints == []
        finally:
            context.close()
