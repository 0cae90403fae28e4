"""What is written so that a scheduler comes up with the machine, read as systemd and cron read it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from bootfakes import Boot, cron_command, environment_of, of_unit, systemd_words

from scheduler.errors import SchedqError, UsageError
from scheduler.host import boot, units

ODD = ["/srv/q", "/srv/a queue", "/srv/100%h", '/srv/"so"', "/srv/it's", "/srv/$HOME", "/srv/früh/夜", "/srv/;#&|*"]
ODD_TO_CRON = ["/srv/back\\slash", "/srv/end\\"]


def start(home: str = "/srv/q", words: tuple[str, ...] = ("/opt/bin/schedq",), **env: str) -> units.Start:
    return units.start_of(home, words, {"SCHEDQ_HOME": home, "PATH": "/usr/bin", **env}, "ada")


@pytest.mark.parametrize("home", [*ODD, *ODD_TO_CRON])
def test_systemd_reads_the_paths_of_a_unit_as_they_are(home: str) -> None:
    text = units.unit(start(home, (f"{home}/bin/schedq",), SCHEDQ_MANIFESTS=f"{home}/m:/n"), system=True)
    assert environment_of(text) == {"SCHEDQ_HOME": home, "SCHEDQ_MANIFESTS": f"{home}/m:/n", "PATH": "/usr/bin"}
    words = systemd_words(of_unit(text, "ExecStart")[0], command=True)
    assert words == (["/usr/bin/env"] if "$" in home else []) + [f"{home}/bin/schedq", "serve", "--supervised"]
    assert "$" not in words[0]
    assert systemd_words(of_unit(text, "RequiresMountsFor")[0]) == [home]
    assert of_unit(text, "ConditionPathIsDirectory") == ([] if home.endswith("\\") else [home.replace("%", "%%")])
    assert not any(line.endswith("\\") for line in text.splitlines())
    assert units.home_of(text) == home


@pytest.mark.parametrize("home", [*ODD, *ODD_TO_CRON])
def test_systemds_own_check_finds_nothing_odd_in_a_unit(home: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    path = tmp_path / "schedq.service"
    path.write_text(units.unit(start(home, ("/bin/true",)), system=True))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_stopping_the_unit_leaves_the_workers_and_a_scheduler_that_failed_is_started_again() -> None:
    text = units.unit(start(), system=True)
    for line in ("KillMode=process", "OOMPolicy=continue", "Restart=on-failure", "User=ada", "Type=simple"):
        assert line in text.splitlines()
    assert of_unit(text, "WantedBy") == ["multi-user.target"]
    own = units.unit(start(), system=False)
    assert "User=" not in own and of_unit(own, "WantedBy") == ["default.target"]


@pytest.mark.parametrize("home", ODD)
def test_cron_and_the_shell_read_the_paths_of_a_line_as_they_are(home: str, tmp_path: Path) -> None:
    home = str(tmp_path) + home
    os.makedirs(f"{home}/bin")
    program = Path(home, "bin", "schedq")
    program.write_text('#!/bin/sh\necho "$1|$SCHEDQ_HOME|$SCHEDQ_MANIFESTS|$PATH"\n')
    program.chmod(0o755)
    line = units.cron_line(start(home, (str(program),), SCHEDQ_MANIFESTS=f"{home}/m"))
    assert "\n" not in line
    subprocess.run(["/bin/sh", "-c", cron_command(line)], check=True, env={}, cwd="/")
    assert Path(home, "scheduler.log").read_text() == f"up|{home}|{home}/m|/usr/bin\n"


def test_what_no_line_can_hold_is_refused_by_name() -> None:
    for home in ODD_TO_CRON:
        with pytest.raises(UsageError, match="backslash"):
            units.cron_line(start(home))
    with pytest.raises(UsageError, match="shorten PATH"):
        units.cron_line(start(PATH="/bin:" * 300))
    for home in ("/srv/two\nlines", "/srv/\x1b", os.fsdecode(b"/srv/\xff")):
        with pytest.raises(UsageError, match="the queue's folder is"):
            start(home)
    with pytest.raises(UsageError, match="SCHEDQ_ENVS is"):
        start(SCHEDQ_ENVS="/a\nb")


def test_only_places_and_settings_are_written_down_never_a_token() -> None:
    text = units.unit(
        start(HF_TOKEN="hf_x", https_proxy="http://u:secret@p", SCHEDQ_OVERTAKE="5m", LD_LIBRARY_PATH="/cuda"),
        system=True,
    )
    assert environment_of(text).keys() == {"SCHEDQ_HOME", "PATH", "SCHEDQ_OVERTAKE", "LD_LIBRARY_PATH"}
    assert "hf_x" not in text and "secret" not in text


def test_a_unit_is_named_after_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert units.name_of("/home/ada/.local/state/schedq") == "schedq.service"
    one, other = units.name_of("/srv/one"), units.name_of("/srv/other")
    assert one != other and one.startswith("schedq-") and len(one) == len("schedq-12345678.service")


def test_a_text_that_we_did_not_write_belongs_to_no_queue() -> None:
    for text in ("", "[Unit]\n", "# schedq-service\n", '# schedq-service {"a": 1}\n', '\n# schedq-service "/srv/q"\n'):
        assert units.home_of(text) is None


def test_a_unit_and_a_line_differ_by_the_settings_that_count() -> None:
    for write in (lambda made: units.unit(made, system=False), units.cron_line):
        there = write(start())
        assert units.differences(there, write(start(PATH="/other/bin", LANG="de_DE.UTF-8"))) == []
        assert units.differences(there, write(start(SCHEDQ_ENVS="/e"))) == ["SCHEDQ_ENVS"]
        [program] = units.differences(there, write(start(words=("/new/bin/schedq",))))
        assert program in ("ExecStart", "command")


@pytest.fixture
def cron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Boot:
    made = Boot(tmp_path, "crontab")
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    return made


def test_a_crontab_keeps_every_other_line_to_the_letter(cron: Boot) -> None:
    others = "\n# mine\n\n*/5 * * * * date\\%s  # x\x0c\n@reboot schedq up # schedq-service 00000000\nlast"
    cron.says("table", others)
    assert boot.change_crontab("/srv/q", units.cron_line(start()))
    assert cron.table == f"{others}\n{units.cron_line(start())}\n"
    assert not boot.change_crontab("/srv/q", units.cron_line(start()))
    assert boot.change_crontab("/srv/q", units.cron_line(start(PATH="/new")))
    assert cron.table == f"{others}\n{units.cron_line(start(PATH='/new'))}\n"
    assert boot.change_crontab("/srv/q", "")
    assert cron.table == f"{others}\n"


def test_a_crontab_that_cannot_be_read_is_never_overwritten(cron: Boot) -> None:
    cron.says("table", "* * * * * mine\n")
    cron.says("crontab.fails")
    with pytest.raises(SchedqError, match="you may not; nothing was changed"):
        boot.change_crontab("/srv/q", units.cron_line(start()))
    assert cron.calls == ["crontab -l"] and cron.table == "* * * * * mine\n"


def test_a_program_that_does_not_end_is_not_waited_for_for_ever(cron: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    (cron.bin / "crontab").write_text("#!/bin/sh\nread nothing < /dev/zero\n")
    monkeypatch.setattr(boot, "PATIENCE_S", 0.2)
    with pytest.raises(SchedqError, match="has not ended"):
        boot.crontab()
