"""`schedq service ...`: the scheduler of this queue comes up with the machine."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from scheduler import wake
from scheduler.cli import children, say, starting
from scheduler.cli.fast import Call
from scheduler.config import Paths
from scheduler.errors import SchedqError, UsageError
from scheduler.host import boot, units
from scheduler.host.workers.environment import recorded
from scheduler.settable import SECRET
from scheduler.store import identity

SYSTEM_FOLDER = "/etc/systemd/system"


def install(call: Call) -> int:
    """Print a system unit, install a user unit, or write a line of the crontab."""
    if call.flag("system") and call.flag("cron"):
        raise UsageError("--system and --cron are two ways; choose one")
    paths = Paths()
    start = _start(paths)
    starting.prepare(paths)
    if call.flag("system"):
        return _print_system(start)
    missing = "" if call.flag("cron") else boot.no_systemd()
    if call.flag("cron") or missing:
        _install_line(start, missing)
    else:
        _install_unit(paths, start)
    _note_left_out(start)
    return 0


def _start(paths: Paths) -> units.Start:
    """How the scheduler of this queue is started, by the program that this is."""
    called = os.path.abspath(sys.argv[0])
    script = os.path.basename(called) == "schedq" and os.access(called, os.X_OK)
    words = [called] if script else children.argv()
    return units.start_of(paths.home, words, children.environment(paths), identity.user())


def _print_system(start: units.Start) -> int:
    name = units.name_of(start.home)
    there = boot.read(os.path.join(SYSTEM_FOLDER, name))
    if there is not None and units.home_of(there) != start.home:
        name = f"schedq-{units.mark_of(start.home)}.service"
    say.out(units.unit(start, system=True).rstrip("\n"))
    say.note(
        f"to put it in place:\n  schedq service install --system | sudo tee {SYSTEM_FOLDER}/{name} > /dev/null\n"
        f"  sudo systemctl daemon-reload\n  sudo systemctl enable --now {name}\n"
        f"to take it away:\n  sudo systemctl disable {name} && sudo rm {SYSTEM_FOLDER}/{name}"
    )
    _note_left_out(start)
    return 0


def _install_unit(paths: Paths, start: units.Start) -> None:
    if not boot.lingers(start.user):
        raise SchedqError(
            f"nothing was installed: the systemd of {start.user} ends with the last logout, and the queue and its"
            f" workers would end with it; let it stay, then ask again: loginctl enable-linger {start.user}\n"
            "(or: schedq service install --system, or --cron)"
        )
    name, text = units.name_of(start.home), units.unit(start, system=False)
    path = os.path.join(boot.user_folder(), name)
    before = boot.read(path)
    _require_ours(path, before, start.home)
    if before == text and boot.answered("--user", "is-enabled", name) == "enabled":
        say.note(f"{name} is installed already: {path}")
        return
    boot.put(path, text)
    runs = wake.scheduler_runs(paths)
    enable = ("enable", name) if runs else ("enable", "--now", name)

    def undo() -> None:
        if before is None:
            os.unlink(path)
        else:
            boot.put(path, before)

    boot.undone_by(undo, ("daemon-reload",), enable)
    say.note(f"{name} is {'renewed' if before else 'installed'}: {path}")
    if runs:
        say.note(
            f"a scheduler runs already; to have it run by systemd: schedq down, then systemctl --user start {name}"
        )


def _require_ours(path: str, text: str | None, home: str) -> None:
    """SchedqError if a unit is there that we did not write for this queue."""
    if text is not None and units.home_of(text) != home:
        whose = units.home_of(text)
        what = f"starts the queue {whose}" if whose else "was not written by schedq service"
        raise SchedqError(f"{path} {what}: it is left as it is; move it away, then ask again")


def _install_line(start: units.Start, missing: str) -> None:
    why = f"{missing}: " if missing else ""
    if boot.crontab() is None:
        raise SchedqError(f"{why}there is no crontab either; let whatever starts things here call: {_by_hand(start)}")
    changed = boot.change_crontab(start.home, units.cron_line(start))
    say.note(f"{why}an @reboot line of your crontab starts the scheduler{'' if changed else ' already'}: crontab -l")
    if not wake.scheduler_runs(Paths()):
        say.note("it is started at the next boot; to start it now: schedq up")


def _by_hand(start: units.Start) -> str:
    import shlex

    env = [f"{name}={shlex.quote(value)}" for name, value in start.env if name in units.PLACES]
    return " ".join([*env, *map(shlex.quote, start.words), "up"])


def _note_left_out(start: units.Start) -> None:
    """Name what workers see now and would not see after a reboot: it may be a secret, so it is not written down."""
    lost = sorted(set(recorded()) - {name for name, _ in start.env} - {"HOME", "USER", "LOGNAME", "LC_CTYPE"})
    if lost:
        say.note(
            f"workers that are started at boot will not see {', '.join(lost)}: nothing that may be a secret is written"
            " down; a manifest's env, or pass and secrets.env, can have it"
        )
    _note_secrets()


def _note_secrets() -> None:
    """Name the settings of this environment that may be secrets: no unit has them."""
    kept = [f"SCHEDQ_{key.upper()}" for key in SECRET if os.environ.get(f"SCHEDQ_{key.upper()}")]
    if kept:
        say.note(
            f"{', '.join(kept)} may be secret and is not written down: set it in config.toml for who starts at boot"
        )


def _found(paths: Paths) -> list[dict[str, object]]:
    """Everything that starts this queue at boot: what it is, whether it is in force, and in what it is outdated."""
    start, name = _start(paths), units.name_of(paths.home)
    names = [name, f"schedq-{units.mark_of(paths.home)}.service"]
    found: list[dict[str, object]] = []
    for kind, folder, manager in (("user", boot.user_folder(), ("--user",)), ("system", SYSTEM_FOLDER, ())):
        for each in dict.fromkeys(names):
            path = os.path.join(folder, each)
            text = boot.read(path)
            if text is None or units.home_of(text) != paths.home:
                continue
            enabled = boot.answered(*manager, "is-enabled", each)
            found.append(
                {
                    "kind": kind, "name": each, "path": path, "enabled": enabled == "enabled",
                    "active": boot.answered(*manager, "is-active", each),
                    "differs": units.differences(text, units.unit(start, system=kind == "system")),
                    "survives_logout": kind == "system" or boot.lingers(start.user),
                }
            )  # fmt: skip
    line = units.ours(boot.crontab() or "", paths.home)
    if line:
        wanted = "@reboot"
        with suppress(UsageError):
            wanted = units.cron_line(start)
        found.append(
            {
                "kind": "cron", "name": "crontab", "path": "", "enabled": True, "active": "",
                "differs": units.differences(line, wanted), "survives_logout": True,
            }
        )  # fmt: skip
    return found


def status(call: Call) -> int:
    """Say what is installed; 0 if one of it brings this queue's scheduler up at boot, as it would be installed now."""
    paths = Paths()
    found = _found(paths)
    good = any(each["enabled"] and each["survives_logout"] and not each["differs"] for each in found)
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "home": paths.home, "at_boot": good, "installed": found}))
        return 0 if good else 1
    lines = [f"nothing starts the scheduler of {paths.home} at boot; schedq service install does"] if not found else []
    for each in found:
        lines += say.wrap(_told(each), "")
    say.out("\n".join(map(say.plain, lines)))
    return 0 if good else 1


