"""`schedq service`, as its users run it: what is installed where, what is refused, and a scheduler that it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bootfakes import Boot, cron_command, environment_of, of_unit, systemd_words
from driven import Done, Queue, eventually


class Machine:
    """A queue on a machine whose init system has only these programs."""

    def __init__(self, queue: Queue, folder: Path, *programs: str) -> None:
        self.queue, self.boot = queue, Boot(folder, *programs)
        self.units = folder / "config" / "systemd" / "user"
        queue.env = {
            **{name: value for name, value in queue.env.items() if not name.startswith(("SSL_", "HF_", "XDG_"))},
            **self.boot.env, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config"),
        }  # fmt: skip

    def __call__(self, *words: str, **env: str) -> Done:
        return self.queue("service", *words, **env)

    @property
    def unit(self) -> Path:
        """The one unit that is installed."""
        [found] = self.units.iterdir()
        return found


@pytest.fixture
def systemd(queue: Queue, tmp_path: Path) -> Machine:
    made = Machine(queue, tmp_path, "systemctl", "loginctl", "crontab")
    made.boot.says("linger")
    return made


def test_a_user_unit_is_installed_enabled_and_shown_and_removed_whole(systemd: Machine) -> None:
    done = systemd("status")
    assert done.code == 1 and "nothing starts the scheduler" in done.out and "schedq service install" in done.out
    done = systemd("install")
    assert done.code == 0 and done.out == "" and str(systemd.unit) in done.err, done
    name = systemd.unit.name
    assert systemd.boot.calls[-2:] == ["systemctl --user daemon-reload", f"systemctl --user enable --now {name}"]
    done = systemd("status", "--json")
    assert done.code == 0 and done.json["at_boot"], done
    [found] = done.json["installed"]
    assert (found["kind"], found["name"], found["active"], found["differs"]) == ("user", name, "active", [])
    done = systemd("remove")
    assert done.code == 0 and list(systemd.units.iterdir()) == [], done
    assert systemd.boot.calls[-2:] == [f"systemctl --user disable {name}", "systemctl --user daemon-reload"]
    done = systemd("remove")
    assert done.code == 0 and "nothing of ours" in done.err


def test_installing_again_changes_nothing_and_renews_what_is_outdated(systemd: Machine) -> None:
    systemd("install")
    before, orders = systemd.unit.read_text(), len(systemd.boot.calls)
    done = systemd("install")
    assert done.code == 0 and "installed already" in done.err and systemd.unit.read_text() == before
    assert not [call for call in systemd.boot.calls[orders:] if "enable " in call]
    done = systemd("status", SCHEDQ_OVERTAKE="5m")
    assert done.code == 1 and "SCHEDQ_OVERTAKE" in done.out and "schedq service install" in done.out, done
    done = systemd("install", SCHEDQ_OVERTAKE="5m")
    assert done.code == 0 and "renewed" in done.err and "SCHEDQ_OVERTAKE=5m" in systemd.unit.read_text()


def test_without_linger_nothing_is_installed_and_the_command_is_said(systemd: Machine) -> None:
    (systemd.boot.folder / "linger").unlink()
    done = systemd("install")
    assert done.code == 1 and "loginctl enable-linger" in done.err and "last logout" in done.err, done
    assert not systemd.units.exists() and systemd.boot.table == ""


@pytest.mark.parametrize("theirs", ["[Unit]\nDescription=mine\n", '# schedq-service "/srv/another"\n[Unit]\n'])
def test_a_unit_that_was_not_written_for_this_queue_is_never_touched(systemd: Machine, theirs: str) -> None:
    systemd("install")
    path = systemd.unit
    path.write_text(theirs)
    done = systemd("install")
    assert done.code == 1 and str(path) in done.err and path.read_text() == theirs, done
    assert systemd("status").code == 1
    assert systemd("remove").code == 0 and path.read_text() == theirs


def test_a_unit_that_systemd_refuses_is_not_left_behind(systemd: Machine) -> None:
    systemd.boot.says("systemctl.fails", "enable")
    done = systemd("install")
    assert done.code == 1 and "Access denied" in done.err and "nothing was installed" in done.err, done
    assert list(systemd.units.iterdir()) == []


def test_where_there_is_no_systemd_the_crontab_has_one_line_a_queue(queue: Queue, tmp_path: Path) -> None:
    machine = Machine(queue, tmp_path, "crontab")
    machine.boot.says("table", "* * * * * mine\n")
    for _ in range(2):
        done = machine("install")
        assert done.code == 0 and "no systemctl" in done.err and "@reboot" in done.err, done
        assert "it is started at the next boot; to start it now: schedq up" in done.err, done
    mine, line = machine.boot.table.splitlines()
    assert mine == "* * * * * mine" and str(queue.home) in line
    done = machine("status")
    assert done.code == 0 and "@reboot" in done.out, done
    assert machine("status", SCHEDQ_ENVS="/elsewhere").code == 1
    queue.env["SCHEDQ_HOME"] = str(queue.home) + "2"
    assert machine("status").code == 1
    assert machine("install").code == 0 and len(machine.boot.table.splitlines()) == 3
    assert machine("remove").code == 0 and machine.boot.table == f"{mine}\n{line}\n"


def test_a_systemd_that_does_not_answer_is_said_and_cron_taken_or_the_call_given(queue: Queue, tmp_path: Path) -> None:
    machine = Machine(queue, tmp_path, "systemctl", "loginctl", "crontab")
    machine.boot.says("no-bus")
    done = machine("install")
    assert done.code == 0 and "No medium found" in done.err and "@reboot" in machine.boot.table, done
    (machine.boot.bin / "crontab").unlink()
    done = machine("install", "--cron")
    assert done.code == 1 and f"SCHEDQ_HOME={queue.home}" in done.err and done.err.rstrip().endswith(" up"), done


def test_a_system_unit_is_printed_with_its_user_and_what_root_is_to_do(systemd: Machine) -> None:
    done = systemd("install", "--system")
    name = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
    assert done.code == 0 and of_unit(done.out, "User") == [name], done
    assert environment_of(done.out)["SCHEDQ_HOME"] == str(systemd.queue.home)
    assert "sudo tee /etc/systemd/system/schedq-" in done.err and "daemon-reload" in done.err
    assert systemd.boot.calls == [] and not systemd.units.exists()
    assert systemd("install", "--system", "--cron").code == 2


def test_what_is_not_written_down_is_named(systemd: Machine) -> None:
    done = systemd("install", HF_TOKEN="hunter2", https_proxy="http://u:hunter2@p")
    assert done.code == 0 and "HF_TOKEN" in done.err and "https_proxy" in done.err, done
    assert "hunter2" not in done.err and "hunter2" not in systemd.unit.read_text()


def test_the_program_that_is_called_is_the_one_that_is_started(systemd: Machine) -> None:
    script = Path(sys.executable).parent / "schedq"
    if not script.exists():
        pytest.skip("schedq is not installed beside this interpreter")
    done = subprocess.run(
        [script, "service", "install", "--system"], env=systemd.queue.env, capture_output=True, text=True
    )
    assert systemd_words(of_unit(done.stdout, "ExecStart")[0], command=True) == [
        str(script),
        "serve",
        "--supervised",
    ], done


@contextmanager
def started(systemd: Machine) -> Iterator[subprocess.Popen[bytes]]:
    """What the system unit starts, as the init system would, until the block ends."""
    text = systemd("install", "--system").out
    words = systemd_words(of_unit(text, "ExecStart")[0], command=True)
    env = {**environment_of(text), "HOME": systemd.queue.env["HOME"]}
    service = subprocess.Popen(words, env=env, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: systemd.queue.scheduler_pid() == service.pid, what="the scheduler is up")
        yield service
    finally:
        service.kill()
        service.wait()


def test_what_the_unit_starts_is_this_queues_scheduler_and_stopping_it_leaves_the_workers(systemd: Machine) -> None:
    queue = systemd.queue
    queue.provider()
    with started(systemd) as service:
        assert queue("run", "echo", queue.input()).code == 0
        workers = [process for process in queue.processes() if process.pid != service.pid]
        service.send_signal(signal.SIGTERM)  # what KillMode=process does
        assert service.wait(20) == 0
        assert workers and all(process.is_running() for process in workers)
    done = queue("run", "echo", queue.input(), timeout=90)
    assert done.code == 0 and done.json["count"] == 2, "the next scheduler adopted the warm worker"


def test_restart_under_a_service_keeps_the_process_that_the_service_manager_knows(systemd: Machine) -> None:
    queue = systemd.queue
    queue.provider()
    with started(systemd) as service:
        before = queue.status()["scheduler"]["since_at"]
        assert queue("run", "echo", queue.input()).code == 0
        done = queue("restart", timeout=90)
        assert done.code == 0 and f"up: scheduler {service.pid} serves" in done.err, done
        assert queue.scheduler_pid() == service.pid and queue.status()["scheduler"]["since_at"] > before
        done = queue("run", "echo", queue.input(), timeout=90)
        assert done.code == 0 and done.json["count"] == 2, "it adopted the warm worker"
        assert queue("down", "--now").code == 0
        assert service.wait(20) == 0, "down ends it, and no restart follows from success"


def test_what_the_crontab_starts_is_this_queues_scheduler(queue: Queue, tmp_path: Path) -> None:
    machine = Machine(queue, tmp_path, "crontab")
    assert machine("install", "--cron").code == 0
    env = {"HOME": queue.env["HOME"], "LOGNAME": "ada", "SHELL": "/bin/sh", "PATH": os.defpath}
    subprocess.run(
        ["/bin/sh", "-c", cron_command(machine.boot.table.strip())], check=True, cwd="/", env=env, timeout=60
    )
    assert queue.status()["scheduler"]["running"]
    assert "up: scheduler" in (queue.home / "scheduler.log").read_text()


def test_installing_while_a_scheduler_runs_leaves_it_alone(systemd: Machine) -> None:
    assert systemd.queue("up").code == 0
    pid = systemd.queue.scheduler_pid()
    done = systemd("install")
    assert done.code == 0 and "a scheduler runs already" in done.err, done
    assert systemd.boot.calls[-1] == f"systemctl --user enable {systemd.unit.name}"
    assert systemd.queue.scheduler_pid() == pid
