"""`schedq providers ...` and `schedq install`: what can be asked, and what it takes to answer."""

from __future__ import annotations

from scheduler import catalog
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.config import Paths, manifest_folders
from scheduler.errors import BrokenManifest, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _missing(spec: dict[str, Any]) -> str:
    from scheduler.host import environments

    return environments.missing(spec)


def _needs(spec: dict[str, Any]) -> str:
    if spec["policy"] != "required":
        return "-"
    return "undeclared" if spec["vram_gib"] is None else say.gib(spec["vram_gib"])


def list_providers(call: Call) -> int:
    """One line a provider and variant; broken manifests on stderr."""
    found = catalog.load(Paths())
    specs = [spec for entry in found.providers.values() for spec in entry["variants"].values()]
    if call.flag("json"):
        rows = [_row(spec) for spec in specs]
        say.out(say.document({"schema_version": 1, "providers": rows, "broken": found.broken}))
        return 0
    if specs:
        say.out(say.paint(f"{'provider':22} {'VRAM GiB':>10} {'RAM GiB':>8}  {'installed':9}  what it does", "bold"))
    room = max(25, say.columns() - 55)
    for spec in sorted(specs, key=lambda each: (each["slug"], each["variant"])):
        installed = "no" if _missing(spec) else "yes"
        name = say.fill(_name(spec), 22)
        say.out(
            f"{name} {_needs(spec):>10} {say.gib(spec['ram_gib']):>8}  {installed:9}  {_title(spec, room)}".rstrip()
        )
    if not specs:
        say.note(f"no provider in {', '.join(map(say.plain, manifest_folders()))}; SCHEDQ_MANIFESTS names more folders")
    for message in found.broken.values():
        say.note(f"broken: {message}")
    return 0


def _title(spec: dict[str, Any], columns: int) -> str:
    return say.cut(str(spec["title"] or ""), columns)


def _name(spec: dict[str, Any]) -> str:
    return f"{spec['slug']}:{spec['variant']}" if spec["variant"] else str(spec["slug"])


def _row(spec: dict[str, Any]) -> dict[str, Any]:
    keys = (
        "slug",
        "variant",
        "title",
        "mode",
        "policy",
        "vram_gib",
        "ram_gib",
        "count",
        "threads",
        "revision",
        "manifest",
    )
    missing = _missing(spec)
    return {**{key: spec[key] for key in keys}, "installed": not missing, "missing": missing}


def show(call: Call) -> int:
    """What a provider takes, what it costs, and where each value comes from."""
    from scheduler import manifest

    asked = call.text("slug") or ""
    spec = catalog.load(Paths()).spec(asked)
    missing, told = _missing(spec), manifest.describe(asked)
    if call.flag("json"):
        answer = {"schema_version": 1, **spec, "installed": not missing, "missing": missing, "values": told["values"]}
        say.out(say.document(answer))
        return 0
    say.out(say.paint(_name(spec), "bold") + f"  {say.plain(str(spec['title'] or ''))}".rstrip())
    _pair("manifest", say.plain(spec["manifest"]))
    _pair("installed", "no: " + missing.removeprefix(f"{spec['slug']} is not installed: ") if missing else "yes")
    _pair("takes", " ".join(spec["input"]["accept"]) or "any file")
    for line in _parameters(spec):
        _pair("", line)
    if spec["example"]:
        _pair("try", f"schedq run {_name(spec)} --example")
    for warning in told["warnings"]:
        _pair("warning", warning)
    say.out("")
    say.out(say.paint(f"{'value':26} {'is':38}  from", "bold"))
    for row in told["values"]:
        if row["key"] in ("slug", "title") or row["value"] in (None, [], {}):
            continue
        origin = "manifest" if row["origin"] == spec["manifest"] else say.plain(row["origin"])
        lines = say.wrap(_shown(row), " " * 27, columns=65)
        say.out(f"{say.fill(row['key'], 26)} {say.fill(lines[0].lstrip(), 38)}  {origin}")
        for line in lines[1:]:
            say.out(line)
    return 0


def _pair(word: str, text: str) -> None:
    lines = say.wrap(text, " " * 11)
    say.out(f"{word:11}{lines[0].lstrip()}")
    for line in lines[1:]:
        say.out(line)


def _shown(row: dict[str, Any]) -> str:
    value = row["value"]
    if row["key"] == "validation":
        return f"{len(value)} case{'s' if len(value) != 1 else ''}"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    return value if isinstance(value, str) else say.document(value, indent=False)


def _parameters(spec: dict[str, Any]) -> list[str]:
    """A line a parameter: how it is given, what it may be, what it means."""
    if not spec["input"]["params"]:
        return []
    import json

    with open(spec["input"]["params"], encoding="utf-8") as file:
        schema = json.load(file)
    lines = []
    for name, rule in schema.get("properties", {}).items():
        given = f"={say.document(rule['default'], indent=False)}" if "default" in rule else ""
        kinds = ", ".join(map(str, rule["enum"])) if "enum" in rule else str(rule.get("type", "any"))
        about = rule.get("description") or rule.get("title") or ""
        lines.append(f"--param {name}{given} ({kinds})" + (f": {about}" if about else ""))
    return lines


def check(call: Call) -> int:
    """Read every manifest; exit 2 if one is broken, else 0. Warnings and what is not installed are named."""
    from scheduler import manifest

    found = catalog.load(Paths())
    slugs = list(call.many("slugs")) or sorted({*found.providers, *found.broken})
    rows: list[dict[str, Any]] = []
    for slug in slugs:
        told = manifest.check(slug)
        broken = [each["text"] for each in told if each["level"] == "error"]
        missing = "" if broken else _missing(found.spec(slug))
        warnings = [each["text"] for each in told if each["level"] != "error"]
        rows.append({"provider": slug, "broken": broken, "warnings": warnings, "missing": missing})
    any_broken = any(row["broken"] for row in rows)
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "providers": rows}))
        return BrokenManifest.exit_code if any_broken else 0
    for row in rows:
        texts = [*row["broken"], *row["warnings"], *([row["missing"]] if row["missing"] else [])]
        word = say.paint("broken", "red") if row["broken"] else "" if texts else "ok"
        say.out(f"{say.fill(row['provider'], 24)} {word}".rstrip())
        for text in texts:
            for line in text.split("\n"):
                say.out("\n".join(say.wrap(line, "    ")))
    return BrokenManifest.exit_code if any_broken else 0


def install(call: Call) -> int:
    """Build the environments of providers, one after another; progress on stderr."""
    from scheduler.host import environments

    found = catalog.load(Paths())
    specs = [found.spec(slug) for slug in dict.fromkeys(call.many("slugs"))]
    if not specs:
        raise UsageError("install needs a provider; schedq providers list shows them")
    for spec in specs:
        if not spec["environment"] and not environments.missing(spec):
            say.note(f"{_name(spec)}: nothing to install, it runs in {spec['python'] or 'a program of its own'}")
            continue
        made = environments.install(spec, say.note)
        if not made.fresh:
            say.note(f"{_name(spec)}: already installed in {made.path}")
    return 0
