"""`schedq exec` with what no text is, on a disk that is full, and from a caller whose scheduler never decides."""

from __future__ import annotations

import os
import sys

import pytest
from driven import Queue

NOT_UTF8 = os.fsdecode(b"d\xff")


@pytest.mark.parametrize("detached", [False, True])
def test_words_and_folders_that_are_no_utf8_reach_the_command_as_they_are(queue: Queue, detached: bool) -> None:
    queue.folder = queue.folder / NOT_UTF8
    queue.folder.mkdir()
    code = "import os, sys; there = os.path.basename(os.getcwdb()); sys.exit(9 * (os.fsencode(sys.argv[1]) != there))"
    words = ("exec", "--ram", "0.1", *(["--detach"] if detached else []), "--", sys.executable, "-c", code, NOT_UTF8)
    asked = queue(*words)
    assert asked.code == 0, asked
    if detached:
        job = asked.out.strip()
        assert queue("wait", job).code == 0
        assert queue("show", job).code == queue("log", job).code == queue("status").code == 0
        assert "d\\udcff" in queue("show", job, "--json").out


def test_a_detached_command_whose_environment_finds_no_room_is_asked_for_later(queue: Queue) -> None:
    """/dev/full takes no byte: the folder of environments is a link to where nothing can be made."""
    home = queue.home
    home.mkdir(exist_ok=True)
    (home / "environments").symlink_to("/proc/self/fdinfo")
    refused = queue("exec", "--ram", "0.1", "--detach", "--", "true")
    assert refused.code == 75 and "could not be stored" in refused.err and "nothing was queued" in refused.err
