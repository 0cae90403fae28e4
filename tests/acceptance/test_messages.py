"""Every bad input: one clear message on stderr, the right exit code, nothing on stdout, nothing queued."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from driven import Done, Queue

MSA = '[input]\naccept = [".json"]\nfiles = ["/msa"]\n'


def _write(queue: Queue, name: str, content: bytes | str) -> str:
    path = queue.folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def _misspelled(queue: Queue) -> Done:
    return queue("submit", "ehco", queue.input())


def _broken_manifest(queue: Queue) -> Done:
    folder = queue.provider("broken")
    (folder / "provider.toml").write_text(
        (folder / "provider.toml").read_text().replace("ram_budget_gb = 0.1", "ram_budget_gb = 'much'")
    )
    return queue("submit", "broken", queue.input())


def _wrong_kind(queue: Queue) -> Done:
    return queue("submit", "echo", _write(queue, "model.pdb", "ATOM"))


def _unparsable(queue: Queue) -> Done:
    return queue("submit", "echo", _write(queue, "a.json", '{"say": "x",\n "y": }'))


def _against_the_schema(queue: Queue) -> Done:
    return queue("submit", "echo", _write(queue, "a.json", '{"say": 1}'))


def _names_a_file_that_is_not_there(queue: Queue) -> Done:
    folder = queue.provider("msa")
    text = (folder / "provider.toml").read_text()
    (folder / "provider.toml").write_text(text[: text.index("[input]")] + MSA)
    return queue("submit", "msa", _write(queue, "a.json", '{"msa": "gone.a3m"}'))


def _missing_file(queue: Queue) -> Done:
    return queue("submit", "echo", str(queue.folder / "gone.json"))


def _glob_without_match(queue: Queue) -> Done:
    return queue("submit", "echo", str(queue.folder / "night" / "*.json"))


def _directory(queue: Queue) -> Done:
    (queue.folder / "d.json").mkdir()
    return queue("submit", "echo", str(queue.folder / "d.json"))


def _two_hundred_megabytes(queue: Queue) -> Done:
    path = queue.folder / "big.json"
    with path.open("wb") as file:
        file.truncate(200 << 20)
    return queue("submit", "echo", str(path))


def _not_utf8(queue: Queue) -> Done:
    return queue("submit", "echo", _write(queue, "a.json", b'{"say": "\xff\xfe"}'))


def _unknown_parameter(queue: Queue) -> Done:
    return queue("submit", "echo", queue.input(), "--param", "laud=true")


def _parameter_of_a_wrong_type(queue: Queue) -> Done:
    return queue("submit", "echo", queue.input(), "--param", "loud=maybe")


def _destination_exists(queue: Queue) -> Done:
    (queue.folder / "there").mkdir()
    return queue("submit", "echo", queue.input(), "--out", "there")


def _one_destination_for_two(queue: Queue) -> Done:
    return queue("submit", "echo", queue.input("a.json"), queue.input("b.json"), "--out", "same")


def _unknown_word_in_out(queue: Queue) -> Done:
    return queue("submit", "echo", queue.input(), "--out", "x/{nmae}")


def _no_input(queue: Queue) -> Done:
    return queue("submit", "echo")


def _duration_without_unit(queue: Queue) -> Done:
    return queue("submit", "echo", queue.input(), "--timeout", "90")


def _unknown_option(queue: Queue) -> Done:
    return queue("submit", "echo", queue.input(), "--priorty", "3")


def _no_such_job(queue: Queue) -> Done:
    queue("submit", "echo", queue.input())
    done = queue("show", "99")
    assert queue("cancel", "1").code == 0
    return done


def _no_such_result(queue: Queue) -> Done:
    return queue("result", "7")


def _no_job_id(queue: Queue) -> Done:
    return queue("show", "seven")


def _key_of_another_request(queue: Queue) -> Done:
    queue("submit", "echo", queue.input("a.json", say="one"), "--key", "k")
    done = queue("submit", "echo", queue.input("a.json", say="two"), "--key", "k")
    assert queue("cancel", "1").code == 0
    return done


def _backup_into_a_folder_that_is_not_there(queue: Queue) -> Done:
    queue("submit", "echo", queue.input())
    assert queue("cancel", "1").code == 0
    return queue("db", "backup", "/nodir/x")


TABLE: list[tuple[Callable[[Queue], Done], int, list[str]]] = [
    (_misspelled, 2, ["ehco", "echo"]),
    (_broken_manifest, 2, ["provider.toml", "ram_budget_gb"]),
    (_wrong_kind, 3, ["model.pdb", ".json"]),
    (_unparsable, 3, ["a.json", "line 2", "column 7"]),
    (_against_the_schema, 3, ["a.json", "/say"]),
    (_names_a_file_that_is_not_there, 3, ["gone.a3m", "/msa"]),
    (_missing_file, 2, ["gone.json"]),
    (_glob_without_match, 2, ["*.json"]),
    (_directory, 2, ["d.json", "folder"]),
    (_two_hundred_megabytes, 3, ["big.json", "200", "64"]),
    (_not_utf8, 3, ["a.json", "UTF-8"]),
    (_unknown_parameter, 2, ["laud", "loud"]),
    (_parameter_of_a_wrong_type, 2, ["loud", "maybe"]),
    (_destination_exists, 3, ["there", "--overwrite"]),
    (_one_destination_for_two, 3, ["a.json", "b.json", "{name}"]),
    (_unknown_word_in_out, 2, ["{nmae}", "{name}"]),
    (_no_input, 2, ["INPUT", "--example"]),
    (_duration_without_unit, 2, ["--timeout", "90s"]),
    (_unknown_option, 2, ["--priorty", "--priority"]),
    (_no_such_job, 4, ["no job 99"]),
    (_no_such_result, 4, ["no job 7"]),
    (_key_of_another_request, 3, ["'k'", "schedq show 1"]),
    (_backup_into_a_folder_that_is_not_there, 2, ["no folder /nodir"]),
    (_no_job_id, 2, ["seven", "last"]),
]


@pytest.mark.parametrize(("call", "code", "told"), TABLE, ids=lambda each: getattr(each, "__name__", None))
def test_a_bad_call_is_answered_by_one_message_and_its_exit_code(
    queue: Queue, call: Callable[[Queue], Done], code: int, told: list[str]
) -> None:
    queue.provider()
    done = call(queue)
    assert done.code == code, done
    assert done.out == ""
    assert done.err.startswith("schedq: ") and "Traceback" not in done.err, done
    for word in told:
        assert word in done.err, done
    assert [job for job in queue.status()["jobs"] if job["state"] != "cancelled"] == []


def test_all_bad_inputs_of_a_call_are_named_and_nothing_is_queued(queue: Queue) -> None:
    queue.provider()
    bad, worse = _write(queue, "bad.json", '{"say": 1}'), _write(queue, "worse.json", "{")
    done = queue("submit", "echo", queue.input("good.json"), bad, worse)
    assert done.code == 3 and done.out == ""
    assert "2 of 3" in done.err and "bad.json" in done.err and "worse.json" in done.err and "good.json" not in done.err
    assert queue.status()["jobs"] == []


def test_every_missing_file_of_a_call_is_named(queue: Queue) -> None:
    queue.provider()
    done = queue("submit", "echo", "one.json", "two.json")
    assert done.code == 2 and "one.json" in done.err and "two.json" in done.err


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(queue: Queue) -> None:
    queue.provider()
    queue("submit", "echo", queue.input())
    with sqlite3.connect(queue.home / "queue.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    before = (queue.home / "queue.db").read_bytes()
    for words in (["submit", "echo", queue.input()], ["status"], ["up"]):
        done = queue(*words)
        assert done.code == 3 and "9999" in done.err and "later" in done.err, done
    assert (queue.home / "queue.db").read_bytes() == before


def test_a_corrupt_database_is_refused_and_left_as_it_is(queue: Queue) -> None:
    queue.provider()
    queue("submit", "echo", queue.input())
    path = queue.home / "queue.db"
    for rest in queue.home.glob("queue.db-*"):
        rest.unlink()
    path.write_bytes(b"This is no database at all. " * 1000)
    before = path.read_bytes()
    for words in (["submit", "echo", queue.input()], ["status"], ["show", "1"]):
        done = queue(*words)
        assert done.code == 3 and "queue.db" in done.err and "left as it is" in done.err, done
    assert path.read_bytes() == before


def test_a_full_disk_is_temporary(queue: Queue) -> None:
    queue.provider()
    queue("status")
    done = subprocess.run(
        queue.command("submit", "echo", queue.input()), env=queue.env, cwd=queue.folder, capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048)),
    )  # fmt: skip
    assert done.returncode == 75, done
    assert str(queue.home) in done.stderr and done.stdout == ""
    assert queue("submit", "echo", queue.input()).code == 0


def test_a_read_only_home_is_temporary_and_says_what_to_make_writable(queue: Queue) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"]).returncode:
        pytest.skip("needs a mount namespace of its own")
    queue.provider()
    queue("submit", "echo", queue.input())
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    words = [
        "unshare",
        "-m",
        "sh",
        "-c",
        script,
        "sh",
        str(queue.home),
        *queue.command("submit", "echo", queue.input()),
    ]
    done = subprocess.run(words, env=queue.env, cwd=queue.folder, capture_output=True, text=True)
    assert done.returncode == 75, done
    assert str(queue.home) in done.stderr and "Traceback" not in done.stderr


def test_stdout_that_is_full_is_temporary_and_the_id_is_on_stderr(queue: Queue) -> None:
    queue.provider()
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            queue.command("submit", "echo", queue.input()), env=queue.env, cwd=queue.folder, stdout=full,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 75
    assert "queued as 1" in done.stderr
    assert queue.show(1)["state"] == "queued"


def test_a_reader_that_has_gone_is_no_reason_to_complain(queue: Queue) -> None:
    queue.provider()
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        queue.command("status"), env=queue.env, cwd=queue.folder, stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert done.returncode == 141
    assert done.stderr == ""


def test_a_home_on_a_network_filesystem_is_refused(queue: Queue) -> None:
    queue.provider()
    patched = (
        "from scheduler.store import folders; import sys\n"
        "folders.NETWORK = frozenset({folders.mount_of(sys.argv.pop(1))[1]})\n"
        "from scheduler.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", patched, str(queue.home), "submit", "echo", queue.input()],
        env=queue.env, cwd=queue.folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 3, done
    assert "network filesystem" in done.stderr and "SCHEDQ_HOME" in done.stderr and done.stdout == ""


def test_paths_with_blanks_and_newlines_are_taken_as_they_are(queue: Queue, tmp_path: Path) -> None:
    queue.provider()
    odd = tmp_path / "a b\nc #?% ü"
    odd.mkdir()
    source = odd / " in\nput .json"
    source.write_text(json.dumps({"say": "x"}))
    done = queue("submit", "echo", str(source), SCHEDQ_HOME=str(odd / "home"))
    assert done.code == 0 and done.out == "1\n", done
    page = queue("status", SCHEDQ_HOME=str(odd / "home"))
    assert page.code == 0 and r" in\nput" in page.out, page
    missing = queue("submit", "echo", str(odd / "gone.json"))
    assert missing.code == 2 and "gone.json" in missing.err


def test_a_message_holds_no_control_characters_of_a_name(queue: Queue) -> None:
    queue.provider()
    done = queue("submit", "echo", "\x1b[2Jgone.json")
    assert done.code == 2 and "\x1b" not in done.err


def test_every_fault_of_a_broken_manifest_has_a_line_of_its_own(queue: Queue) -> None:
    folder = queue.provider("broken")
    text = (folder / "provider.toml").read_text().replace("ram_budget_gb = 0.1", "ram_budget_gb = 'much'")
    (folder / "provider.toml").write_text(text.replace("idle_timeout_s = 600", "idle_timeout_s = 'long'"))
    done = queue("providers", "check", "broken", COLUMNS="80")
    assert done.code == 2 and "\\n" not in done.out, done
    assert "ram_budget_gb" in done.out and "idle_timeout_s" in done.out
