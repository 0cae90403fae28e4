"""Settings are of their kind and within their limits, or are named with their place, value and the fix."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler import catalog, config, settable
from scheduler.__main__ import answer
from scheduler.cli import lifecycle
from scheduler.cli.grammar import HIDDEN, NIGHT, TABLE
from scheduler.errors import UsageError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [each for each in os.environ if each.startswith("SCHEDQ_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("scheduler.config.SYSTEM_FILE", str(tmp_path / "etc" / "config.toml"))
    (tmp_path / "schedq").mkdir()
    return tmp_path / "schedq" / "config.toml"


def refusal() -> str:
    with pytest.raises(UsageError) as caught:
        config.settings()
    assert caught.value.exit_code == 2
    return str(caught.value)


WRONG = [
    ("reserve_host_gib", '"x"', "must be a number of GiB"),
    ("reserve_host_gib", "-50", "must be a number of GiB from 0 to 1073741824"),
    ("reserve_host_gib", "nan", "must be a number of GiB"),
    ("reserve_host_gib", "true", "must be a number of GiB"),
    ("reserve_host_gib", "[2.0]", "must be a number of GiB"),
    ("reserve_host_gib", "2024-01-01", "must be a number of GiB"),
    ("reserve_unified_gib", "inf", "must be a number of GiB"),
    ("reserve_device_gib", '""', "must be a number of GiB"),
    ("disk_reserve_gib", '"a"', "must be a number of GiB"),
    ("inputs_copy_max_gib", "-0.5", "must be a number of GiB"),
    ("log_max_mib", "nan", "must be a number of MiB"),
    ("log_max_mib", "0", "must be a number of MiB from 1"),
    ("input_max_mib", "-1", "must be a number of MiB from 0.000001 to 4096"),
    ("input_max_mib", "0", "must be a number of MiB"),
    ("input_max_mib", "1e400", "must be a number of MiB"),
    ("input_max_mib", "1e300", "must be a number of MiB"),
    ("overtake", "900", "must be a duration"),
    ("overtake", '"-5s"', "must be a duration"),
    ("auto_down", '"soon"', "must be a duration"),
    ("auto_down", f'"{"9" * 400}d"', "must be a duration"),
    ("strict", '"maybe"', "must be true or false"),
    ("unified", '"sometimes"', "must be auto, true or false"),
    ("allow_network_filesystem", "2", "must be true or false"),
    ("unattributed", '"theirs"', "must be charged or ours; "),
    ("unattributed", "true", "must be charged or ours"),
    ("reserves", '"host"', 'must be name=GiB, with commas between them, and "host" is not'),
    ("reserves", '"host=8,GPU-5d=x"', 'must be GiB from 0 to 1073741824 by name, and "GPU-5d" has "x"'),
    ("reserves", '"host=-1"', 'and "host" has "-1"'),
    ("reserves", '"host=nan"', 'and "host" has "nan"'),
    ("reserves", '"host=1e10"', "from 0 to 1073741824"),
    ("reserves", '"=8"', 'and "" has "8"'),
    ("reserves", '"host=8,host=9"', "one amount for each name, and host has two"),
]

WRONG_IN_A_FILE = [
    ("leave_alone = 7", "must be a list of names"),
    ("leave_alone = true", "must be a list of names"),
    ('leave_alone = [""]', 'must be a list of names, and "" is none'),
    ('leave_alone = ["a", true]', "and true is none"),
    ("leave_alone = [[1]]", "and [1] is none"),
    ("leave_alone = [0.5]", "and 0.5 is none"),
    ('leave_alone = ["a\\u001b"]', "is none"),
    ("reserves = 8", "must be a table of names and GiB"),
    ("[reserves]\nhost = true", 'and "host" has true'),
    ("[reserves]\nhost = inf", 'and "host" has Infinity'),
    ('[reserves]\nhost = "x"', 'and "host" has "x"'),
    ("[reserves.host]\ngib = 8", 'and "host" has {"gib": 8}'),
    ('[reserves]\nhost = 8\novertake = "5m"', "overtake is a setting of its own: write it above [reserves]"),
]


@pytest.mark.parametrize(("text", "says"), WRONG_IN_A_FILE, ids=[text for text, _ in WRONG_IN_A_FILE])
def test_a_wrong_part_of_a_list_or_a_table_is_named_with_the_fix(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    told = refusal()
    key = "leave_alone" if "leave_alone" in text else "reserves"
    assert told.startswith(f"{file}: {key} = ") and says in told
    fix = {"leave_alone": '["GPU-5d1f"]', "reserves": "{ host = 8 }"}[key]
    assert told.endswith(f"; write {key} = {fix}, or remove it")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", ()),
        ('["GPU-5d1f", " 0000:01:00.0 "]', ("GPU-5d1f", "0000:01:00.0")),
        ("[0, 1]", ("0", "1")),
        ('"card1, GPU-5d1f,"', ("card1", "GPU-5d1f")),
        ('""', ()),
    ],
)
def test_devices_to_leave_alone_are_a_list_in_a_file_and_words_in_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: tuple[str, ...]
) -> None:
    file.write_text(f"leave_alone = {text}\n")
    assert config.settings().words("leave_alone") == words
    file.unlink()
    monkeypatch.setenv("SCHEDQ_LEAVE_ALONE", ",".join(words))
    assert config.settings().words("leave_alone") == words


def test_reserves_are_a_table_in_a_file_and_pairs_in_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert config.settings().gib_by_name("reserves") == {}
    file.write_text('[reserves]\nhost = 8\n"GPU-5d1f" = 2.5\n"0000:01:00.0" = "0"\n')
    here = {"host": 8.0, "GPU-5d1f": 2.5, "0000:01:00.0": 0.0}
    assert config.settings().gib_by_name("reserves") == here
    monkeypatch.setenv("SCHEDQ_RESERVES", "host=8, GPU-5d1f=2.5 ,0000:01:00.0=0,")
    assert config.settings().gib_by_name("reserves") == here
    assert config.settings().origins["reserves"] == "$SCHEDQ_RESERVES"


def test_whether_a_setting_was_set_can_be_told(file: Path) -> None:
    file.write_text("reserve_device_gib = 0.5\n")
    origins = config.settings().origins
    assert (origins["reserve_device_gib"], origins["reserve_host_gib"]) == (str(file), "default")


@pytest.mark.parametrize(("key", "value", "says"), WRONG)
def test_a_wrong_setting_of_a_file_is_named_with_its_value_and_the_fix(
    file: Path, key: str, value: str, says: str
) -> None:
    file.write_text(f"{key} = {value}\n")
    told = refusal()
    assert told.startswith(f"{file}: {key} = ")
    assert says in told
    assert f"; write {key} = " in told
    assert len(told) < len(str(file)) + 300


@pytest.mark.parametrize(("key", "value", "says"), WRONG)
def test_a_wrong_setting_of_the_environment_is_named_with_its_variable(
    file: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: str, says: str
) -> None:
    variable = "SCHEDQ_" + key.upper()
    monkeypatch.setenv(variable, value.strip('"'))
    told = refusal()
    assert told.startswith(f"${variable} = ")
    assert says in told
    assert "or unset it" in told


def test_every_fault_is_told_at_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('reserve_host_gib = "x"\nlog_max_mb = 3\n')
    monkeypatch.setenv("SCHEDQ_STRICT", "perhaps")
    told = refusal().split("\n")
    assert len(told) == 3
    assert "unknown setting log_max_mb; did you mean log_max_mib?" in "\n".join(told)


@pytest.mark.parametrize("value", ["0", "2", "2.5", '"2.5"', "1048576"])
def test_a_number_within_its_limits_is_taken(file: Path, value: str) -> None:
    file.write_text(f"reserve_host_gib = {value}\n")
    assert config.settings().number("reserve_host_gib") == float(value.strip('"'))


def test_every_number_has_its_limits_and_the_defaults_are_within_them(file: Path) -> None:
    assert config.settings().values == config.DEFAULTS
    assert {key for key, value in config.DEFAULTS.items() if type(value) in (int, float)} == set(settable.LIMITS)


def test_what_the_environment_overrides_is_not_asked_of_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('reserve_host_gib = "x"\n')
    monkeypatch.setenv("SCHEDQ_RESERVE_HOST_GIB", "3")
    assert config.settings().number("reserve_host_gib") == 3.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = " + "9" * 5000, "line 1: a: a whole number of 5000 digits"),
        ("a = 0x" + "f" * 4000, "a: a whole number of more than 64 bits"),
        ("a = 9223372036854775808", "a: a whole number of more than 64 bits"),
        ("a = " + "[" * 20_000, "nested too deep"),
        (".".join("a" * 30_000) + " = 1", "nested too deep"),
        ("a = 1\x00", "not TOML"),
        ("a", "not TOML"),
        ("a = '" + "x" * (1 << 20) + "'", "and may have 1048576"),
    ],
    ids=range(8),
)
def test_a_file_that_cannot_be_taken_in_is_refused_in_words(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    told = refusal()
    assert told.startswith(f"{file}: ")
    assert says in told
    assert len(told) < len(str(file)) + 300


def test_bytes_that_are_no_text_are_refused_in_words(file: Path) -> None:
    file.write_bytes(b"strict = \xff")
    assert "byte 9 is not UTF-8" in refusal()


def test_a_pipe_a_folder_a_device_a_circle_and_a_dead_link_are_named_for_what_they_are(file: Path) -> None:
    os.mkfifo(file)
    assert f"{file}: is a pipe" in refusal()
    file.unlink()
    file.mkdir()
    assert f"{file}: is a folder" in refusal()
    file.rmdir()
    for target, says in (("/dev/zero", "is a device"), (file.name, "in a circle"), ("gone", "which is not there")):
        file.symlink_to(target)
        assert says in refusal()
        file.unlink()
    assert config.settings()


def test_a_setting_asked_for_by_itself_is_a_finite_number() -> None:
    for value in ("nan", "x", "1e999"):
        wrong = config.Settings({"log_max_mib": value}, {"log_max_mib": "/some/file"}, {})
        with pytest.raises(UsageError, match="/some/file"):
            wrong.number("log_max_mib")


@pytest.mark.parametrize("text", ["9" * 400 + "d", "1e400s", "40000d", "999999999h"])
def test_a_duration_has_an_end(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        config.duration_s(text)
    assert len(str(caught.value)) < 200


def test_what_is_odd_in_a_configuration_without_faults_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('[providers.fold]\nthreads = 2\n[providers.fodl]\nthreads = 2\n[providers."zz:big"]\nthreads = 1\n')
    told = config.check(["fold", "other"])
    assert [f"{file}: [providers.fodl]" in each for each in told] == [True, False]
    assert "did you mean fold?" in told[0]
    assert "[providers.zz:big]" in told[1]
    assert "known: fold, other" in told[1]
    assert config.check() == []
    file.write_text("strict = 7\n")
    with pytest.raises(UsageError, match="strict = 7"):
        config.check()


@pytest.mark.parametrize(
    ("name", "near"),
    [("SCHEDQ_STRCT", "SCHEDQ_STRICT"), ("SCHEDQ_RESERVE_HOST_GB", "SCHEDQ_RESERVE_HOST_GIB"),
     ("SCHEDQ_MANIFEST", "SCHEDQ_MANIFESTS"), ("SCHEDQ_ENV", "SCHEDQ_ENVS")],
)  # fmt: skip
def test_a_variable_that_is_a_slip_is_the_error_that_it_is_in_a_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, near: str
) -> None:
    catalog.load(config.Paths(str(tmp_path / "home")))
    monkeypatch.setenv(name, "1")
    for read in (config.settings, lambda: catalog.load(config.Paths(str(tmp_path / "home")))):
        with pytest.raises(UsageError, match=rf"\${name}: unknown setting; did you mean {near}\?"):
            read()


@pytest.mark.parametrize("name", ["SCHEDQ_TOKEN", "SCHEDQ_TEST_ENVS", "SCHEDQ_DEBUG", "SCHEDQ_CHARGE_DEVICE_GIB"])
def test_a_variable_that_is_far_from_ours_is_no_fault(file: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    config.settings()


@pytest.mark.parametrize(
    ("kind", "told"),
    [("away", "which is not there; make it, or correct the path"), ("file", "which is no folder"),
     ("own", "which is a provider's own folder; name the folder above it, {above}"),
     ("empty", "and no folder in it has a provider.toml")],
)  # fmt: skip
def test_a_folder_where_no_provider_can_be_found_is_told_with_the_way_out(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], kind: str, told: str
) -> None:
    folder = tmp_path / "some" / kind
    folder.parent.mkdir()
    if kind == "file":
        folder.touch()
    elif kind != "away":
        folder.mkdir()
        (folder / ("provider.toml" if kind == "own" else "other")).touch()
    monkeypatch.setenv("SCHEDQ_MANIFESTS", str(folder))
    monkeypatch.setenv("SCHEDQ_HOME", str(tmp_path / "home"))
    told = f"SCHEDQ_MANIFESTS names {folder}, {told.format(above=folder.parent)}"
    monkeypatch.setattr(lifecycle, "_say_up", lambda *_: None)
    monkeypatch.setattr(lifecycle.starting, "succeed", lambda *_: {})
    for words in (["providers", "list"], ["providers", "check"], ["up"]):
        code, _ = answer(words)
        assert code == 0 and f"warning: {told}" in capfd.readouterr().err
    assert answer(["run", "nobody", "--example"])[0] == 2 and told in capfd.readouterr().err


def test_a_folder_with_providers_is_nothing_odd(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert catalog.odd_folders([config.manifest_folders()[0]]) == []


def schedq(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scheduler", *words], env={**os.environ, "SCHEDQ_HOME": str(home)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("text", ['reserve_host_gib = "x"', "log_max_mib = nan", "a = " + "9" * 5000], ids=range(3))
@pytest.mark.parametrize("verb", ["config show", "up", "providers list"])
def test_a_call_that_reads_a_wrong_setting_ends_with_two_and_names_the_file(
    file: Path, tmp_path: Path, text: str, verb: str
) -> None:
    file.write_text(text)
    done = schedq(*verb.split(), home=tmp_path / "home")
    assert done.returncode == 2
    assert str(file) in done.stderr
    assert "fault of schedq" not in done.stderr


@pytest.mark.parametrize("verb", ["config show", "providers check"])
def test_a_section_of_a_provider_that_is_not_there_is_told(file: Path, tmp_path: Path, verb: str) -> None:
    file.write_text("[providers.capitii]\nthreads = 2\n")
    done = schedq(*verb.split(), home=tmp_path / "home")
    assert done.returncode == 0
    assert f"{file}: [providers.capitii] has no effect: no provider capitii; did you mean capiti?" in done.stderr


def flagged() -> dict[str, list[str]]:
    """Each setting that a flag of the command line can give for one call -> the verbs that have the flag."""
    found: dict[str, list[str]] = {}
    for verb in TABLE:
        for option in verb.options if verb.panel != HIDDEN else ():
            if option.key in settable.DEFAULTS:
                found.setdefault(option.key, []).append(verb.name)
    return found


def test_a_flag_wins_over_the_environment_and_that_over_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert flagged() == {"overtake": ["simulate"], "strict": ["simulate"]}
    used: list[tuple[float, bool]] = []

    def noted(_trace: object, *, overtake_s: float, strict: bool, learned: bool) -> dict[str, object]:
        used.append((overtake_s, strict))
        raise UsageError("seen")

    monkeypatch.setattr("scheduler.simulate.night.simulate", noted)
    night = file.parent / "night.json"
    night.write_text(NIGHT)
    file.write_text('overtake = "3m"\n')
    answer(["simulate", str(night)])
    monkeypatch.setenv("SCHEDQ_OVERTAKE", "2m")
    answer(["simulate", str(night)])
    answer(["simulate", str(night), "--overtake", "1m"])
    monkeypatch.setenv("SCHEDQ_STRICT", "true")
    answer(["simulate", str(night)])
    answer(["simulate", str(night), "--overtake", "1m"])
    assert used == [(180.0, False), (120.0, False), (60.0, False), (120.0, True), (60.0, False)]


def test_what_to_write_instead_is_a_right_value_that_says_something(file: Path) -> None:
    """Whatever is wrong, the value that is shown can be copied: it is taken, and it is not the empty one."""
    for key, default in config.DEFAULTS.items():
        in_file, in_environment = settable.EXAMPLES.get(key) or (settable.shown(default), default)
        assert in_file not in ('""', "[]", "{}") and in_environment not in ("", [], {}), key
        file.write_text(f"{key} = {in_file}\n")
        assert config.settings().values[key] is not None
    file.write_text('notify_command = ["sh", "-c", "s3cret"]\n')
    assert refusal() == (
        f'{file}: notify_command = "sh ...": must be a command as one text, quotes closed; write notify_command ='
        ' "notify-send schedq", or remove it'
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1", "http://[::1]:x/", "http://h:99999/", "http://h:port/", "http://h:0/", "http://:80/", "https://[/x",
        "http://..", "http://a..b/", f"http://{'a' * 70}.org/", "https://[v1.x]x/",
    ],
)  # fmt: skip
def test_an_address_that_nothing_can_be_sent_to_is_refused_when_it_is_read(file: Path, url: str) -> None:
    file.write_text(f'notify_url = "{url}"\n')
    assert "notify_url = " in refusal() and "must be an address, https://HOST/PATH, or env:NAME" in refusal()


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1]:8080/x", "https://h", "https://h:443/a?b=c#d", "http://127.0.0.1:9/", "env:HOOK", "${HOOK}",
        "${HOOK}://x", "https://hooks.example.org/${A}/${B}", "https://${HOST}/x", "HTTP://b\u00fccher.example/",
    ],
)  # fmt: skip
def test_an_address_that_can_be_called_is_taken(file: Path, url: str) -> None:
    file.write_text(f'notify_url = "{url}"\n')
    assert config.settings().text("notify_url") == url
