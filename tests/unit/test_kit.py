"""The kit's source is for interpreters older than ours, and for them alone."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from scheduler.host.workers import protocol
from scheduler.host.workers.environment import KIT

FILES = sorted(Path(KIT).glob("schedq_*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_the_kit_compiles_for_3_8_and_imports_the_standard_library_alone(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in names} <= set(sys.stdlib_module_names) | {p.stem for p in FILES}
    calls = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not calls & {"removeprefix", "removesuffix", "eventfd", "pidfd_open"}


def test_kit_and_keeper_agree_on_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(KIT)
    import schedq_reply
    import schedq_worker

    assert schedq_worker.PROTOCOL == protocol.PROTOCOL
    assert schedq_reply.LINE_LIMIT == protocol.LINE_LIMIT


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"), True),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (ValueError("chain B has no atoms"), False),
        (KeyError("memory"), False),
    ],
)
def test_memory_running_out_is_known_in_every_disguise(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, memory: bool
) -> None:
    monkeypatch.syspath_prepend(KIT)
    import schedq_memory

    assert schedq_memory.out_of_memory(error) is memory
    outer = ValueError("prediction failed")
    outer.__cause__ = error
    assert schedq_memory.out_of_memory(outer) is memory


def test_numpy_like_values_and_paths_are_plain_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(KIT)
    import schedq_reply

    class Array:
        def tolist(self) -> list[float]:
            return [1.0, 2.0]

    assert schedq_reply.encoded({"a": Array(), "p": Path("/x")}) == b'{"a": [1.0, 2.0], "p": "/x"}'
    assert b"/a/1 is inf" in schedq_reply.encoded({"a": [1, float("inf")]})
