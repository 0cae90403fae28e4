"""Compiled JSON-schema validators, kept between processes.

Loading one neither imports the schema library nor reads the schema. A stored validator is code, so one is run
only if it is ours alone (owner, 0600), of this Python and whole (sha256); else it is made again from its
schema. Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import marshal
import sys

from scheduler.inputs.cache import own_bytes, put, sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType
    from typing import Any

FORMAT = f"schedq validator 3, {' '.join(sys.version.split())}\n".encode()


class Invalid(ValueError):
    """A value does not fit its schema; what a compiled validator raises, with or without the rule and the value."""

    def __init__(self, message: str = "", **_: object) -> None:
        super().__init__(message)


class _Deferred:
    """A regular expression that is compiled when it is first used."""

    __slots__ = ("compiled", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.compiled: Any = None

    def _ready(self) -> Any:
        if self.compiled is None:
            import re

            self.compiled = re.compile(self.pattern)
        return self.compiled

    def search(self, text: str) -> Any:
        """As re.Pattern.search."""
        return self._ready().search(text)

    def match(self, text: str) -> Any:
        """As re.Pattern.match."""
        return self._ready().match(text)


class _Expressions:
    """Stands for the module `re` while a validator's own patterns are laid out."""

    compile = _Deferred


class _Decimal:
    """Stands for decimal.Decimal, which only `multipleOf` needs; no JSON value is one."""

    def __new__(cls, text: str) -> Any:
        from decimal import Decimal

        return Decimal(text)


def load(base: str, schema_path: str) -> Callable[[Any], Any]:
    """The validator of a schema: called with a value it returns, or raises Invalid.

    `base` is its place in the cache, without the Python's own ending. BrokenManifest if it has to be made and
    the schema cannot be read.
    """
    code = _stored(base)
    if code is None:
        from scheduler.inputs import schema

        code = schema.compiled(schema_path)
        keep(base, code)
    return runnable(code)


def runnable(code: CodeType) -> Callable[[Any], Any]:
    """The function that a compiled validator defines."""
    import builtins

    space: dict[str, Any] = {
        "__builtins__": builtins, "re": _Expressions, "Decimal": _Decimal,
        "JsonSchemaValueException": Invalid, "JsonSchemaValuesException": Invalid,
    }  # fmt: skip
    exec(code, space)
    space["re"] = _Eager
    validate: Callable[[Any], Any] = space["validate"]
    return validate


class _Eager:
    """Stands for the module `re` while a validator runs: a value may have to be a regular expression."""

    @staticmethod
    def compile(pattern: str) -> Any:
        """As re.compile."""
        import re

        return re.compile(pattern)


def file_of(base: str) -> str:
    """Where the compiled validator of this Python lies."""
    return f"{base}.{sys.implementation.cache_tag}"


def is_kept(base: str) -> bool:
    """Whether a usable compiled validator is in the cache."""
    return _stored(base) is not None


def keep(base: str, code: CodeType) -> bool:
    """Store a compiled validator; False if the cache cannot be written."""
    body = marshal.dumps(code)
    return put(file_of(base), FORMAT + sha256(body).encode() + b"\n" + body)


def _stored(base: str) -> CodeType | None:
    data = own_bytes(file_of(base))
    if data is None or not data.startswith(FORMAT):
        return None
    start = len(FORMAT) + 65
    body = data[start:]
    if data[len(FORMAT) : start - 1] != sha256(body).encode():
        return None
    try:
        code = marshal.loads(body)  # noqa: S302
    except (ValueError, EOFError, TypeError):
        return None
    return code if hasattr(code, "co_code") else None
