"""`schedq providers ...`: what can be asked, and what it takes to answer."""

from __future__ import annotations

from scheduler import catalog, config
from scheduler.cli import learned, say, torch_builds
from scheduler.cli.fast import Call
from scheduler.clock import now_s, seconds
from scheduler.config import Paths, manifest_folders
from scheduler.errors import BrokenManifest, SchedqError, UnknownProvider
from scheduler.store import peek

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
    broken, known = _broken(), learned.buckets(Paths())
    for odd in catalog.odd_folders():
        say.note(f"warning: {odd}")
    if call.flag("json"):
        rows = [
            {**_row(spec), "breaker": broken.get(spec["slug"]), **learned.row(spec, _known(known, spec))}
            for spec in specs
        ]
        say.out(say.document({"schema_version": 1, "providers": rows, "broken": found.broken}))
        return 0
    if specs:
        say.out(
            "\n".join(
                _table(sorted(specs, key=lambda each: (each["slug"], each["variant"])), broken, say.columns(), known)
            )
        )
    if not specs:
        say.note(f"no provider in {', '.join(map(say.plain, manifest_folders()))}; SCHEDQ_MANIFESTS names more folders")
    for message in found.broken.values():
        say.note(f"broken: {message}")
    return 0


def _known(known: learned.Buckets, spec: dict[str, Any]) -> list[dict[str, Any]]:
    return known.get((spec["slug"], spec["variant"]), [])


def _table(
    specs: list[dict[str, Any]], broken: dict[str, dict[str, Any]], columns: int, known: learned.Buckets | None = None
) -> list[str]:
    """A provider a line, what it does in as many lines as it takes beside the figures, and that it is not tried now.

    And where what it declares is not what it was seen to use.
    """
    rows = [
        (_name(spec), _needs(spec), say.gib(spec["ram_gib"]), "no" if _missing(spec) else "yes", str(spec["title"]))
        for spec in specs
    ]
    head = ("provider", "VRAM GiB", "RAM GiB", "installed")
    wide = [max(say.width(row[n]) for row in (head, *rows)) for n in range(4)]
    columns = max(say.NARROWEST, columns)
    wide[0] = min(24, wide[0], columns - sum(wide[1:]) - 8)
    indent = sum(wide) + 8
    below = indent + 20 > columns
    indent = 4 if below else indent
    lines = [say.paint(_figures(head, wide).rstrip() if below else _figures(head, wide) + "what it does", "bold")]
    for row, spec in zip(rows, specs, strict=True):
        first, *rest = say.wrap(row[4], " " * indent, columns) or [""]
        if below:
            lines += [_figures(row, wide).rstrip(), first, *rest]
        else:
            lines += [(_figures(row, wide) + first.lstrip()).rstrip(), *rest]
        if spec["slug"] in broken:
            lines += say.wrap(_breaker(broken[spec["slug"]]), " " * indent, columns)
        for text in learned.judgements(spec, _known(known or {}, spec)).values():
            lines += say.wrap(text, " " * indent, columns)
    return lines


def _broken() -> dict[str, dict[str, Any]]:
    """The breakers of the queue; what providers declare is told without a queue, or with a damaged one, too."""
    try:
        return peek.broken(Paths())
    except SchedqError:
        return {}


def _breaker(state: dict[str, Any]) -> str:
    """What is remembered of a provider's failures, and what ends that."""
    failed = f"failed {say.counted(state['failures'], 'time')} in a row" if state["failures"] else "put off"
    last = f": {state['last_error']}" if state["last_error"] else ""
    if state["next_try_at"] is None:
        return f"{failed}{last}"
    left_s = seconds(state["next_try_at"]) - now_s()
    then = f"is tried again in {say.span(left_s)}" if left_s > 0 else "is tried again now, with one job"
    return f"{failed}{last}; {then} (at once: schedq providers reset {state['slug']})"


def _figures(row: tuple[str, ...], wide: list[int]) -> str:
    name, vram, ram, installed = row[:4]
    return f"{say.fill(name, wide[0])}  {vram:>{wide[1]}}  {ram:>{wide[2]}}  {installed:{wide[3]}}  "


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
    missing, told, state = _missing(spec), manifest.describe(asked), _broken().get(spec["slug"])
    seen = _known(learned.buckets(Paths()), spec)
    torch = torch_builds.warning(spec, torch_builds.Devices(Paths()))
    if call.flag("json"):
        now = {"installed": not missing, "missing": missing, "breaker": state, **learned.row(spec, seen)}
        now["runs_in"] = _runs_in(spec)
        told["warnings"] = [*told["warnings"], *([torch] if torch else [])]
        now["warnings"] = told["warnings"]
        say.out(say.document({"schema_version": 1, **spec, **now, "values": told["values"]}))
        return 0
    named = say.wrap(f"{_name(spec)}  {spec['title'] or ''}".rstrip(), "", max(say.NARROWEST, say.columns()))
    say.out("\n".join([named[0].replace(_name(spec), say.paint(_name(spec), "bold"), 1), *named[1:]]))
    say.out(f"{'manifest':11}{say.plain(spec['manifest'])}")
    _pair("installed", "no: " + missing.removeprefix(f"{spec['slug']} is not installed: ") if missing else "yes")
    place = _runs_in(spec)
    if place is not None:
        held = say.counted(len(place["versions"].keys() - {"python"}), "package")
        _pair("runs in", f"{place['path']} (Python {place['versions'].get('python', '?')}, {held}, {place['hash']})")
    if state is not None:
        _pair("breaker", _breaker(state))
    _pair("takes", " ".join(spec["input"]["accept"]) or "any file")
    for line in _parameters(spec):
        _pair("", line)
    if spec["example"]:
        _pair("try", f"schedq run {_name(spec)} --example")
    for line in learned.lines(seen):
        _pair("learned", line)
    for warning in (*told["warnings"], *([torch] if torch else []), *learned.judgements(spec, seen).values()):
        _pair("warning", warning)
    say.out("")
    for line in _values(told["values"], spec["manifest"]):
        say.out(line)
    return 0


