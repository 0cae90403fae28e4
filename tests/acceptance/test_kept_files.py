"""What jobs leave on the disk, with a scheduler that runs: pruned beside it, waited for where it is full."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil
from driven import Queue, eventually
from mounts import mounted


def test_a_queue_is_pruned_while_it_works_and_goes_on(queue: Queue) -> None:
    queue.provider()
    first = queue.input("a.json", write="x.pdb")
    assert queue("up").code == 0
    ids = queue("submit", "echo", first, queue.input("b.json", write="y.pdb"), "--batch", "old").out.split()
    mine = queue("submit", "echo", first, "--out", str(queue.folder / "mine")).out.strip()
    assert queue("wait", *ids, mine, "--timeout", "60s").code == 0
    listed = queue("artifacts", ids[0]).out.split()
    assert f"{queue.home}/results/{ids[0]}/x.pdb" in listed and all(map(os.path.exists, listed))
    held = queue.input("c.json", wait_for=str(queue.folder / "go"), write="z.pdb")
    running = queue("submit", "echo", held).out.strip()
    eventually(lambda: queue("status", running, "--json").json["jobs"][0]["state"] == "running")
    dry = queue("prune", "--keep", "0", "--dry-run")
    assert dry.code == 0 and len(dry.out.splitlines()) == 3 and "would prune 3 jobs" in dry.err
    done = queue("prune", "--keep", "0", "--json")
    assert (done.code, done.json["pruned"], done.json["left"]) == (0, 3, [])
    (queue.folder / "go").touch()
    assert queue("wait", running, "--timeout", "60s").code == 0
    assert Path(f"{queue.home}/results/{running}/z.pdb").exists() and (queue.folder / "mine" / "x.pdb").exists()
    gone = queue("result", ids[0])
    assert gone.code == 4 and "was pruned on" in gone.err and "its result is gone" in gone.err
    assert queue("show", ids[0], "--json").json["state"] == "succeeded"
    assert queue("db", "check").code == 0
    again = queue("submit", "echo", first).out.strip()
    assert queue("wait", again, "--timeout", "60s").code == 0
    assert queue("doctor").code in (0, 1)


def test_a_job_waits_for_room_where_its_outputs_go_and_the_others_go_on(queue: Queue) -> None:
    queue.provider()
    queue.provider("other")
    path = queue.input(write="x.pdb")
    with mounted(queue.folder / "small", options="size=64m") as small:
        filler = small / "fill"
        filler.write_bytes(b"x" * ((64 << 20) - (256 << 10)))
        assert queue("up").code == 0
        full = queue("submit", "echo", path, "--out", str(small / "o" / "{id}")).out.strip()
        assert queue("run", "other", path, timeout=60).code == 0

        def reason() -> dict[str, str]:
            return queue("show", full, "--json").json["reason"] or {}

        eventually(lambda: reason().get("ruling") == "disk" and "(--out) has 0" in reason()["text"])
        assert "stay reserved; make room there, then it goes on" in reason()["text"]
        filler.unlink()
        assert queue("wait", full, "--timeout", "60s").code == 0
        assert (small / "o" / full / "x.pdb").exists()
        assert queue("down", "--now").code == 0


def test_what_ends_while_the_disk_is_full_is_not_counted(tmp_path: Path) -> None:
    with mounted(tmp_path / "m", options="size=96m") as small:
        queue = Queue(small)
        queue.env["TMPDIR"] = str(tmp_path)
        try:
            queue.provider()
            go = tmp_path / "go"
            assert queue("up").code == 0
            job = queue("submit", "echo", queue.input(wait_for=str(go), fail=True), "--max-attempts", "1").out.strip()
            eventually(lambda: queue("status", job, "--json").json["jobs"][0]["state"] == "running")
            free = os.statvfs(small)
            filler = small / "fill"
            filler.write_bytes(b"x" * (free.f_bavail * free.f_frsize - (1 << 20)))
            eventually(lambda: (queue("status", "--json").json["disk"]["free_gib"] or 1.0) < 0.0019)
            go.touch()
            eventually(lambda: queue("show", job, "--json").json["state"] == "queued")
            shown = queue("show", job, "--json").json
            assert shown["tries"] == 0 and shown["laters"] == 1
            assert (
                "cannot do that; not counted: the disk of the state folder has" in shown["attempts"][0]["outcome_text"]
            )
            doctor = queue("doctor")
            assert doctor.code == 1 and "schedq prune --older-than 30d --dry-run" in doctor.out
            page = " ".join(queue("status").out.split())
            assert "disk: 0.00" in page and "nothing starts: schedq prune --older-than 30d --dry-run" in page
            filler.unlink()
        finally:
            queue("down", "--now")
            for process in queue.processes():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            queue.reap()
