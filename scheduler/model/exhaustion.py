"""Memory that ran out, in whatever disguise it is told: by a framework, a language, an allocator or the kernel.

The same list, for what a worker says itself, stands in the kit (host/workers/kit/schedq_memory.py); a test compares.
"""

from __future__ import annotations

SIGNS = (
    "out of memory", "outofmemory", "resource_exhausted", "resource exhausted", "memoryerror", "bad_alloc",
    "cannot allocate memory", "unable to allocate", "failed to allocate memory", "alloc_failed", "oom-kill", "oom kill",
    "hiperroroutofmemory",
)  # fmt: skip
"""What stands in the words of torch (CUDA, ROCm), XLA, cuBLAS, NumPy, Python, C++ and the kernel, in lower case."""


def ran_out(text: str) -> bool:
    """Whether these words say that memory ran out."""
    lower = text.lower()
    return any(sign in lower for sign in SIGNS)
