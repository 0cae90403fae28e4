"""What `doctor` says of facts: each warning from facts that are made, and that what is well is not warned of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.rules import health, health_queue
from scheduler.rules.health import Card, Clock, Disk, Finding, Kernel, Login, Place, Platform, Sockets
from scheduler.rules.health_queue import Database, Failing, Installed, Service, Setup

GOOD_PLATFORM = Platform("6.8.0-45-generic", (3, 12, 1), (3, 51, 3))
GOOD_PLACE = Place("/q", "/", "ext4", False)
GOOD_SOCKETS = Sockets("/q/run", 40, 107, True, True, True)
GOOD_KERNEL = Kernel("", (), 0.0, 0.0, 4096, 1 << 20, None)
SERVED = Service(True, 7, "schedq serve", answers=True)


def warned(found: list[Finding]) -> list[tuple[str, str, str]]:
    return [(each.about, each.text, each.remedy) for each in found if each.status == "warn"]


def test_what_is_well_is_not_warned_of() -> None:
    found = [
        *health.platform(GOOD_PLATFORM), *health.place(GOOD_PLACE), *health.space([Disk("state", "/q", 100.0)]),
        *health.sockets(GOOD_SOCKETS), *health.linger(Login(False, "ada", None, False)), *health.kernel(GOOD_KERNEL),
        *health.clock(Clock(100.0, -3.0, True)), *health.cards([], [], "no accelerator"), *health.leftovers([]),
        *health_queue.service(SERVED), *health_queue.database(Database(True, 1 << 20, 0, True)),
        *health_queue.providers([Installed("boltz")]), *health_queue.setup(Setup()), *health_queue.failing(Failing()),
    ]  # fmt: skip
    assert warned(found) == [] and len(found) > 15


@pytest.mark.parametrize(
    ("version", "faulty"),
    [((3, 40, 1), True), ((3, 44, 6), False), ((3, 45, 0), True), ((3, 50, 7), False), ((3, 51, 2), True),
     ((3, 51, 3), False), ((3, 6, 23), False)],
)  # fmt: skip
def test_the_fault_of_sqlite_is_told_by_version(version: tuple[int, int, int], faulty: bool) -> None:
    found = health.platform(replace(GOOD_PLATFORM, sqlite=version))
    assert ("the turnstile keeps" in found[-1].text) == faulty and warned(found) == []


def test_an_old_kernel_and_an_untried_python_are_warned_of() -> None:
    told = warned(health.platform(Platform("4.18.0-553.el8", (3, 10, 4), (3, 51, 3))))
    assert [about for about, *_ in told] == ["kernel", "python"]
    assert "pidfd_open" in told[0][2] and "3.11 to 3.13" in told[1][2]


@pytest.mark.parametrize(
    ("place", "text", "remedy"),
    [
        (replace(GOOD_PLACE, kind="nfs4", mount="/home", network=True), "network filesystem", "SCHEDQ_HOME"),
        (replace(GOOD_PLACE, read_only=True), "mounted read-only", "remount,rw /"),
        (replace(GOOD_PLACE, kind="tmpfs", mount="/tmp"), "gone with the next boot", "local disk"),
        (replace(GOOD_PLACE, kind=None, mount=None), "could not be told", "findmnt"),
        (replace(GOOD_PLACE, ours=False), "belongs to another user", "SCHEDQ_HOME"),
        (replace(GOOD_PLACE, mode=0o775), "can be changed by other users (mode 0775)", "chmod 700 /q"),
    ],
)
def test_a_place_where_a_queue_should_not_lie_is_warned_of(place: Place, text: str, remedy: str) -> None:
    [(_, said, do)] = warned(health.place(place))
    assert text in said and remedy in do


def test_a_disk_is_warned_of_with_its_figures_below_the_reserve_and_near_it() -> None:
    told = warned(
        health.space(
            [
                Disk("state", "/q", 3.2, 100.0, 5.0), Disk("work", "/w", 9.0, 100.0, 5.0), Disk("out", "/o", None),
                Disk("inputs", "/i", 50.0, 100.0, 5.0, 12), Disk("results", "/r", 50.0, 100.0, 5.0, 90_000),
            ]
        )
    )  # fmt: skip
    assert [said.partition(" (")[0] for _, said, _ in told] == ["state", "work", "out", "inputs"]
    assert "3.20 of 100.00 GiB free, and 5.00 GiB stay reserved: nothing starts" in told[0][1]
    assert "below that nothing starts any more" in told[1][1]
    assert told[0][2] == "schedq prune --older-than 30d --dry-run" and "12 more files" in told[3][1]


def test_sockets_that_cannot_be_bound_or_are_not_private_are_warned_of() -> None:
    assert "too long" in warned(health.sockets(replace(GOOD_SOCKETS, longest=120)))[0][1]
    assert "not a private folder" in warned(health.sockets(replace(GOOD_SOCKETS, private=False)))[0][1]
    assert "SCHEDQ_HOME is too long" in health.sockets(replace(GOOD_SOCKETS, beside=False))[0].text


def test_a_login_that_takes_the_scheduler_with_it_is_warned_of_where_systemd_runs() -> None:
    [(_, said, do)] = warned(health.linger(Login(True, "ada", False, False)))
    assert "last logout" in said and do == "loginctl enable-linger ada"
    for well in (Login(True, "ada", True, False), Login(True, "root", None, True)):
        assert warned(health.linger(well)) == []


def test_what_the_kernel_hides_and_limits_is_told() -> None:
    odd = Kernel("/proc is mounted with hidepid=2: ...", (("/sys/fs/cgroup/a", 8.0, ""), ("/b", None, "denied")), 4.0, 3.5, 256, 4096, None)  # fmt: skip  # noqa: E501
    found = health.kernel(odd)
    told = {about: (said, do) for about, said, do in warned(found)}
    assert set(told) == {"cgroup", "hidepid", "swap", "ulimits"}
    assert told["cgroup"][0] == "/b: denied" and told["ulimits"][1] == "ulimit -n 4096 before schedq up"
    assert "3.50 of 4.00 GiB in use" in told["swap"][0]
    assert any(each.text == "memory is limited to 8.00 GiB by /sys/fs/cgroup/a" for each in found)
    assert warned(health.kernel(replace(GOOD_KERNEL, swap_gib=None))) != []


def test_a_clock_that_was_set_back_is_warned_of() -> None:
    [(_, said, do)] = warned(health.clock(Clock(60.0, 3600.0, False)))
    assert "1h 00m ahead" in said and "timedatectl" in do
    assert "not known to be synchronised" in health.clock(Clock(60.0, None, False))[0].text


def test_each_device_has_its_class_and_its_reason() -> None:
    found = health.cards(
        [
            Card("H200", "0000:01:00.0", "own", 139.8, "its driver tells the total: nvml"),
            Card("GB10", "", "unified", None, "integrated, and its driver has no total"),
            Card("RTX", "", "left_alone", 24.0), Card("odd", "", "unknown", None, "its driver has no such figure"),
        ],
        ["/dev/nvidia0: the driver did not answer in 15 s"],
    )  # fmt: skip
    assert [each.about for each in found] == ["driver", "device", "device", "device", "device"]
    assert found[1].text.startswith("H200 at 0000:01:00.0, 139.80 GiB: memory of its own (its driver tells")
    assert found[2].text == "GB10: shares the machine's memory (integrated, and its driver has no total)"
    assert [about for about, *_ in warned(found)] == ["driver", "device"] and "unified = true" in found[4].remedy


def test_what_hangs_and_what_is_in_the_way_are_told_apart() -> None:
    assert "ask again" in health.missed("device", "it did not answer in 10 s").remedy
    assert "correct that" in health.missed("device", "no such setting", hangs=False).remedy


def test_leftovers_are_told_once_for_each_kind() -> None:
    copied = "a file that was half copied"
    [first, second] = health.leftovers(
        [(copied, "/c/1"), (copied, "/c/2"), ("a folder of a worker that is gone", "/w")]
    )
    assert first.text == "a file that was half copied: /c/1 and 1 more" and "schedq restart" in first.remedy
    assert second.remedy == "schedq prune --older-than 30d"


def test_a_queue_that_nobody_serves_is_warned_of_if_something_waits() -> None:
    [(_, said, do)] = warned(health_queue.service(Service(False, waiting=2)))
    assert said == "none runs, and 2 jobs wait" and do == "schedq up"
    assert warned(health_queue.service(Service(False))) == []
    [(_, said, do)] = warned(health_queue.service(replace(SERVED, stopped=True, answers=None)))
    assert "is stopped" in said and do == "kill -CONT 7, or schedq up --takeover"
    [(_, said, do)] = warned(health_queue.service(replace(SERVED, answers=False)))
    assert "does not answer" in said and do == "schedq up --takeover"


def test_who_stays_in_the_turnstile_is_warned_of_with_the_line_behind() -> None:
    stuck = replace(SERVED, inside=9, inside_command="sleep 9", inside_stopped=True, in_line=3)
    [(_, said, do)] = warned(health_queue.service(stuck))
    assert said == "process 9 (sleep 9) stays in it, 3 in line; it is stopped" and do == "kill -CONT 9"
    assert "ps -fp 9" in warned(health_queue.service(replace(stuck, inside_stopped=False)))[0][2]
    assert health_queue.service(replace(SERVED, in_line=1))[-1].text == "in use, 1 process in line"


def test_a_database_is_warned_of_that_is_damaged_unusable_or_held_up() -> None:
    whole = Database(True, 5 << 20, 0, True)
    assert "5.0 MiB, whole" in health_queue.database(whole)[0].text
    assert "schedq db check" in health_queue.database(replace(whole, whole=None))[0].text
    for bad, text in (
        (replace(whole, whole=False, faults=("row 3 missing from index jobs_user", "b")), "and 1 more"),
        (replace(whole, wal_bytes=100 << 20), "its log has 100 MiB"),
        (Database(True, error="/q/queue.db is damaged"), "is damaged"),
    ):
        [(_, said, _)] = warned(health_queue.database(bad))
        assert text in said


def test_a_provider_is_warned_of_only_if_it_is_broken_or_somebody_wants_it() -> None:
    missing = "boltz is not installed: its file /w.ckpt is not there; run: schedq files boltz --fetch"
    never = "esm is not installed: it has no environment yet; run: schedq install esm"
    found = health_queue.providers(
        [
            Installed("capiti", ready="installed, 2 files there"), Installed("esm", never), Installed("ablang", never),
            Installed("boltz", missing, files=True), Installed("af3", never, waiting=3), Installed("x", broken="a\nb"),
            Installed("y", "the environment in /e is not whole (no marker); run: schedq install y", damaged=True),
        ]
    )  # fmt: skip
    told = warned(found)
    assert [do for *_, do in told] == [
        "schedq files boltz --fetch", "schedq install esm", "schedq providers check x", "schedq install y",
    ]  # fmt: skip
    assert "3 jobs of it waiting" in told[1][1] and told[2][1] == "x: a (and 1 more)"
    assert found[-1].text == "not installed, and not asked for: esm, ablang (schedq install SLUG)"


def test_what_cannot_run_on_this_machine_is_told_and_not_warned_of_unless_its_jobs_wait() -> None:
    missing = "boltz is not installed: its file /w.ckpt is not there; run: schedq files boltz --fetch"
    those = [Installed("boltz", missing, files=True, homeless=True), Installed("af3", homeless=True)]
    found = health_queue.providers(those)
    assert [(each.status, each.text) for each in found] == [("ok", "cannot run here: no device: boltz, af3")]
    [(_, text, remedy)] = warned(health_queue.providers([Installed("boltz", missing, homeless=True, waiting=2)]))
    assert "2 jobs of it waiting" in text and "fetch" not in remedy


def test_a_machine_has_no_device_only_if_that_is_sure() -> None:
    left = Card("RTX", "0", "left_alone", 24.0)
    assert health.no_device([], []) and health.no_device([left], [])
    assert not health.no_device([], ["the driver errs"]) and not health.no_device([left, Card("A", "", "own", 8.0)], [])
    assert not health.no_device([Card("GB10", "", "unified", None)], [])


def test_odd_settings_and_open_secrets_are_warned_of() -> None:
    modes = (("/q/secrets.env", 0o640, "secrets"), ("/c.toml", 0o664, "settings"), ("/d.toml", 0o644, "settings"))
    told = warned(health_queue.setup(Setup(("/c.toml: unknown setting stirct",), modes)))
    assert [do for *_, do in told][1:] == ["chmod 600 /q/secrets.env", "chmod go-w /c.toml"]
    assert "stirct" in told[0][1]


def test_what_keeps_failing_and_a_paused_queue_are_warned_of() -> None:
    found = health_queue.failing(Failing((("breaker", "esm failed 3 times", "schedq providers reset esm"),), 7200.0))
    assert [about for about, *_ in warned(found)] == ["breaker", "queue"] and "2h 00m" in found[1].text
