"""Rules for spools: the disk under a folder on this host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from producer.doctor.facts import Facts, SpoolFacts
from producer.doctor.rule import NotKnown, RuleBook, Said, Seen, Severity

BOOK: Final = RuleBook("spool")
_FUSE: Final = "fuse."
"""Before the type of a file system that a program serves, such as fuse.glusterfs."""
_VOLATILE: Final = ("tmpfs", "ramfs", "overlay", "aufs", "rootfs", "fuse-overlayfs")
"""In memory, or the layer of a container that ends with it."""
_REMOTE: Final = (
    *("nfs", "cifs", "smb", "9p", "ceph", "gluster", "afs", "sshfs", "virtiofs", "lustre", "gpfs"),
    *(
        "beegfs",
        "ocfs2",
        "gfs2",
        "orangefs",
        "moosefs",
        "mfs",
        "juicefs",
        "s3fs",
        "gcsfuse",
        "rclone",
    ),
    *("ossfs", "cosfs", "goofys", "davfs"),
)
_CLEANED: Final = ("/tmp/", "/var/tmp/")  # noqa: S108 - places to warn of
_BESIDE: Final = 9 << 20
"""The write-ahead log and a drain, beside the records (docs/spool.md)."""


def _seen_ones(facts: Facts) -> Iterator[SpoolFacts]:
    return (one for one in facts.spools if not one.refusal)


def _unseen_ones(facts: Facts) -> Iterator[NotKnown]:
    return (NotKnown(one.path, one.refusal) for one in facts.spools if one.refusal)


@BOOK.rule(
    "spool-persistent",
    Severity.ERROR,
    "A spool is on a disk that outlives its container",
    "The business was told that the notification is safe. The container restarts, or the host does, and"
    " everything in the spool is gone.",
)
def persistent(facts: Facts) -> Said:
    """The file system's type, and /tmp."""
    yield from _unseen_ones(facts)
    for one in _seen_ones(facts):
        if not one.filesystem:
            yield NotKnown(one.path, "no line of /proc/self/mountinfo names its file system")
        elif one.filesystem.removeprefix(_FUSE) in _VOLATILE:
            wanted = "a volume, or the host's disk"
            fix = f"mount a volume at {one.path}, or name another folder to Spool(…)"
            yield Seen(one.path, one.filesystem, "/proc/self/mountinfo", wanted, fix)
        elif f"{one.path}/".startswith(_CLEANED):
            fix = "name a folder such as /var/lib/NAME/spool to Spool(…)"
            yield Seen(one.path, "in /tmp", "its path", "outside of /tmp", fix)


@BOOK.rule(
    "spool-local",
    Severity.ERROR,
    "A spool is on a local disk",
    "A network file system's locks do not hold: two processes drain at once, and two notifications of one"
    " key change their order; or the file is damaged, and records are lost.",
)
def local(facts: Facts) -> Said:
    """The file system's type."""
    yield from _unseen_ones(facts)
    for one in _seen_ones(facts):
        if one.filesystem.removeprefix(_FUSE).startswith(_REMOTE):
            fix = "name a folder on a local disk to Spool(…), its own on each host"
            wanted = "a local file system"
            yield Seen(one.path, one.filesystem, "/proc/self/mountinfo", wanted, fix)


@BOOK.rule(
    "spool-space",
    Severity.ERROR,
    "A spool's disk has room for its limit",
    "Kafka is away, and the disk is full before the spool is: the caller gets SpoolAway, and a business"
    " that does not wait loses the notification.",
)
def space(facts: Facts) -> Said:
    """Free space against max_bytes less what is used."""
    yield from _unseen_ones(facts)
    for one in _seen_ones(facts):
        needed = max(0, one.max_bytes + _BESIDE - one.used_bytes)
        if one.free_bytes < needed:
            seen = f"{one.free_bytes >> 20} MiB free"
            fix = "make room on its disk, or give Spool(…) a lower max_bytes"
            yield Seen(one.path, seen, "statvfs", f"≥ {needed >> 20} MiB", fix)
