"""What a `provider.toml` may say: its tables, keys and limits, and what is wrong with one, in its own words.

Units are in the keys: `_gb` is GiB (the key is older than the unit), `_s` seconds. Slow: imported when a
manifest changed.
"""

from __future__ import annotations

import difflib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from scheduler.config import LONGEST_S
from scheduler.model.outcome import KINDS as OUTCOMES
from scheduler.tomlfile import quoted, shortened

SLUG = r"[a-z][a-z0-9_]*"
VARIANT = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
PLACEHOLDERS = ("python", "input", "out", "params", "request", "work", "name")
DAEMONS = ("docker", "podman", "nerdctl")

Gib = Annotated[float, Field(ge=0, le=2**20)]
Seconds = Annotated[float, Field(ge=0, le=LONGEST_S)]
Patience = Annotated[float, Field(gt=0, le=LONGEST_S)]
Text = Annotated[str, Field(min_length=1)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Pointer = Annotated[str, Field(pattern=r"^(/|$)")]


class Table(BaseModel):
    """A table of a manifest: values are taken as they are written, unknown keys are told apart elsewhere."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False, populate_by_name=True)


class Gpu(Table):
    """`[gpu]`: the accelerators of one worker, the budget on each of them."""

    policy: Literal["required", "none"] = "required"
    vram_budget_gb: Gib | None = None
    count: int = Field(default=1, ge=1, le=64)


class Host(Table):
    """`[host]`: memory of the machine itself."""

    ram_budget_gb: Gib | None = None


class Cpu(Table):
    """`[cpu]`: the threads of one busy worker."""

    threads: int = Field(default=1, ge=1, le=4096)


class Worker(Table):
    """`[worker]`: how a worker is started, what it must leave behind, how patient to be with it."""

    python: Text | None = None
    script: Text | None = None
    args: list[str] = []
    command: list[str] | None = None
    wrap: list[str] = []
    outputs: list[Text] = []
    env: dict[Variable, str] = {}
    unset: list[Variable] = []
    pass_: list[Variable] = Field(default=[], alias="pass")
    start_timeout_s: Patience = 900.0
    request_timeout_s: Patience = 3600.0
    idle_timeout_s: Seconds = 600.0
    max_workers: int | None = Field(default=None, ge=1, le=4096)
    stop_grace_s: Seconds = 30.0
    later_for_s: Seconds = 43200.0


class Retry(Table):
    """`[retry]`: which outcomes are tried again, how often, and what a lost worker means for its job."""

    max_attempts: int = Field(default=2, ge=1, le=100)
    outcomes: list[Literal[OUTCOMES]] = ["crashed", "no_reply", "lost"]  # type: ignore[valid-type]
    backoff_s: Seconds = 10.0
    on_lost: Literal["requeue", "hold", "fail"] = "requeue"


class Env(Table):
    """`[env]`: the environment that `schedq install` builds."""

    python: Annotated[str, Field(pattern=r"^\s*(?:(?:[<>]=?|==|!=|~=)\s*\d+(?:\.(?:\d+|\*))*\s*(?:,\s*|$))*$")] = ""
    requirements: list[Text] = []
    check: str = ""


class File(Table):
    """`[[files]]`: something that must be there before a start."""

    path: Text
    bytes: int | None = Field(default=None, ge=0)
    sha256: Sha256 | None = None
    url: str | None = None
    archive: Text | None = None


class FileRule(Table):
    """One place of an input that names a file; `except` lists words there that are none (`empty`)."""

    pointer: Annotated[str, Field(pattern="^/")]
    except_: list[str] = Field(default=[], alias="except")


class Size(Table):
    """`input.size`: what a request's size is; nothing = the bytes of the input."""

    sum_len: Pointer | None = None


class Input(Table):
    """`[input]`: which requests are accepted."""

    accept: list[Annotated[str, Field(pattern=r"^\.[^/\s]+$")]] = Field(default=[".json"], min_length=1)
    schema_: Text | None = Field(default=None, alias="schema")
    params: Text | None = None
    files: list[FileRule] = []
    size: Size = Size()
    example: Text | None = None

    @field_validator("files", mode="before")
    @classmethod
    def _pointers(cls, given: Any) -> Any:
        return (
            [{"pointer": each} if isinstance(each, str) else each for each in given]
            if isinstance(given, list)
            else given
        )

    @field_validator("size", mode="before")
    @classmethod
    def _bytes(cls, given: Any) -> Any:
        return {} if given == "bytes" else given


class Validation(Table):
    """`[[validation]]`: a case of `schedq validate`."""

    name: Text
    input: Text
    params: dict[str, Any] = {}
    expect: dict[str, Any] = {}
    timeout_s: Patience | None = None


class Manifest(Table):
    """One provider, or one variant of it, whole."""

    slug: Annotated[str, Field(pattern=f"^{SLUG}$")]
    title: str = ""
    mode: Literal["resident", "oneshot"]
    example: Text | None = None
    gpu: Gpu = Gpu()
    host: Host = Host()
    cpu: Cpu = Cpu()
    worker: Worker = Worker()
    retry: Retry = Retry()
    env: Env | None = None
    files: list[File] = []
    input: Input = Input()
    validation: list[Validation] = []


VARIES = ("title", "example", "gpu", "host", "cpu", "worker", "retry", "files", "input", "validation")
"""What `[variants.X]` may override."""

TABLES: dict[str, type[Table]] = {
    "gpu": Gpu, "host": Host, "cpu": Cpu, "worker": Worker, "retry": Retry, "env": Env, "files": File,
    "input": Input, "validation": Validation,
}  # fmt: skip
PATHS = {
    "input.schema": 'a JSON schema file, like "input.schema.json"',
    "input.params": 'a JSON schema file, like "params.schema.json"',
    "input.example": 'an input, like "example.json"', "example": 'an input, like "example.json"',
    "validation.input": 'an input, like "case.json"', "worker.script": 'the worker\'s file, like "worker.py"',
}  # fmt: skip
"""Keys whose value is the path of a file, and of which."""

PATTERN_FIXES = {
    "slug": "use lower-case letters, digits and _, a letter first",
    "accept": 'write a suffix with its dot, like ".json"',
    "sha256": "write the 64 hex digits that sha256sum prints",
    "python": 'write a range of versions, like ">=3.10,<3.13"',
    "pointer": 'write a JSON pointer, like "/sequences/*/msa"',
    "files": 'write a JSON pointer, like "/sequences/*/msa"',
    "sum_len": 'write a JSON pointer, like "/sequences/*/sequence"',
    "env": "a variable's name has letters, digits and _",
    "unset": "a variable's name has letters, digits and _",
    "pass": "name a variable of secrets.env, not its value",
}


def keys(model: type[Table]) -> list[str]:
    """The keys of a table, as a manifest writes them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def shown(value: Any) -> str:
    """A value as TOML would write it, cut after 60 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def named(key: str) -> str:
    """A dotted key that can be shown in one line, cut in the middle if it is long."""
    return shortened(quoted(key))


def strays(table: dict[str, Any], inside: str = "") -> tuple[list[str], list[str]]:
    """Keys that are not ours: (faults: a slip of one of ours; warnings: the rest), as sentences."""
    faults: list[str] = []
    warnings: list[str] = []
    for key, value in table.items():
        where = named(f"{inside}{key}")
        if key == "variants" and isinstance(value, dict) and not inside:
            for name, over in value.items():
                if isinstance(over, dict):
                    for found, more in zip((faults, warnings), strays(over, f"variants.{name}."), strict=True):
                        found += more
                    faults += [
                        f"variants.{named(name)}.{odd}: a variant cannot change this; it changes {', '.join(VARIES)}"
                        for odd in over if odd in (*keys(Manifest), "variants") and odd not in VARIES
                    ]  # fmt: skip
        elif key not in keys(Manifest):
            _stray(where, key, value, [*keys(Manifest), "variants"], faults, warnings)
        elif key in TABLES:
            for part in value if isinstance(value, list) else [value]:
                for odd in part if isinstance(part, dict) else ():
                    if odd not in keys(TABLES[key]):
                        _stray(named(f"{where}.{odd}"), odd, part[odd], keys(TABLES[key]), faults, warnings)
    return faults, list(dict.fromkeys(warnings))


def _stray(where: str, key: str, value: Any, ours: list[str], faults: list[str], warnings: list[str]) -> None:
    plain = key.lower().replace("-", "_")
    near = difflib.get_close_matches(plain, ours, n=1, cutoff=0.8)
    home = next((name for name, model in TABLES.items() if key in keys(model) and key.endswith(("_s", "_gb"))), "")
    if near:
        faults.append(f"{where} = {shown(value)}: unknown key; did you mean {near[0]}?")
    elif home:
        faults.append(f"{where} = {shown(value)}: stands in the wrong place; write it under [{home}]")
    else:
        warnings.append(f"unknown key {where}: ignored")


def faults(error: ValidationError) -> list[tuple[str, str]]:
    """What pydantic found, in the manifest's words: (dotted key, `= value: what is wrong; the fix`)."""
    found: dict[str, str] = {}
    for each in error.errors(include_url=False):
        key = ""
        for part in each["loc"]:
            if part == "[key]":
                continue
            key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else str(part)
        found.setdefault(key, _fault(each, key))
    return list(found.items())


def _fault(error: Any, key: str) -> str:
    kind, given, limits = error["type"], error["input"], error.get("ctx", {})
    names = [str(part) for part in error["loc"] if isinstance(part, str) and part != "[key]"]
    name = names[-1] if names else key
    if kind == "missing":
        sample = {"mode": '"resident"', "slug": '"its folder\'s name"'}.get(name, '"..."')
        return f" is missing; add {name} = {sample}"
    start = f" = {shown(given)}: "
    if kind in ("float_type", "int_type", "int_from_float", "finite_number"):
        word, sample = ("a number", "28.0") if kind in ("float_type", "finite_number") else ("a whole number", "4")
        return f"{start}must be {word}; write {name} = {sample}, without quotes"
    if kind == "string_type" and ".".join(names) in PATHS:
        return f"{start}must be the path of {PATHS['.'.join(names)]}"
    if kind == "string_type":
        quoted = (
            f'"{str(given).lower() if isinstance(given, bool) else given}"'
            if not isinstance(given, dict | list)
            else '"..."'
        )
        return f"{start}must be text; write {name} = {quoted}"
    if kind == "list_type":
        return f'{start}must be a list; write {name} = ["..."]'
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return f"{start}must be a table; write [{key}] with its keys below"
    if kind == "literal_error":
        words = [each.strip("'") for each in str(limits["expected"]).replace(" or ", ", ").split(", ")]
        near = difflib.get_close_matches(str(given), words, n=1)
        return f"{start}must be one of {', '.join(words)}" + (f"; did you mean {near[0]}?" if near else "")
    bounds = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
    if kind in bounds:
        word = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}[bounds[kind]]
        return f"{start}must be {word} {limits[bounds[kind]]:.15g}"
    if kind in ("string_too_short", "too_short"):
        return f"{start}must not be empty; fill it or remove the key"
    if kind == "string_pattern_mismatch":
        fix = next((PATTERN_FIXES[each] for each in reversed(names) if each in PATTERN_FIXES), "")
        return f"{start}is not of the right form; {fix or 'it must match ' + str(limits['pattern'])}"
    return f"{start}{str(error['msg']).removeprefix('Value error, ')}"
