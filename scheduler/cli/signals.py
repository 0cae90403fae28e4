"""Signals as something to read: who waits for a command passes on what it is sent, and knows where each came from."""

from __future__ import annotations

import _ctypes
import _signal  # type: ignore[import-not-found]  # the module `signal` costs an import of enum
import os
import struct

PASSED = (
    _signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM, _signal.SIGUSR1, _signal.SIGUSR2,
    _signal.SIGALRM, _signal.SIGWINCH, _signal.SIGTSTP, _signal.SIGCONT,
)  # fmt: skip
"""What a command gets that its caller is sent."""

SI_KERNEL = 0x80
_INFO = struct.Struct("=IiiI")
SIZE = 128


class Signals:
    """The passed signals, held back from this process and read from `fd` instead.

    One that was ignored stays so (`nohup`, a script's background): the kernel keeps what is ignored and held back, too,
    so it must not be held back.
    """

    def __init__(self) -> None:
        heard = [number for number in PASSED if _signal.getsignal(number) != _signal.SIG_IGN]
        self.before = _signal.pthread_sigmask(_signal.SIG_BLOCK, heard)
        bits = sum(1 << (number - 1) for number in heard)
        call = _ctypes.dlsym(_ctypes.dlopen(None, 2), "signalfd")  # type: ignore[arg-type]
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self.fd = int(_ctypes.call_function(call, (-1, bits.to_bytes(128, "little"), flags)))
        if self.fd < 0:
            raise OSError("signalfd failed")

    def read(self) -> list[tuple[int, bool]]:
        """Which came, in order, and whether a terminal sent it: that is to all of this process's group at once."""
        found: list[tuple[int, bool]] = []
        while True:
            try:
                data = os.read(self.fd, SIZE)
            except BlockingIOError:
                return found
            number, _errno, code, _pid = _INFO.unpack(data[: _INFO.size])
            found.append((int(number), code == SI_KERNEL and number != _signal.SIGALRM))

    def stop(self) -> None:
        """What SIGTSTP does where nobody reads it: this process stops, if there is somebody who could let it go on."""
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [_signal.SIGTSTP])
        os.kill(os.getpid(), _signal.SIGTSTP)
        _signal.pthread_sigmask(_signal.SIG_BLOCK, [_signal.SIGTSTP])

    def close(self) -> None:
        """Let them through again."""
        os.close(self.fd)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self.before)
