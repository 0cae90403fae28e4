"""Device memory, from the worker's side: a ceiling for the framework's allocator, and what running out looks like.

No cgroup limit sees device memory, so the allocator itself is told. Part of the kit: standard library only,
Python 3.8 and later.
"""

import importlib.abc
import importlib.util
import os
import subprocess
import sys

HEADROOM_GIB = 0.5
SIGNS = (
    "out of memory", "outofmemory", "resource_exhausted", "resource exhausted", "memoryerror", "bad_alloc",
    "cannot allocate memory", "unable to allocate", "failed to allocate memory", "alloc_failed", "oom-kill", "oom kill",
    "hiperroroutofmemory",
)  # fmt: skip


def cap_memory():
    """Cap what torch and XLA may allocate at the charge less 0.5 GiB; a setting that is there already stands."""
    charge = os.environ.get("SCHEDQ_CHARGE_DEVICE_GIB")
    if not charge or not _shown():
        return
    limit_gib = max(float(charge) - HEADROOM_GIB, 0.1)
    if not {"XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"} & set(os.environ) and _is_installed("jax"):
        total_gib = _total_gib()
        if total_gib:
            os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "{:.4f}".format(min(limit_gib / total_gib, 1.0))
    if "per_process_memory_fraction" not in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        if "torch" in sys.modules:
            _cap_torch(sys.modules["torch"], limit_gib)
        else:
            sys.meta_path.insert(0, _WhenTorchComes(limit_gib))


def cap_anew(charge_gib):
    """Cap what torch may allocate anew, for a request that the worker is charged more or less for than before.

    What it holds above a lower cap it keeps, and gets nothing beside it. XLA took its share when it was set up.
    """
    before = os.environ.get("SCHEDQ_CHARGE_DEVICE_GIB")
    if charge_gib is None or not before or not _shown() or charge_gib == float(before):
        return
    os.environ["SCHEDQ_CHARGE_DEVICE_GIB"] = repr(float(charge_gib))
    stands = "per_process_memory_fraction" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    if "torch" in sys.modules and not stands:
        _cap_torch(sys.modules["torch"], max(float(charge_gib) - HEADROOM_GIB, 0.1))
    for finder in sys.meta_path:
        if isinstance(finder, _WhenTorchComes):
            finder.limit_gib = max(float(charge_gib) - HEADROOM_GIB, 0.1)


def _shown():
    """The devices that this process is shown, as its environment names them; empty = none."""
    for variable in ("ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        value = os.environ.get(variable, "-1")
        if value not in ("", "-1"):
            return value
    return ""


def devices_seen():
    """The devices that this process sees, comma-separated: by the framework's own word, else by its environment.

    Asking must not set a framework up. Of instances of a device a framework names the whole one, so that there the
    environment stands.
    """
    shown = _shown()
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        hip = getattr(getattr(sys.modules.get("torch"), "version", None), "hip", None)
        if cuda is not None and cuda.is_initialized() and shown.startswith("GPU-") and not hip:
            every = [cuda.get_device_properties(n).uuid for n in range(cuda.device_count())]
            return ",".join("GPU-{}".format(uuid) for uuid in every)
    except Exception:
        pass
    return shown


def _is_installed(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _total_gib():
    """GiB of the first visible device: as we were told, else as its driver says, else (unified) the machine's."""
    told = os.environ.get("SCHEDQ_DEVICE_TOTAL_GIB")
    if told:
        return float(told)
    device = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[0]
    ask = ["nvidia-smi", "-i", device, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(ask, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20).stdout.decode()
        return float(said.split()[0]) / 1024
    except (OSError, ValueError, subprocess.SubprocessError):
        pass
    except IndexError:
        return 0.0
    with open("/proc/meminfo") as file:
        return float(file.readline().split()[1]) / (1 << 20)


def _cap_torch(torch, limit_gib):
    """Set the fraction when torch sets up its devices, not before: a process that forks first must not have."""
    cuda = getattr(torch, "cuda", None)

    def cap():
        try:
            for number in range(cuda.device_count()):
                total = cuda.get_device_properties(number).total_memory
                cuda.set_per_process_memory_fraction(min(limit_gib * (1 << 30) / total, 1.0), number)
        except Exception as error:
            sys.stderr.write("schedq: torch takes no memory limit: {}\n".format(error))

    if cuda is not None and hasattr(cuda, "_lazy_call"):
        cuda._lazy_call(cap)
    elif cuda is not None and cuda.is_available():
        cap()


class _WhenTorchComes(importlib.abc.MetaPathFinder):
    """Lets the import of torch run as ever, and caps it when it has."""

    def __init__(self, limit_gib):
        self.limit_gib = limit_gib

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                _cap_torch(module, self.limit_gib)

            spec.loader.exec_module = exec_module
        return spec


def out_of_memory(error):
    """Whether an exception is memory running out, in whatever disguise a framework raises it."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text = str(error).lower()
        if isinstance(error, MemoryError) or "outofmemory" in type(error).__name__.lower():
            return True
        if any(sign in text for sign in SIGNS):
            return True
        error = error.__cause__ or error.__context__
    return False
