"""Files read whole: only regular ones, never waited for, within a limit; anything else is named for what it is.

Every OSError raised here says in `strerror` what stands in the way and what to do, to follow the path and a blank.
Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import errno
import os
import stat

KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip


def opened(path: str) -> int:
    """A descriptor of a regular file. OSError says what it is instead, or why it cannot be opened."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
            mode = os.fstat(fd).st_mode
            if stat.S_ISREG(mode):
                return fd
            os.close(fd)
    except OSError as error:
        raise OSError(error.errno, _words(error, path), path) from None
    except ValueError:
        raise OSError(errno.EINVAL, "is no path: it holds a NUL character; remove it", path) from None
    is_ = KINDS.get(stat.S_IFMT(mode), "something else")
    raise OSError(errno.EINVAL, f"is {is_} and must be a file; put a file there, or correct the path", path)


def _words(error: OSError, path: str) -> str:
    if error.errno == errno.ENOENT and os.path.islink(path):
        return f"is a link to {os.readlink(path)}, which is not there; correct the link"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "is not there; correct the path or put the file there"
    if error.errno == errno.ELOOP:
        return "is a link that leads in a circle; correct the link"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "may not be read by you; change its permissions (chmod u+r), or those of its folders"
    return f"cannot be read: {error.strerror}; correct the path"


def read(path: str, most_bytes: int) -> bytes:
    """The bytes of a regular file. OSError as `opened` gives it, and for a file that has more than `most_bytes`."""
    fd = opened(path)
    try:
        parts: list[bytes] = []
        size, have = os.fstat(fd).st_size, 0
        while size <= most_bytes and (part := os.read(fd, 1 << 20)):
            parts.append(part)
            have += len(part)
            size = max(size, have)
    except OSError as error:
        raise OSError(error.errno, f"cannot be read: {error.strerror}; try again", path) from None
    finally:
        os.close(fd)
    if size > most_bytes:
        raise OSError(errno.EFBIG, f"has {size} bytes, and may have {most_bytes}; make it smaller", path)
    return b"".join(parts)
