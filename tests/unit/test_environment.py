"""A worker's environment holds what was built for it: nothing of a shell that nobody asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from builders import card, pool

from scheduler.config import Paths
from scheduler.errors import SchedqError
from scheduler.host.workers.devices import CUDA, HIP, ROCR
from scheduler.host.workers.environment import KIT, built_env, recorded, secrets_of
from scheduler.model.machine import Pool

SHELL = {
    "PATH": "/usr/bin:/bin", "HOME": "/home/lab", "USER": "lab", "LANG": "C.UTF-8", "https_proxy": "http://p:1",
    "NO_PROXY": "localhost", "SSL_CERT_FILE": "/etc/ca", "LD_LIBRARY_PATH": "/opt/cuda", "CUDA_HOME": "/opt/cuda",
    "HF_HOME": "/data/hf", "TORCH_HOME": "/data/torch", "PYTHONPATH": "/leak", "CONDA_PREFIX": "/leak",
    "VIRTUAL_ENV": "/leak", "CUDA_VISIBLE_DEVICES": "7", "TMPDIR": "/leak", "SCHEDQ_WORKER": "other:1",
}  # fmt: skip


def spec(**over: Any) -> dict[str, Any]:
    return {"slug": "boltz", "policy": "none", "threads": 4, "env": {}, "unset": [], "pass": [], "ram_gib": 6.0, **over}


def build(tmp_path: Path, over: dict[str, Any] | None = None, **more: Any) -> dict[str, str]:
    paths = Paths(str(tmp_path))
    known = recorded(SHELL)
    return built_env(
        spec(**over or {}), known, python="/envs/b/bin/python", paths=paths, queue_id="q", worker_id=12, **more
    )


def test_only_what_is_listed_comes_from_the_shell_of_up(tmp_path: Path) -> None:
    env = build(tmp_path)
    assert not [name for name, value in env.items() if "/leak" in value]
    assert env["PATH"] == "/envs/b/bin:/usr/bin:/bin"
    for name in (
        "HOME",
        "USER",
        "LANG",
        "https_proxy",
        "NO_PROXY",
        "SSL_CERT_FILE",
        "LD_LIBRARY_PATH",
        "HF_HOME",
        "TORCH_HOME",
    ):
        assert env[name] == SHELL[name]
    assert env["PYTHONPATH"] == KIT
    assert os.path.exists(os.path.join(KIT, "schedq_worker.py"))
    assert env["TMPDIR"] == str(tmp_path / "workers" / "12" / "tmp")
    assert env["SCHEDQ_WORKER"] == "q:12"


def test_threads_are_the_manifests_and_wait_passively_unless_it_says_otherwise(tmp_path: Path) -> None:
    env = build(tmp_path, {"env": {"MKL_NUM_THREADS": "1"}})
    threads = [
        env[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    ]
    assert threads == ["4", "1", "4", "4"]
    assert env["OMP_WAIT_POLICY"] == "PASSIVE"


def test_the_manifests_values_are_expanded_and_its_unset_really_removes(tmp_path: Path) -> None:
    over = {
        "env": {"CACHE": "~/c", "WEIGHTS": "${CACHE}/w", "GONE": "${NOT_THERE}", "PYTHONPATH": "/mine"},
        "unset": ["CUDA_HOME"],
    }
    env = build(tmp_path, over)
    assert (env["CACHE"], env["WEIGHTS"], env["GONE"]) == ("/home/lab/c", "/home/lab/c/w", "")
    assert env["PYTHONPATH"] == f"{KIT}:/mine"
    assert "CUDA_HOME" not in env


def test_devices_are_always_ours_to_say(tmp_path: Path) -> None:
    over = {"policy": "required", "env": {"CUDA_VISIBLE_DEVICES": "0,1,2", "HIP_VISIBLE_DEVICES": "0"}}
    env = build(tmp_path, over, pools=[card("GPU-1"), card("GPU-2")])
    assert [env[name] for name in (CUDA, ROCR, HIP)] == ["GPU-1,GPU-2", "-1", "-1"]
    assert [build(tmp_path, over)[name] for name in (CUDA, ROCR, HIP)] == ["-1", "-1", "-1"]


def test_frameworks_take_what_they_need_of_a_device_unless_the_manifest_says_otherwise(tmp_path: Path) -> None:
    names = ("XLA_PYTHON_CLIENT_PREALLOCATE", "TF_FORCE_GPU_ALLOW_GROWTH")
    env = build(tmp_path, {"policy": "required"}, pools=[card("GPU-1")])
    assert [env[name] for name in names] == ["false", "true"]
    over = {"policy": "required", "env": {names[0]: "true"}, "unset": [names[1]]}
    own = build(tmp_path, over, pools=[card("GPU-1")])
    assert [own.get(name) for name in names] == ["true", None]
    assert not build(tmp_path).keys() & {*names}


@pytest.mark.parametrize(
    ("pools", "charges", "ceiling", "total"),
    [
        ([card("GPU-1")], {"device:GPU-1": 28.0, "host": 6.0}, "28.0", "80.0"),
        ([pool("unified", 121.0)], {"unified": 34.0}, "28.0", None),
        ([], {"host": 6.0}, None, None),
    ],
)
def test_the_ceiling_of_a_device_is_its_charge(
    tmp_path: Path, pools: list[Pool], charges: dict[str, float], ceiling: str | None, total: str | None
) -> None:
    env = build(tmp_path, {"policy": "required"}, pools=pools, charges=charges)
    assert env.get("SCHEDQ_CHARGE_DEVICE_GIB") == ceiling
    assert env.get("SCHEDQ_DEVICE_TOTAL_GIB") == total


def test_secrets_come_from_a_file_that_is_ours_alone(tmp_path: Path) -> None:
    path = tmp_path / "secrets.env"
    path.write_text("# keys\nexport MSA_KEY='top secret'\nOTHER=x=y\n")
    path.chmod(0o600)
    assert build(tmp_path, {"pass": ["MSA_KEY"]})["MSA_KEY"] == "top secret"
    assert "OTHER" not in build(tmp_path, {"pass": ["MSA_KEY"]})
    assert secrets_of(str(path), ["OTHER"]) == {"OTHER": "x=y"}
    with pytest.raises(SchedqError, match="add a line NOPE="):
        secrets_of(str(path), ["NOPE"])
    path.chmod(0o640)
    with pytest.raises(SchedqError, match=r"mode 0640.*chmod 600") as found:
        secrets_of(str(path), ["MSA_KEY"])
    assert "top secret" not in str(found.value)


def test_a_secret_without_a_file_or_behind_a_link_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchedqError, match=r"passes KEY, and .* cannot be read"):
        secrets_of(str(tmp_path / "none"), ["KEY"])
    (tmp_path / "real").write_text("KEY=1")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(SchedqError, match="cannot be read"):
        secrets_of(str(tmp_path / "link"), ["KEY"])
    assert secrets_of(str(tmp_path / "none"), []) == {}
