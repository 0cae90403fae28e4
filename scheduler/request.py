"""A request before it is queued: its inputs found, read and checked, its parameters typed.

Every refusal says what was asked, what stands in the way and what to do. Nothing is written and no input is
changed. Imported by the fast paths: standard library only; YAML, globs and explanations are loaded when needed.
"""

from __future__ import annotations

import os

from scheduler.config import absolute
from scheduler.errors import InvalidInput, UsageError
from scheduler.inputs import formats, validators
from scheduler.inputs.cache import sha256
from scheduler.inputs.formats import KINDS, WORDS, is_index, shortened
from scheduler.inputs.sources import expand, opened, quoted, read

__all__ = ["check", "expand", "found_at", "merged", "misfit", "parameters", "parsed", "quoted", "read"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from scheduler.config import Paths


def parsed(kind: str, data: bytes, what: str) -> Any:
    """The value of JSON or YAML bytes; of other kinds None, after their own check. InvalidInput names the place."""
    if kind not in WORDS:
        return None
    text = formats.decoded(data, what, kind)
    if not text.strip():
        raise InvalidInput(f"{what}: holds nothing but blanks; write the request into it")
    if kind == "json":
        return formats.parse_json(text, what)
    if kind == "yaml":
        from scheduler.inputs.yamltext import parse_yaml

        return parse_yaml(text, what)
    {"fasta": formats.check_fasta, "pdb": formats.check_pdb, "cif": formats.check_cif}[kind](text, what)
    return None


def check(
    spec: dict[str, Any],
    data: bytes,
    input_name: str,
    folder: str | None,
    params: dict[str, Any],
    paths: Paths,
    shown: str = "",
    named: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What a job's row says of its input, once it was found acceptable. InvalidInput says why it is not.

    `shown` is what messages call the input; its name unless given. `named`: the files that it names, where they are
    known already.

    Keys: input_name, input_kind, input_sha256, input_bytes, files ({pointer: {path, sha256, bytes, mtime_ns}}),
    size, and params: the parameters as they count for this input, which may say itself what is only a default.
    """
    asked, slug = spec["input"], spec["slug"]
    accept: list[str] = asked["accept"]
    name = input_name
    if folder is None and "." not in name:
        name += formats.sniffed(data, accept)
    what = shown or quoted(name)
    ending = formats.suffix(name, accept)
    if not formats.accepted(ending, accept):
        takes = ", ".join(accept)
        is_a = f"a {ending} file" if ending else "without a suffix"
        raise InvalidInput(
            f"{what} is {is_a}, and {slug} takes {takes}; convert it, or rename it if it is one of these"
        )
    if not data:
        raise InvalidInput(f"{what} is empty (0 bytes); write the request into it")
    kind = KINDS.get(ending) or _plain_kind(data)
    value = parsed(kind, data, what)
    refuse_apart(asked, value, what)
    counts = counting(params, asked["defaults"], value)
    if kind in ("json", "yaml"):
        if asked["validator"]:
            _fits(asked["validator"], asked["schema"], laid_over(value, counts, asked["shared"]), what, slug)
        files = files_of(asked["files"], value, folder, what) if named is None else named
        size = size_of(asked["size"], value, len(data))
    else:
        files, size = {}, float(len(data))
    return {
        "input_name": name, "input_kind": kind, "input_sha256": sha256(data), "input_bytes": len(data),
        "files": files, "size": size, "params": counts,
    }  # fmt: skip


def refuse_apart(asked: dict[str, Any], value: Any, what: str) -> None:
    """InvalidInput if an input holds a parameter that counts only as --param."""
    own = [name for name in asked.get("apart", ()) if isinstance(value, dict) and name in value]
    if own:
        raise InvalidInput(
            f"{what}: at the top: holds {own[0]}, which counts only as --param {own[0]}=VALUE; take it out of the input"
        )


def _plain_kind(data: bytes) -> str:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes"
    return "bytes" if b"\0" in data else "text"


def counting(params: dict[str, Any], defaults: dict[str, Any], value: Any) -> dict[str, Any]:
    """The parameters without those defaults that the input overrides by naming them itself."""
    if not isinstance(value, dict):
        return dict(params)
    given = getattr(params, "given", None)
    return {
        name: each
        for name, each in params.items()
        if name not in value or (name in given if given is not None else name not in defaults or each != defaults[name])
    }


class Whole(dict):  # type: ignore[type-arg]
    """An input with parameters laid over it; `own` are the keys that the input has itself."""

    own: frozenset[str] = frozenset()


def laid_over(value: Any, params: dict[str, Any], shared: list[str]) -> Any:
    """What the request's schema is asked about: the input, with the parameters that the schema knows in place."""
    if not isinstance(value, dict):
        return value
    over = {name: params[name] for name in shared if name in params}
    if not over:
        return value
    whole = Whole({**value, **over})
    whole.own = frozenset(value)
    return whole


def _fits(base: str, schema_path: str, value: Any, what: str, slug: str) -> None:
    pointer, why = misfit(base, schema_path, value)
    if why:
        raise InvalidInput(
            f"{what}: at {pointer or 'the top'}: {why}; {slug} accepts what {quoted(schema_path)} describes"
        )


_validators: dict[str, Any] = {}
"""Those that this process has loaded: where one lies in the cache is named by what its schema holds."""


def misfit(base: str, schema_path: str, value: Any) -> tuple[str, str]:
    """Where (JSON pointer) and why a value does not fit a schema; ("", "") if it fits."""
    try:
        if base not in _validators:
            _validators[base] = validators.load(base, schema_path)
        _validators[base](value)
    except validators.Invalid as refused:
        from scheduler.inputs.schema import explain

        pointer, why = explain(schema_path, value)
        return pointer, why or str(refused).replace("data", "the request", 1)
    except (ArithmeticError, ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        return "", f"cannot be checked ({type(error).__name__}: {error})"
    return "", ""


def found_at(value: Any, pointer: str) -> list[tuple[str, Any]]:
    """What a JSON pointer leads to, `*` meaning each of a list or mapping: (exact pointer, value) pairs."""
    level = [("", value)]
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        below: list[tuple[str, Any]] = []
        for at, node in level:
            if isinstance(node, dict):
                names = list(node) if part == "*" else [name] if name in node else []
                below += [(f"{at}/{each.replace('~', '~0').replace('/', '~1')}", node[each]) for each in names]
            elif isinstance(node, list):
                if part == "*":
                    below += [(f"{at}/{index}", each) for index, each in enumerate(node)]
                elif is_index(name) and int(name) < len(node):
                    below.append((f"{at}/{name}", node[int(name)]))
        level = below
    return level


def size_of(rule: dict[str, Any], value: Any, bytes_: int) -> float:
    """How large a request is, for the buckets of what was learned: by its manifest's rule, else its bytes."""
    if "sum_len" not in rule:
        return float(bytes_)
    return float(sum(len(each) for _, each in found_at(value, rule["sum_len"]) if isinstance(each, str)))


_hashed: dict[tuple[object, ...], str] = {}


def files_of(rules: list[Any], value: Any, folder: str | None, what: str) -> dict[str, Any]:
    """The files that an input names, by exact pointer. InvalidInput names pointer and path of each that is not good."""
    found: dict[str, Any] = {}
    wrong: list[str] = []
    for rule in rules:
        pattern, words = (rule, ()) if isinstance(rule, str) else (rule["pointer"], rule["except"])
        for pointer, path in found_at(value, pattern):
            if path is None or path in words:
                continue
            if not isinstance(path, str) or not path:
                wrong.append(f"{pointer}: must be the path of a file, not {shortened(path)}")
                continue
            try:
                whole = absolute(os.path.join(folder or "", os.path.expanduser(path)), "the path")
                found[pointer] = pinned(whole)
            except UsageError as error:
                hint = ", from the input's folder" if not os.path.isabs(path) and folder else ""
                wrong.append(f"{pointer} = {shortened(path)}: {error}{hint}")
    if wrong:
        more = f"\nand {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise InvalidInput(
            f"{what} names {len(wrong)} file{'s' if len(wrong) > 1 else ''} that cannot be used:\n"
            + "\n".join(wrong[:5])
            + more
        )
    if found and not isinstance(value, dict):
        raise InvalidInput(
            f"{what}: names files from inside a list, and a worker gets an object; put an object at the top"
        )
    return found


def pinned(path: str) -> dict[str, Any]:
    """A file as a job's row names it: {path, sha256, bytes, mtime_ns}. UsageError if it cannot be read."""
    import hashlib

    if not path.isprintable() and any("\ud800" <= each <= "\udfff" for each in path):
        raise UsageError(f"{quoted(path)} is no text")
    fd = opened(path, quoted(path))
    try:
        seen = os.fstat(fd)
        key = (path, seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)
        if key not in _hashed:
            with open(fd, "rb", closefd=False) as file:
                _hashed[key] = hashlib.file_digest(file, "sha256").hexdigest()
        return {"path": path, "sha256": _hashed[key], "bytes": seen.st_size, "mtime_ns": seen.st_mtime_ns}
    except OSError as error:
        raise UsageError(f"{quoted(path)} cannot be read: {error.strerror}") from None
    finally:
        os.close(fd)


def merged(kind: str, data: bytes, params: dict[str, Any]) -> dict[str, Any]:
    """The request as a worker gets it: a JSON or YAML mapping with the parameters over it; else the parameters.

    InvalidInput if the bytes are not of their kind.
    """
    if kind in ("json", "yaml"):
        value = parsed(kind, data, "the input")
        if isinstance(value, dict):
            return {**value, **params}
    return dict(params)


def parameters(spec: dict[str, Any], given: list[str]) -> dict[str, Any]:
    """The parameters of a request: each `NAME=VALUE` typed by the params schema, defaults filled in.

    UsageError for an unknown name (the nearest is named), a missing `=`, or a value that is not allowed.
    """
    from scheduler.inputs.parameters import Parameters, typed

    asked = spec["input"]
    if not given and not asked["params_validator"]:
        return Parameters(asked["defaults"])
    return typed(spec, given, misfit)
