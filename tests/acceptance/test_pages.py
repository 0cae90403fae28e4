"""The pages of manifests/README.md on bringing a model, each followed from its text alone: its files, its commands.

Stand-ins: `conda` makes a venv with conda-meta, `apptainer` runs its argv with a PATH of its own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from driven import Done, Queue, eventually, words_of

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "manifests" / "README.md").read_text()

CONDA = """#!/bin/sh
set -e
[ "$1" = create ] && [ "$3" = -n ]
{python} -m venv --without-pip "$HOME/miniforge3/envs/$4"
mkdir "$HOME/miniforge3/envs/$4/conda-meta"
"""
APPTAINER = """#!/bin/sh
echo "$@" >>"$HOME/apptainer.log"
if [ "$1" = build ]; then : >"$2"; exit; fi
[ "$1" = exec ] && [ -f "$2" ] || exit 255
shift 2
PATH="$HOME/inside" exec "$@"
"""

Follow = Callable[[str], Done]


@pytest.fixture
def follow(queue: Queue, tmp_path: Path) -> Follow:
    """Do what a page says, in its order, in a home of its own; it stops at the first command that fails."""
    programs, home = tmp_path / "programs", tmp_path / "person"
    for folder in (programs, home, home / "inside"):
        folder.mkdir()
    (home / "inside" / "python3").symlink_to(sys.executable)
    shims = {
        "schedq": f'#!/bin/sh\nexec {sys.executable} -P -m scheduler "$@"\n',
        "conda": CONDA.format(python=sys.executable), "apptainer": APPTAINER,
    }  # fmt: skip
    for name, text in shims.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    queue.env.update(
        HOME=str(home), PATH=f"{programs}:{os.environ['PATH']}", PYTHONPATH=str(ROOT),
        XDG_CONFIG_HOME=str(home / ".config"),
    )  # fmt: skip
    del queue.env["SCHEDQ_MANIFESTS"]

    def do(title: str) -> Done:
        done = subprocess.run(
            ["bash", "-c", script(title)], env=queue.env, cwd=home, capture_output=True, text=True, timeout=180,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    return do


def script(title: str) -> str:
    """A page as a program for a shell: blocks below a path are files, the others commands."""
    page = re.split(r"^##+ ", README.partition(f"\n### {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    assert page, title
    parts = ["set -e"]
    for before, block in re.findall(r"^(\S.*)\n\n((?: {4}.*\n|\n)+)", page, re.MULTILINE):
        text, path = textwrap.dedent(block).strip("\n"), re.match(r"`(~[\w./]+)`.*:$", before)
        if path:
            place = path[1].replace("~", "$HOME", 1)
            text = f'mkdir -p "$(dirname "{place}")"\ncat >"{place}" <<\'END OF FILE\'\n{text}\nEND OF FILE'
        parts.append(text)
    return "\n".join(parts) + "\n"


def replies(done: Done) -> list[dict[str, object]]:
    """The lines of stdout that are JSON objects."""
    return [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]


def test_the_page_on_a_conda_environment(follow: Follow, queue: Queue) -> None:
    done = follow("An own conda environment")
    assert done.code == 0, done
    assert [each["said"] for each in replies(done)] == ["hello", "hello"], done
    prefix = f"{queue.env['HOME']}/miniforge3/envs/fold"
    providers = f"{queue.env['HOME']}/providers"
    shown = queue("providers", "show", "fold", "--json", SCHEDQ_MANIFESTS=providers)
    assert shown.json["runs_in"]["path"] == prefix, shown
    assert f"worker.env.LD_LIBRARY_PATH = {json.dumps(prefix + '/lib')}" in done.out, done
    assert queue("providers", "check", "fold", SCHEDQ_MANIFESTS=providers).out.split() == ["fold", "ok"]


def test_the_page_on_apptainer(follow: Follow, queue: Queue) -> None:
    done = follow("Apptainer, by `wrap`")
    assert done.code == 0, done
    assert [each["said"] for each in replies(done)] == ["hello", "hello"], done
    started = (Path(queue.env["HOME"]) / "apptainer.log").read_text().splitlines()
    image = f"{queue.env['HOME']}/images/fold.sif"
    assert started[0] == f"build {image} docker://python:3.12-slim"
    assert len(started) == 3 and all(line.startswith(f"exec {image} python3 /") for line in started[1:]), started


def test_a_launcher_that_is_not_there_is_said_with_its_name(follow: Follow, queue: Queue) -> None:
    assert follow("Apptainer, by `wrap`").code == 0
    (queue.folder / "programs" / "apptainer").unlink()
    tried = queue("providers", "try", f"{queue.env['HOME']}/providers/fold_sif", "--example")
    assert tried.code == 1 and "starts apptainer, which is no program that can be run here" in tried.err, tried


def test_the_page_on_a_server(follow: Follow, queue: Queue) -> None:
    done = follow("A server that one starts")
    assert done.code == 0, done
    assert [round(float(str(each["gravy"])), 4) for each in replies(done)] == [0.9833, 0.9833], done
    assert done.out.splitlines()[0].split() == ["served", "ok"], done
    assert "the request took" in done.err and "GET /health" in done.err, done
    queue.env["SCHEDQ_MANIFESTS"] = f"{queue.env['HOME']}/providers"
    refused = queue("run", "served", queue.input("odd.json", sequence="AX1"))
    assert refused.code == 3 and "a sequence of the 20 letters is needed" in refused.err, refused
    [server] = servers()
    assert len(queue.status()["workers"]) == 1
    server.send_signal(signal.SIGKILL)
    eventually(lambda: not words_of(server))
    assert queue("providers", "set", "served", "backoff_s", "0").code == 0
    again = queue("run", "served", "--example")
    assert again.code == 0 and round(again.json["gravy"], 4) == 0.9833, again
    assert [each["outcome"] for each in queue.show("last")["attempts"]] == ["crashed", "ok"], queue.show("last")
    assert queue("down", "--now").code == 0
    assert not servers()


def test_the_server_page_says_so_where_the_health_address_is_another(follow: Follow, queue: Queue) -> None:
    assert follow("A server that one starts").code == 0
    assert queue("down", "--now", SCHEDQ_MANIFESTS=f"{queue.env['HOME']}/providers").code == 0
    script_ = Path(queue.env["HOME"]) / "providers/served/resident/served_resident_worker.py"
    text = (
        script_.read_text().replace('"/health"', '"/healthz"').replace("HEALTHY_WITHIN_S = 900", "HEALTHY_WITHIN_S = 1")
    )
    script_.write_text(text)
    tried = queue("providers", "try", f"{queue.env['HOME']}/providers/served", "--example")
    assert tried.code == 1 and "/healthz did not answer as a healthy server does: HTTP Error 404" in tried.err, tried
    assert not servers()


def servers() -> list[psutil.Process]:
    """The page's servers that run now."""
    return [each for each in psutil.process_iter() if "server.py" in words_of(each) and "--port" in words_of(each)]


def test_the_page_on_a_tooluniverse_tree(follow: Follow, queue: Queue) -> None:
    done = follow("A ToolUniverse tree")
    assert done.code == 0, done
    assert [round(float(str(each["gravy"])), 4) for each in replies(done)] == [0.9833, 0.9833], done
    checked = " ".join(done.out.split())
    for said in ("unknown key standard: ignored", "unknown key provenance: ignored", "host.ram_budget_gb is missing"):
        assert said in checked, done
    assert "host.ram_budget_gb = 0.2" in done.out, done
