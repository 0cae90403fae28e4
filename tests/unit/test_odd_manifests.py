"""Whatever one manifest is, it is broken by itself: its slug says so, every other provider can be asked."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from manifests_made import BASE, PARAMS, SCHEMA, Manifests

from scheduler import catalog, manifest
from scheduler.config import Paths
from scheduler.declared.declaration import TABLES, Manifest, keys
from scheduler.host import environments
from scheduler.inputs.cache import Seen

CASE = '\n[[validation]]\nname = "a"\ninput = "in.json"\n'


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifests:
    made = Manifests(tmp_path, monkeypatch)
    made.add("good")
    return made


def fault(made: Manifests, slug: str = "odd") -> str:
    """Why one slug is broken; the good one beside it is whole, and all of it can be stored."""
    found = catalog.load(Paths())
    assert found.providers["good"]
    assert slug not in found.providers
    json.dumps([found.providers, found.broken], allow_nan=False)
    assert [each["level"] for each in manifest.check(slug)] == ["error"] * len(found.broken[slug].split("\n"))
    return found.broken[slug]


ODD = {
    "a number without end": ("x = " + "9" * 5000, "", "line 2: x: a whole number of 5000 digits", "quotes"),
    "a number beyond 64 bits": ("x = 0x" + "f" * 5000, "", "x: a whole number of more than 64 bits", "quotes"),
    "a slug that is such a number": ("y.z = [1, 0x" + "f" * 50 + "]", "", "y.z[1]: a whole number", "quotes"),
    "a date in a case's parameters": (
        "", CASE + "params = {a = 2024-01-01}", "validation[0].params.a = ", "write it in quotes",
    ),
    "a date in an expectation": (
        "", CASE + 'expect = {"/a" = [{b = 07:32:00}]}', "validation[0].expect./a[0].b = ", "write it in quotes",
    ),
    "no number in an expectation": ("", CASE + 'expect = {"/a" = nan}', "validation[0].expect./a = ", "finite"),
    "a NUL in the interpreter": (None, '/usr/bin/pyth\\u0000on3', "worker.python = ", "NUL"),
    "a NUL in the environment": ("", '[worker.env]\nA = "x\\u0000y"', "worker.env.A = ", "NUL"),
    "a NUL in a name": ("", CASE + 'params = {"a\\u0000" = 1}', "validation[0].params = ", "NUL"),
    "keys nested without end": (".".join("a" * 30_000) + " = 1", "", "nested too deep", "flatten it"),
    "tables nested without end": ("a = " + "[" * 20_000, "", "nested too deep", "flatten it"),
    "tables nested far": ("".join(f"[{'.'.join('a' * n)}]\n" for n in (90,)) + ".".join("a" * 90) + " = 1", "",
                          "nested too deep", "flatten it"),
    "more than anybody reads": ("# " + "x" * (1 << 20), "", "and may have 1048576", "smaller"),
    "a time-out beyond time": ("", "[worker]\nstart_timeout_s = 1e300", "worker.start_timeout_s = 1e+300", "at most"),
    "a budget beyond memory": (None, None, "gpu.vram_budget_gb = 1e+300", "at most 1048576"),
}  # fmt: skip


@pytest.mark.parametrize("what", ODD)
def test_an_odd_value_breaks_its_own_provider_alone(made: Manifests, what: str) -> None:
    top, end, says, fix = ODD[what]
    text = BASE
    if top is None and end is None:
        text = BASE.replace("28.0", "1e300")
    elif top is None:
        text = BASE.replace("~/envs/x/bin/python", str(end))
    elif end and end.startswith("[worker]"):
        text = BASE.replace("[worker]", end)
    else:
        text = f"\n{top}\n{BASE}{end}" if not top.startswith("[a") else f"{BASE}{top}"
    folder = made.add("odd", text=text)
    (folder / "in.json").write_text("{}")
    told = fault(made)
    assert told.startswith(str(folder / "provider.toml"))
    assert says in told
    assert fix in told
    assert len(told) < len(str(folder)) + 400


def as_pipe(path: Path) -> None:
    os.mkfifo(path)


def as_link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


THINGS = {
    "a pipe": (as_pipe, "is a pipe"), "a folder": (Path.mkdir, "is a folder"),
    "endless": (as_link("/dev/zero"), "is a device"),
    "a dead link": (as_link("gone"), "a link to gone, which is not there"),
    "a circle": (as_link("provider.toml"), "leads in a circle"),
}  # fmt: skip


@pytest.mark.parametrize("what", THINGS)
def test_a_manifest_that_is_no_file_is_named_for_what_it_is(made: Manifests, what: str) -> None:
    make, says = THINGS[what]
    path = made.add("odd") / "provider.toml"
    path.unlink()
    make(path)
    told = fault(made)
    assert told.startswith(f"{path}: ")
    assert says in told
    assert "permissions" not in told


@pytest.mark.parametrize("name", ["worker.py", "input.schema.json", "params.schema.json", "in.json"])
@pytest.mark.parametrize("what", [each for each in THINGS if each != "a circle"])
def test_what_a_manifest_names_and_is_no_file_is_named_for_what_it_is(made: Manifests, what: str, name: str) -> None:
    make, says = THINGS[what]
    folder = made.add("odd", more=CASE)
    (folder / "in.json").write_text("{}")
    (folder / name).unlink()
    make(folder / name)
    told = fault(made)
    assert str(folder / name) in told
    assert says in told


def test_code_beside_a_manifest_that_is_no_file_does_no_harm(made: Manifests) -> None:
    folder = made.add("odd")
    as_pipe(folder / "pipe.py")
    (folder / "zero.py").symlink_to("/dev/zero")
    (folder / "gone.py").symlink_to("gone")
    (folder / "loop.py").symlink_to("loop.py")
    assert catalog.load(Paths()).providers["odd"]


@pytest.mark.parametrize("name", ["provider.toml", "worker.py", "beside.py", "input.schema.json"])
def test_what_may_not_be_read_is_named_and_read_again_when_it_may(
    made: Manifests, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = made.add("odd")
    (folder / name).touch()
    for each in [*made.root.rglob("*"), made.root]:
        os.utime(each, (1, 1))
    true = os.open

    def denied(path: Any, *rest: Any, **named: Any) -> int:
        if path == str(folder / name):
            raise PermissionError(13, "Permission denied", path)
        return true(path, *rest, **named)

    with monkeypatch.context() as locked:
        locked.setattr(os, "open", denied)
        told = fault(made)
        assert str(folder / name) in told
        assert "may not be read by you" in told
    assert catalog.load(Paths()).providers["odd"]


def test_what_nobody_foresaw_breaks_one_provider_alone(made: Manifests, monkeypatch: pytest.MonkeyPatch) -> None:
    true = manifest.entry

    def failing(source: Any, *rest: Any) -> dict[str, Any]:
        if source.slug == "odd":
            raise ZeroDivisionError("by chance")
        return true(source, *rest)

    monkeypatch.setattr(manifest, "entry", failing)
    folder = made.add("odd")
    told = fault(made)
    assert told.startswith(f"{folder}/provider.toml: ")
    assert "ZeroDivisionError: by chance" in told


values = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**70), 2**70) | some.floats() | some.text(max_size=8)
    | some.dates() | some.times() | some.datetimes()
    | some.sampled_from(
        ["", "~", ".", "/", "..", "\x00", "a\nb", "\x1b[31m", "$ref", "worker.py", "in.json", "sh", "-c",
         "docker run x", "../x", "--no-deps", 1e300, -1, 0, 2**63, "{input}", "/a/*", "[", ".json", "~nobody/x",
         "x" * 5000]
    ),
    lambda inner: some.lists(inner, max_size=3)
    | some.dictionaries(some.text(max_size=4) | some.sampled_from(["\x00", "/a", "files", "min"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
texts = some.text(max_size=6) | some.sampled_from(
    ["\x00", "a\nb", "..", "~", "${A}", "sh", "-c", "docker run x", "a==1"]
)
tables = some.dictionaries(texts, values, max_size=2)
free = some.fixed_dictionaries(
    {},
    optional={
        ("validation", "params"): tables, ("validation", "expect"): tables, ("validation", "name"): texts,
        ("worker", "python"): texts, ("worker", "args"): some.lists(texts, max_size=2),
        ("worker", "wrap"): some.lists(texts, max_size=3), ("worker", "outputs"): some.lists(texts, max_size=2),
        ("worker", "env"): some.dictionaries(some.sampled_from("AB"), texts), ("env", "check"): texts,
        ("env", "requirements"): some.lists(texts, max_size=2), ("files", "path"): texts, ("files", "url"): texts,
    },
)  # fmt: skip
"""Values of the right kind, of which most are taken."""

KEYS = [(table, key) for table, model in TABLES.items() for key in keys(model)]


def toml(value: Any) -> str:
    """A value as TOML; None is an empty table."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = "".join(each if each.isalnum() and each.isascii() else f"\\U{ord(each):08x}" for each in value)
        return f'"{escaped}"'
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, dict) or value is None:
        return "{" + ", ".join(f"{toml(key)} = {toml(each)}" for key, each in (value or {}).items()) + "}"
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else repr(value)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    some.tuples(
        some.dictionaries(some.sampled_from(KEYS), values, min_size=1, max_size=3),
        some.dictionaries(some.sampled_from([*keys(Manifest), "variants", "other"]), values, max_size=2),
    )
    | some.tuples(free, some.just({})),
    some.sampled_from(["resident", "oneshot"]),
)
def test_whatever_toml_a_manifest_holds_it_is_read_or_broken_in_our_words(
    made: Manifests, values: tuple[dict[tuple[str, str], Any], dict[str, Any]], mode: str
) -> None:
    inside, top = values
    tables: dict[str, dict[str, Any]] = {
        "gpu": {"policy": "none"}, "worker": {"python": "python3", "script": "worker.py"},
        "input": {"schema": "input.schema.json", "params": "params.schema.json"},
        "validation": {"name": "a", "input": "in.json"}, "env": {}, "host": {}, "cpu": {}, "retry": {},
        "files": {"path": "x"},
    }  # fmt: skip
    for (table, key), value in inside.items():
        tables[table][key] = value
    first = {"slug": "odd", "mode": mode, **top}
    lines = [f"{toml(key)} = {toml(value)}" for key, value in first.items()]
    for table, of in tables.items():
        if table not in first:
            lines.append(f"[[{table}]]" if table in ("validation", "files") else f"[{table}]")
            lines += [f"{toml(key)} = {toml(value)}" for key, value in of.items()]
    folder = made.add("odd", text="\n".join(lines))
    (folder / "in.json").write_text("{}")
    entries, broken = manifest.compiled(str(made.home / "cache"), Seen())
    assert "good" in entries
    json.dumps([entries, broken], allow_nan=False).encode()
    assert ("odd" in entries) != ("odd" in broken)
    assert "report it" not in broken.get("odd", ""), broken
    assert "\x00" not in json.dumps(entries.get("odd", "")).replace("\\u0000", "\x00")
    assert all(each["text"] for each in manifest.check("odd"))
    if "odd" in entries:
        json.dumps(manifest.describe("odd"), allow_nan=False)
        assert isinstance(environments.missing(entries["odd"]["variants"][""]), str)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    some.recursive(
        some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=5)
        | some.sampled_from(["#", "#/definitions/chain", "object", "string", "(", "date"]),
        lambda inner: some.lists(inner, max_size=3)
        | some.dictionaries(
            some.sampled_from(
                ["type", "$ref", "allOf", "anyOf", "not", "if", "then", "properties", "items", "pattern", "enum",
                 "format", "required", "minLength", "multipleOf", "$id", "id", "dependencies", "default", "const",
                 "definitions",
                 "patternProperties", "additionalProperties", "$schema"]
            ), inner, max_size=4,
        ),
        max_leaves=8,
    )
)  # fmt: skip
def test_whatever_json_a_schema_is_it_is_compiled_or_broken_in_our_words(made: Manifests, schema: Any) -> None:
    made.add("odd", schema=schema)
    entries, broken = manifest.compiled(str(made.home / "cache"), Seen())
    assert ("odd" in entries) != ("odd" in broken)
    assert "report it" not in broken.get("odd", ""), broken
    shutil.rmtree(made.home / "cache", ignore_errors=True)


