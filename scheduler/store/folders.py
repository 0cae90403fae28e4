"""Where a queue may live, and its folders at first use. Standard library only: imported by the fast paths.

A queue needs locks and shared memory that work between processes: a local filesystem. On a network filesystem
SQLite's log corrupts silently, so it is refused, unless the operator takes that on.
"""

from __future__ import annotations

import os

from scheduler.config import Paths
from scheduler.errors import StoreError
from scheduler.mounts import mount

MOUNTINFO = "/proc/self/mountinfo"

NETWORK = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "smb2", "9p", "afs", "ceph", "coda", "ncpfs", "lustre", "beegfs",
        "gpfs", "glusterfs", "panfs", "pvfs2", "orangefs", "wekafs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph",
        "fuse.beegfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.davfs", "davfs",
    }
)  # fmt: skip


def require_local(paths: Paths, mountinfo: str = MOUNTINFO) -> None:
    """StoreError, naming mount and type, if the queue's folder is on a network filesystem and that is not allowed."""
    found = mount_of(paths.home, mountinfo)
    if found is None or found[1] not in NETWORK:
        return
    from scheduler.config import settings

    if settings().flag("allow_network_filesystem"):
        return
    point, kind = found
    raise StoreError(
        f"{paths.home} is on the network filesystem at {point} (type {kind}), where a queue can be corrupted;"
        " set SCHEDQ_HOME to a folder on a local disk (or allow_network_filesystem = true, at your own risk)"
    )


def mount_of(path: str, mountinfo: str = MOUNTINFO) -> tuple[str, str] | None:
    """(mount point, filesystem type) that a path is on, whether or not it exists; None if it cannot be told."""
    real = os.path.realpath(path)
    best: tuple[str, str] | None = None
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                found = mount(line)
                if found is None:
                    continue
                _, point, kind, _ = found
                under = point == "/" or real == point or real.startswith(point + "/")
                if under and (best is None or len(point) >= len(best[0])):
                    best = point, kind
    except OSError:
        return None
    return best


def prepare(paths: Paths) -> None:
    """Make the queue's folders (0700) where they are missing. Safe to run by many processes at once."""
    if not os.path.isdir(paths.home):
        os.makedirs(os.path.dirname(paths.home), exist_ok=True)
        _make(paths.home)
    _make(os.path.dirname(paths.lock_owner))
    for folder in (
        paths.lock_next, paths.lock_owner, paths.lock_scheduler, paths.content, paths.jobs, paths.results,
        paths.workers, paths.backups, paths.cache, paths.run,
    ):  # fmt: skip
        _make(folder)
    if not paths.run.startswith(paths.home + "/"):
        found = os.lstat(paths.run)
        if found.st_uid != os.getuid() or found.st_mode & 0o170077 != 0o040000:
            raise StoreError(
                f"{paths.run} is not a private folder of yours; somebody else may have made it;"
                " remove it, or set SCHEDQ_HOME to a shorter path"
            )


def leave(paths: Paths) -> None:
    """Take away the folder of sockets if it is empty and lies in /tmp, where a long SCHEDQ_HOME has it."""
    if paths.run.startswith(paths.home + "/"):
        return
    try:
        os.rmdir(paths.run)
    except OSError:
        pass


def _make(folder: str) -> None:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass


def settle(folder: str) -> None:
    """Make durable that a folder is there: its name and those above it, up to where its filesystem is mounted.

    Whoever made them may have been killed before syncing them. One that may not be read was not made by us.
    """
    at = os.path.realpath(folder)
    device = os.stat(at).st_dev
    while os.stat(at).st_dev == device:
        try:
            sync(at)
        except PermissionError:
            pass
        if at == "/":
            return
        at = os.path.dirname(at)


def sync(folder: str) -> None:
    """Make a folder's names durable: what was created or renamed in it survives power loss."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