def _runs_in(spec: dict[str, Any]) -> dict[str, Any] | None:
    """The environment that a provider runs in: path, hash, versions; None if it has none yet, or runs in none."""
    from scheduler.host import environments

    path = environments.folder_in(spec)
    if path is None:
        return None
    return {"path": path, "hash": environments.identity(spec), "versions": environments.versions(spec)}


def _values(values: list[dict[str, Any]], manifest: str) -> list[str]:
    """A line a declared value: its key, what it is, where that comes from."""
    rows = [row for row in values if row["key"] not in ("slug", "title") and row["value"] not in (None, [], {})]
    wide = min(32, max(say.width(row["key"]) for row in rows))
    columns = max(say.NARROWEST, say.columns())
    wide = min(wide, max(24, columns - 35))
    room = columns - wide - 11
    lines = [say.paint(f"{'value':{wide}} {'is':{room}}  from", "bold")]
    for row in rows:
        origin = "manifest" if row["origin"] == manifest else say.plain(row["origin"])
        first, *rest = say.wrap(_shown(row), " " * (wide + 1), columns=wide + 1 + room)
        first = first.lstrip()
        lines.append(f"{say.fill(row['key'], wide)} {first}{' ' * (room - say.width(first))}  {origin}")
        lines += rest
    return lines


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


def _checked(found: catalog.Catalog, named: str) -> tuple[str, list[dict[str, Any]]]:
    """Why what is named, a provider or its folder, cannot start yet, and its variants, where all of them are meant."""
    if "/" not in named:
        entry = found.providers.get(named, {"variants": {}})
        return _missing(found.spec(named)), list(entry["variants"].values())
    from scheduler import manifest
    from scheduler.cli.trying import installable

    variants, variant = manifest.read(named)["variants"], manifest.parted(named)[1]
    if variant not in variants:
        known = ", ".join(filter(None, variants)) or "none"
        raise UnknownProvider(f"{named}: there is no variant {variant!r}; it has {known}")
    spec = variants[variant]
    missing = _missing(spec)
    return missing and installable(missing, spec), [spec] if variant else list(variants.values())


def check(call: Call) -> int:
    """Read every manifest; exit 2 if one is broken, else 0. Warnings and what is not installed are named."""
    from scheduler import manifest

    found = catalog.load(Paths())
    slugs = list(call.many("slugs")) or sorted({*found.providers, *found.broken})
    rows: list[dict[str, Any]] = []
    known, devices = learned.buckets(Paths()), torch_builds.Devices(Paths())
    for slug in slugs:
        told = manifest.check(slug)
        broken = [each["text"] for each in told if each["level"] == "error"]
        missing, variants = ("", []) if broken else _checked(found, slug)
        warnings = [each["text"] for each in told if each["level"] != "error"]
        for spec in variants:
            name = _name(spec)
            warnings += [f"{name}: {text}" for text in learned.judgements(spec, _known(known, spec)).values()]
            torch = "" if spec["variant"] else torch_builds.warning(spec, devices)
            warnings += [f"{name}: {torch}"] if torch else []
        rows.append({"provider": slug, "broken": broken, "warnings": warnings, "missing": missing})
    any_broken = any(row["broken"] for row in rows)
    for odd in [*catalog.odd_folders(), *config.check([*found.providers, *found.broken])]:
        say.note(f"warning: {odd}")
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "providers": rows}))
        return BrokenManifest.exit_code if any_broken else 0
    for row in rows:
        texts = [*row["broken"], *row["warnings"], *([row["missing"]] if row["missing"] else [])]
        word = say.paint("broken", "red") if row["broken"] else "" if texts else "ok"
        name = say.plain(row["provider"]) if "/" in row["provider"] else say.fill(row["provider"], 24)
        say.out(f"{name} {word}".rstrip())
        for text in texts:
            for line in text.split("\n"):
                say.out("\n".join(say.wrap(line, "    ")))
    return BrokenManifest.exit_code if any_broken else 0
