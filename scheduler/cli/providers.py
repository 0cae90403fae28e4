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
        return "no device"
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
    for spec in sorted(specs, key=lambda each: (each["slug"], each["variant"])):
        installed = "no" if _missing(spec) else "yes"
        name = say.fill(_name(spec), 22)
        say.out(f"{name} {_needs(spec):>10} {say.gib(spec['ram_gib']):>8}  {installed:9}  {_title(spec, 25)}".rstrip())
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
    """All that the catalog has of one provider or variant."""
    spec = catalog.load(Paths()).spec(call.text("slug") or "")
    missing = _missing(spec)
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, **spec, "installed": not missing, "missing": missing}))
        return 0
    say.out(say.paint(_name(spec), "bold") + f"  {say.plain(str(spec['title'] or ''))}".rstrip())
    for line in say.wrap(f"installed: {'yes' if not missing else 'no: ' + missing}", "  "):
        say.out(line)
    for key, value in spec.items():
        if key in ("slug", "variant", "title") or value in (None, "", [], {}):
            continue
        text = value if isinstance(value, str) else say.document(value, indent=False)
        lines = say.wrap(text, " " * 22)
        say.out(f"  {say.fill(key, 19)} {lines[0].lstrip()}")
        for line in lines[1:]:
            say.out(line)
    return 0


def check(call: Call) -> int:
    """Read every manifest; exit 2 if one is broken, else 0. Warnings and what is not installed are named."""
    found = catalog.load(Paths())
    asked = call.many("slugs")
    for slug in asked:
        if slug not in found.broken:
            found.spec(slug)
    broken = {slug: text for slug, text in found.broken.items() if not asked or slug in asked}
    specs = [
        spec
        for slug, entry in sorted(found.providers.items())
        for spec in entry["variants"].values()
        if not asked or slug in [each.partition(":")[0] for each in asked]
    ]
    warned = {_name(spec): list(spec["warnings"]) for spec in specs}
    missing = {_name(spec): _missing(spec) for spec in specs}
    if call.flag("json"):
        rows = [{"provider": name, "warnings": warned[name], "missing": missing[name]} for name in warned]
        say.out(say.document({"schema_version": 1, "providers": rows, "broken": broken}))
        return BrokenManifest.exit_code if broken else 0
    for name, warnings in warned.items():
        told = [*warnings, *([missing[name]] if missing[name] else [])]
        say.out(f"{say.fill(name, 24)} {'ok' if not told else ''}".rstrip())
        for text in told:
            say.out("\n".join(say.wrap(text, "    ")))
    for slug, text in broken.items():
        say.out(f"{say.fill(slug, 24)} {say.paint('broken', 'red')}")
        say.out("\n".join(say.wrap(text, "    ")))
    return BrokenManifest.exit_code if broken else 0


def install(call: Call) -> int:
    """Build the environments of providers, one after another; progress on stderr."""
    from scheduler.host import environments

    found = catalog.load(Paths())
    specs = [found.spec(slug) for slug in dict.fromkeys(call.many("slugs"))]
    if not specs:
        raise UsageError("install needs a provider; schedq providers list shows them")
    for spec in specs:
        made = environments.install(spec, say.note)
        say.note(f"{_name(spec)}: {'installed' if made.fresh else 'already installed'} in {say.plain(made.path)}")
    return 0
