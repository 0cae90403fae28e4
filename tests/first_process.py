"""The first process of a pid namespace: runs one command, buries whom it leaves behind, ends as it ended.

`tests/conftest.py` starts each process of a parallel run below it, so that none sees what another one starts.
"""

from __future__ import annotations

import os
import signal
import sys


def main(command: list[str]) -> int:
    """The exit status of a command, which leads a session of its own; a signal heard here is passed on to it."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os.execvp(command[0], command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda heard, _: os.kill(child, heard))
    while True:
        ended, status = os.wait()
        if ended == child:
            return os.waitstatus_to_exitcode(status) & 255


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
