"""The file system under a folder, from the kernel's own table; nothing is made by looking."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer.doctor import spool_facts
from producer.doctor.spool_facts import filesystem_of, read_spools

MOUNTS = """\
23 28 0:21 / / rw,relatime - overlay overlay rw,lowerdir=/a
24 23 0:22 / /proc rw,nosuid - proc proc rw
25 23 8:1 /data /var/lib/shop rw,relatime shared:1 - ext4 /dev/sda1 rw
26 25 0:40 / /var/lib/shop/my\\040spool rw - nfs4 server:/x rw
27 23 0:41 / /var/lib/shopping rw - tmpfs tmpfs rw
"""


def test_the_deepest_mount_of_a_folder_counts() -> None:
    assert filesystem_of(Path("/var/lib/shop/spool"), MOUNTS) == "ext4"
    assert filesystem_of(Path("/var/lib/shop/my spool/a"), MOUNTS) == "nfs4"
    assert filesystem_of(Path("/var/lib/shopping"), MOUNTS) == "tmpfs"
    assert filesystem_of(Path("/var/lib/shops"), MOUNTS) == "overlay"


def test_a_mount_whose_name_is_no_utf_8_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    foreign = b"28 23 8:2 / /media/\xd3\xc5\xc5\xcc rw - vfat /dev/sdb1 rw\n"
    mounts.write_bytes(foreign + b"23 28 0:21 / / rw - ext4 /dev/sda1 rw\n")
    monkeypatch.setattr(spool_facts, "_MOUNTS", mounts)
    (found,) = read_spools([str(tmp_path)])
    assert (found.filesystem, found.refusal) == ("ext4", "")


def test_a_folder_is_looked_at_and_not_made(tmp_path: Path) -> None:
    (tmp_path / "spool.db").write_bytes(b"x" * 100)
    there, gone = read_spools([str(tmp_path), str(tmp_path / "gone"), str(tmp_path)])
    assert (there.path, there.used_bytes, there.refusal) == (str(tmp_path), 100, "")
    assert there.filesystem
    assert there.free_bytes > 0
    assert "No such file" in gone.refusal
    assert not (tmp_path / "gone").exists()