def _told(each: dict[str, object]) -> str:
    if each["kind"] == "cron":
        parts = ["crontab: an @reboot line"]
    else:
        enabled = "enabled" if each["enabled"] else "not enabled: it does not start at boot"
        parts = [f"{each['kind']} unit {each['name']}: {enabled}, {each['active']} ({each['path']})"]
    if not each["survives_logout"]:
        parts.append("it ends with your last logout: loginctl enable-linger")
    if each["differs"]:
        again = " --system" if each["kind"] == "system" else " --cron" if each["kind"] == "cron" else ""
        names = ", ".join(map(str, each["differs"])) if isinstance(each["differs"], list) else ""
        parts.append(f"{names} is another than now: schedq service install{again} renews it")
    return "; ".join(parts)


def remove(_call: Call) -> int:
    """Take the user unit and the line of the crontab away; name what only root can."""
    paths = Paths()
    removed = False
    for each in _found(paths):
        name, path = str(each["name"]), str(each["path"])
        if each["kind"] == "system":
            say.note(f"{path} is root's: sudo systemctl disable {name} && sudo rm {path}")
        elif each["kind"] == "cron":
            removed = boot.change_crontab(paths.home, "") or removed
            say.note("the @reboot line of your crontab is removed")
        else:
            with suppress(SchedqError):
                boot.told_systemd("disable", name)
            os.unlink(path)
            with suppress(SchedqError):
                boot.told_systemd("daemon-reload")
            removed = True
            say.note(f"{path} is removed" + ("; what it runs goes on" if each["active"] == "active" else ""))
    if not removed:
        say.note(f"there was nothing of ours to remove for {paths.home}")
    return 0
