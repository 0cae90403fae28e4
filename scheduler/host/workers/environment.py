"""A worker's environment is built, never inherited: what stands here, what the manifest says, and nothing else.

The names that come from outside are those of the shell that ran `up`; what a later shell sets changes nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import Any

from scheduler.config import Paths
from scheduler.errors import SchedqError
from scheduler.host.workers.devices import visible
from scheduler.host.workers.protocol import MARK
from scheduler.model.machine import Pool
from scheduler.rules.peaks import on_device_gib

KIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kit")

PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
RECORDED = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME",
    "TORCH_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    *PROXIES, *(name.upper() for name in PROXIES),
)  # fmt: skip
RECORDED_PREFIXES = ("HF_",)

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
AS_NEEDED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""What keeps JAX and TensorFlow from taking all that they may have at once: what a worker is seen to use would be what
it was given, and be charged for ever."""


def recorded(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What of this process's environment workers may see; kept from `up` on."""
    found = os.environ if environ is None else environ
    return {k: v for k, v in found.items() if k in RECORDED or k.startswith(RECORDED_PREFIXES)}


def built_env(
    spec: Mapping[str, Any], known: Mapping[str, str], *, python: str, paths: Paths, queue_id: str, worker_id: int,
    pools: Sequence[Pool] = (), charges: Mapping[str, float] | None = None, host_gib: float | None = None,
) -> dict[str, str]:  # fmt: skip
    """The complete environment of one worker of `spec`, from `known` (what `recorded` gave).

    `pools` are those whose devices it was given, `host_gib` the host's part of `charges`, None = as declared. Later
    wins: ours, the manifest's `env`, `unset`, `pass`; devices and the mark are always ours. SchedqError if a secret
    that is asked for cannot be had.
    """
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", **known}
    folder = os.path.dirname(python) if os.path.isabs(python) else ""
    env["PATH"] = f"{folder}:{env['PATH']}" if folder else env["PATH"]
    env["TMPDIR"] = os.path.join(paths.worker(worker_id), "tmp")
    env["PYTHONUNBUFFERED"] = "1"  # the last line before a crash is the one that says why
    env.update(dict.fromkeys(THREADS, str(spec.get("threads") or 1)))
    env["OMP_WAIT_POLICY"] = "PASSIVE"  # E19
    env.update(AS_NEEDED if pools else {})
    env.update(_charges(charges or {}, pools, float(spec.get("ram_gib") or 0.0) if host_gib is None else host_gib))
    for name, value in dict(spec.get("env") or {}).items():
        env[name] = expanded(str(value), env)
    for name in spec.get("unset") or ():
        env.pop(name, None)
    env.update(secrets_of(paths.secrets, list(spec.get("pass") or ())))
    kit = [KIT, env["PYTHONPATH"]] if env.get("PYTHONPATH") else [KIT]
    env["PYTHONPATH"] = ":".join(kit)
    env.update(visible(pools))
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    env[MARK] = f"{queue_id}:{worker_id}"
    return env


def expanded(text: str, env: Mapping[str, str]) -> str:
    """`~` at the start and `${NAME}` anywhere, from the environment built so far; an unknown name is empty."""
    if text == "~" or text.startswith("~/"):
        text = env.get("HOME", "~") + text[1:]
    return re.sub(r"\$\{(\w+)\}", lambda found: env.get(found[1], ""), text)


def secrets_of(path: str, names: list[str]) -> dict[str, str]:
    """Those names from `secrets.env` (NAME=VALUE lines). SchedqError if it is not ours alone, or lacks one.

    Values are never stored, logged or shown; nor are they in the error.
    """
    if not names:
        return {}
    values = all_secrets(path, f"the manifest passes {', '.join(names)}")
    missing = [name for name in names if name not in values]
    if missing:
        raise SchedqError(f"the manifest passes {', '.join(missing)}; add a line {missing[0]}=... to {path}")
    return {name: values[name] for name in names}


def all_secrets(path: str, why: str) -> dict[str, str]:
    """What `secrets.env` holds, by name. SchedqError, after `why` it is read, if it cannot be, or is not ours alone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise SchedqError(f"{why}, and {path} cannot be read: {error.strerror}") from None
    with open(fd, encoding="utf-8") as file:
        found = os.fstat(fd)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o177:
            raise SchedqError(
                f"{path} holds secrets and has mode {stat.S_IMODE(found.st_mode):04o}, uid {found.st_uid}; "
                f"it must be 0600 and of uid {os.getuid()}: chmod 600 {path}"
            )
        return _parsed(file.read())


def _parsed(text: str) -> dict[str, str]:
    values = {}
    for line in text.splitlines():
        line = line.strip().removeprefix("export ").strip()
        name, equals, value = line.partition("=")
        if line.startswith("#") or not equals:
            continue
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        values[name.strip()] = value
    return values


def _charges(charges: Mapping[str, float], pools: Sequence[Pool], host_gib: float) -> dict[str, str]:
    """The ceiling that the kit gives the framework's allocator: GiB on each device, of how many that it has."""
    if not pools:
        return {}
    device_gib = on_device_gib(charges, host_gib)
    env = {"SCHEDQ_CHARGE_DEVICE_GIB": repr(device_gib)} if device_gib is not None else {}
    totals = [pool.capacity.value for pool in pools if pool.kind == "device" and pool.capacity.value]
    if totals:
        env["SCHEDQ_DEVICE_TOTAL_GIB"] = repr(min(totals))
    return env