CIRCLES: list[Any] = [
    {"$ref": "#"},
    {"allOf": [{"$ref": "#"}]},
    {"not": {"$ref": "#"}},
    {"if": {"$ref": "#/definitions/a"}, "definitions": {"a": {"anyOf": [{"type": "object"}, {"$ref": "#"}]}}},
    {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}}},
    {"properties": {"x": {"$ref": "#/properties/x"}}},
    {"$id": "http://x/y", "oneOf": [{"$ref": "http://x/y#"}]},
    {"dependencies": {"a": {"$ref": "#"}}},
]


@pytest.mark.parametrize("schema", CIRCLES)
def test_a_schema_that_asks_itself_about_the_same_value_is_refused(made: Manifests, schema: Any) -> None:
    folder = made.add("odd", schema=schema)
    told = fault(made)
    assert str(folder / "input.schema.json") in told
    assert "leads back to itself" in told


def test_a_schema_that_asks_itself_about_what_is_inside_a_value_is_taken(made: Manifests) -> None:
    made.add("odd", schema={"properties": {"a": {"$ref": "#"}}, "items": {"anyOf": [{"$ref": "#"}]}})
    assert catalog.load(Paths()).providers["odd"]
    assert SCHEMA and PARAMS


@pytest.mark.parametrize("schema", [{"items": {"$ref": "#/enum"}, "enum": ["a"]}, {"$ref": "#/title", "title": "x"}])
def test_a_reference_to_what_is_no_schema_is_refused(made: Manifests, schema: Any) -> None:
    made.add("odd", schema=schema)
    assert "is no schema" in fault(made)
