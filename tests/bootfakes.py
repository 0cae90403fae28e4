"""Stand-ins for the programs that start things at boot, at their lowest level: executables on PATH that keep what they
were told in files; and systemd's and cron's own way to read a line, written from their manuals.
"""

from __future__ import annotations

import os
from pathlib import Path

SYSTEMCTL = """#!/bin/sh
echo "systemctl $*" >> "$FAKES/calls"
if [ -e "$FAKES/systemctl.fails" ] && [ "$2" = "$(cat "$FAKES/systemctl.fails")" ]; then
    echo "Failed to $2 unit: Access denied" >&2; exit 1
fi
[ "$1" = --user ] && shift
case "$1" in
show-environment) [ -e "$FAKES/no-bus" ] && { echo "Failed to connect to bus: No medium found" >&2; exit 1; } ;;
enable) shift; [ "$1" = --now ] && { shift; touch "$FAKES/$1.active"; }; touch "$FAKES/$1.enabled" ;;
disable) rm -f "$FAKES/$2.enabled" ;;
is-enabled) [ -e "$FAKES/$2.enabled" ] && echo enabled || { echo disabled; exit 1; } ;;
is-active) [ -e "$FAKES/$2.active" ] && echo active || { echo inactive; exit 3; } ;;
esac
exit 0
"""

LOGINCTL = """#!/bin/sh
[ -e "$FAKES/linger" ] && echo Linger=yes || echo Linger=no
"""

CRONTAB = """#!/bin/sh
echo "crontab $*" >> "$FAKES/calls"
[ -e "$FAKES/crontab.fails" ] && { echo "crontab: you may not" >&2; exit 1; }
case "$1" in
-l) [ -e "$FAKES/table" ] && cat "$FAKES/table" || { echo "no crontab for ada" >&2; exit 1; } ;;
-) cat > "$FAKES/table" ;;
esac
"""

PROGRAMS = {"systemctl": SYSTEMCTL, "loginctl": LOGINCTL, "crontab": CRONTAB}


class Boot:
    """A machine's init system for a test, with only these programs."""

    def __init__(self, folder: Path, *programs: str) -> None:
        self.folder = folder / "fakes"
        self.bin = self.folder / "bin"
        self.bin.mkdir(parents=True)
        for name in programs:
            path = self.bin / name
            path.write_text(PROGRAMS[name])
            path.chmod(0o755)
        for tool in ("sh", "cat", "touch", "rm"):
            os.symlink(f"/bin/{tool}", self.bin / tool)
        self.env = {"PATH": str(self.bin), "FAKES": str(self.folder)}

    @property
    def table(self) -> str:
        """The crontab, "" if there is none."""
        path = self.folder / "table"
        return path.read_text() if path.exists() else ""

    @property
    def calls(self) -> list[str]:
        """What was called, in order."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def says(self, name: str, text: str = "") -> None:
        """Let a fake behave so: `linger`, `no-bus`, `systemctl.fails` (with the verb), `crontab.fails`."""
        (self.folder / name).write_text(text)


def systemd_words(value: str, *, command: bool = False) -> list[str]:
    """A setting's value as systemd splits it: quotes, C escapes, %%; in a command's arguments $$ too."""
    words: list[str] = []
    word, quote, at, begun = "", "", 0, False
    value = value.replace("%%", "\0")
    assert "%" not in value, "a specifier would be expanded"
    value = value.replace("\0", "%")
    while at < len(value):
        each = value[at]
        if each == "\\":
            at += 1
            assert value[at] in '\\"', f"an escape that is another character: {value[at]}"
            word += value[at]
        elif each == quote:
            quote = ""
        elif not quote and each in "\"'":
            quote, begun = each, True
        elif not quote and each == " ":
            words, word, begun = ([*words, word] if begun or word else words), "", False
        else:
            word += each
        at += 1
    assert not quote, "a quote is open"
    words = [*words, word] if begun or word else words
    if not command:
        return words
    assert "$" not in "".join(words[1:]).replace("$$", ""), "a variable would be expanded"
    return [words[0], *(each.replace("$$", "$") for each in words[1:])]


def of_unit(text: str, name: str) -> list[str]:
    """The values of a setting in a unit."""
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{name}=")]


def environment_of(text: str) -> dict[str, str]:
    """The environment that a unit gives."""
    pairs = [systemd_words(value) for value in of_unit(text, "Environment")]
    assert all(len(pair) == 1 for pair in pairs)
    return {pair[0].partition("=")[0]: pair[0].partition("=")[2] for pair in pairs}


def cron_command(line: str) -> str:
    """What cron gives to /bin/sh of an @reboot line: up to the first bare %, an escaped one without its backslash."""
    word, _, rest = line.partition(" ")
    assert word == "@reboot"
    found = ""
    for at, each in enumerate(rest):
        if each == "\\" and rest[at + 1 : at + 2] == "%":
            continue
        if each == "%" and rest[at - 1] != "\\":
            break
        found += each
    return found
