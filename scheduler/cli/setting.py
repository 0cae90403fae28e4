"""`schedq providers set`: one value of a provider for this machine, tried first, then put into the config.toml."""

from __future__ import annotations

import os
import tomllib
from typing import Any, get_args, get_origin

from scheduler import config, manifest, siteline, wake
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.config import Paths, Settings, config_files, duration_s
from scheduler.declared.declaration import TABLES, Manifest, keys
from scheduler.declared.layers import FLAT, MEASURED, NOTES
from scheduler.errors import BrokenManifest, SchedqError, UsageError
from scheduler.host import environments
from scheduler.host.machine.facts import facts
from scheduler.look import look
from scheduler.rules import never
from scheduler.settable import nearest
from scheduler.store import peek

AT_ONCE = (
    "start_timeout_s", "request_timeout_s", "idle_timeout_s", "max_workers", "stop_grace_s", "later_for_s", "outcomes",
    "backoff_s", "outputs",
)  # fmt: skip
"""Keys that a running scheduler goes by from when it sees them, also for workers that run."""

AT_SUBMIT = ("max_attempts", "on_lost")
"""Keys that a job takes from its provider when it is submitted."""

OF_INSTALL = ("python", "requirements", "check")
"""Keys of a manifest's own [env], which is about what `install` builds and is no machine's."""

OF_START = ("python", "wrap")
"""Keys that name what a worker is started by."""

OF_ROOM = ("vram_budget_gb", "ram_budget_gb", "policy", "count")
"""Keys that say what must be there before a worker is started at all."""

Place = tuple[str, siteline.Tables, str]
"""A key as the file has it, the tables that it may stand in, and its dotted name in the manifest."""

Outcome = tuple[dict[str, Any] | None, list[str]]
"""What a provider is, None if its manifest cannot be used, and the faults that it cannot for."""


def set_(call: Call) -> int:
    """Set or take out one value, and say what counts then, where it is from, and from when on it counts."""
    given, asked, text = call.text("slug") or "", call.text("key") or "", call.text("value")
    for what, word in (("SLUG", given), ("KEY", asked), ("VALUE", text or "")):
        _refuse_no_text(what, word)
    if call.flag("unset") == (text is not None):
        raise UsageError(
            f"{asked} needs a VALUE, or --unset, which takes out the one that is there"
            if text is None
            else f"--unset takes the value of {asked} out, and {text!r} was given too; leave out one of them"
        )
    place = _place(asked)
    before = _outcome(given, config.settings())
    path, name = config_files()[1], _section(given)
    if text is None:
        value = None
        done = siteline.unset_one(path, name, place[0], place[1], _about(name, place, gone=True))
        if not done:
            say.note(f"{name}: {place[2]} is not set in {path}; nothing was changed")
    else:
        value, done = _value(place, text), True
        table = _counting(given, name, place, value, before)
        siteline.set_one(path, name, place[0], value, (table,), _about(name, place, gone=False))
    _tell(call, given, name, place, before, done, value)
    wake.nudge(Paths())
    return 0


def _refuse_no_text(what: str, word: str) -> None:
    try:
        word.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} {word!r} is no text: its bytes are not UTF-8, which a config.toml is") from None


def _section(given: str) -> str:
    """The name of a provider's table in the configuration, also where its folder was given."""
    where, variant = manifest.parted(given)
    slug = os.path.basename(os.path.abspath(where)) if "/" in where else where
    return f"{slug}:{variant}" if variant else slug


def _about(name: str, place: Place, *, gone: bool) -> tuple[str, ...]:
    """The keys that say how a budget was measured, where that is told of one that was not: one set, or none left."""
    own: Any = config.settings().providers.get(name, {})
    others = [each.split(".") for each in MEASURED if each != place[2]]
    stays = any(key in own or key in own.get(table, {}) for table, key in others)
    if place[2] not in MEASURED or (gone and stays):
        return ()
    return tuple(each for each in NOTES if each != "note")


def _place(asked: str) -> Place:
    """Where a key stands. UsageError for one that is no site's, with the nearest that is."""
    table, dot, key = asked.rpartition(".")
    if table in ("env", "worker.env"):
        if table == "env" and key in OF_INSTALL:
            raise UsageError(
                f"{asked} is a key of the manifest's [env], which says what install builds, for every machine alike; a"
                f" variable of the worker's environment that is called so is worker.env.{key}"
            )
        return key, (("env",), ("worker", "env")), f"worker.env.{key}"
    if key in FLAT and key != "env" and table in ("", FLAT[key]):
        return key, ((), (FLAT[key],)), f"{FLAT[key]}.{key}"
    known = [each for each in FLAT if each != "env"]
    if asked in keys(Manifest) or (table in TABLES and key in keys(TABLES[table]) and key not in known):
        more = "; a path of files may hold ${NAME}, which env.NAME sets" if asked.partition(".")[0] == "files" else ""
        raise UsageError(f"{asked} is the same on every machine: a site cannot set it; change it in the manifest{more}")
    dotted = [f"{FLAT[each]}.{each}" for each in known] if dot else known
    hint = nearest(asked, [*dotted, "env.NAME"]).replace("; known:", "; a site can set")
    raise UsageError(f"{asked} is no value of a provider that a site can set{hint}")


def _value(place: Place, text: str) -> siteline.Value:
    """A value of the key's own type, of what was typed; what is none goes on as text, for the check to refuse."""
    key, _, dotted = place
    if dotted.startswith("worker.env."):
        return text
    model = TABLES[FLAT[key]]
    name = next(each for each, field in model.model_fields.items() if (field.alias or each) == key)
    if _is_text(model.model_fields[name].annotation):
        return text
    try:
        table = tomllib.loads(f"x = {text}")
        value = table["x"] if len(table) == 1 else text
    except (ValueError, RecursionError):
        value = text
    if key.endswith("_s") and isinstance(value, str):
        try:
            return duration_s(text, key)
        except UsageError:
            return text
    return value if isinstance(value, bool | int | float | str | list) else text


def _is_text(kind: Any) -> bool:
    """Whether a field takes text as it is: text, or one of some words, or none."""
    if get_origin(kind) is not None and str(get_origin(kind)) == "typing.Literal":
        return True
    parts = [each for each in get_args(kind) if each is not type(None)]
    return kind is str or (bool(parts) and get_origin(kind) is not list and all(_is_text(each) for each in parts[:1]))


def _outcome(name: str, site: Settings) -> Outcome:
    """What the provider is with these settings, and the faults that keep it from being one. UnknownProvider."""
    slug, variant = manifest.parted(name)
    try:
        entry = manifest.read(name, site)
    except BrokenManifest as error:
        return None, str(error).split("\n")
    if variant not in entry["variants"]:
        known = [each for each in entry["variants"] if each]
        raise UsageError(f"{slug} has no variant {variant!r}; it has {', '.join(known) or 'none'}")
    found: dict[str, Any] = entry["variants"][variant]
    return found, []


def _counting(given: str, name: str, place: Place, value: siteline.Value, before: Outcome) -> tuple[str, ...]:
    """The table below the provider's own in which this value is the one that counts.

    UsageError if the provider would have a fault with it that it has not without, or another one counted all the same.
    """
    path, (key, tables, dotted) = config_files()[1], place
    row: dict[str, Any] = {}
    for at in siteline.places(path, name, key, tables):
        tried = _with(name, at, key, value)
        faults = [each for each in _outcome(given, tried)[1] if each not in before[1]]
        if faults:
            raise UsageError("\n".join([*faults, "nothing was written"]))
        row = _row(given, place, tried) if before[0] is not None else {"value": value}
        if row["value"] == value:
            return at
    shown = say.document(row["value"], indent=False)
    raise UsageError(
        f"{dotted} of {name} would stay {shown}: that is from {row['origin']}, and goes before what is set in {path};"
        " change it there, nothing was written"
    )


def _with(name: str, at: tuple[str, ...], key: str, value: siteline.Value) -> Settings:
    """The settings as they would be with a value in this table of a provider."""
    site = config.settings()
    own: Any = site.providers.get(name, {})
    inside: dict[str, Any] = dict(own) if isinstance(own, dict) else {}
    node = inside
    for part in at:
        node[part] = dict(node.get(part) or {})
        node = node[part]
    node[key] = value
    origins = {**site.site_origins, ".".join((name, *at, key)): config_files()[1]}
    return Settings(site.values, site.origins, {**site.providers, name: inside}, origins)


def _row(given: str, place: Place, site: Settings) -> dict[str, Any]:
    """The value of a key and where it is from."""
    rows = {row["key"]: row for row in manifest.describe(given, site)["values"]}
    found: dict[str, Any] = rows.get(place[2], {"value": None, "origin": "default"})
    return found


def _tell(
    call: Call, given: str, name: str, place: Place, before: Outcome, done: bool, value: siteline.Value | None
) -> None:
    """What the provider has now, where that is from, and from when on it counts."""
    spec, faults = _outcome(given, config.settings())
    unknown = f"{config_files()[1]}; what {name} goes by is not known as long as its manifest is broken"
    row = {"value": value, "origin": unknown} if spec is None else _row(given, place, config.settings())
    when = _when(name, place, before[0], spec) if done else "nothing was changed"
    if call.flag("json"):
        about = {"slug": name, "key": place[2], "value": row["value"], "origin": row["origin"], "counts": when}
        say.out(say.document({"schema_version": 1, **about, "file": config_files()[1], "changed": done}))
    else:
        none = "not set" if spec is not None else "not known"
        shown = none if row["value"] is None else say.document(row["value"], indent=False)
        say.out(f"{place[2]} = {shown}" if row["value"] is not None else f"{place[2]}: {shown}")
        say.note(f"from {row['origin']}; {when}")
    for fault in faults:
        say.note(f"warning: {fault}")
    stands = _stands(place[0], before[0], spec) if done and spec is not None else ""
    if stands:
        say.note(f"note: {stands}")


def _stands(key: str, before: dict[str, Any] | None, now: dict[str, Any]) -> str:
    """What a value that is set keeps this provider from on this machine: that it starts, or ever fits. "" for nothing.

    It is written all the same: another machine may be different, and what is missing may come.
    """
    missing = environments.missing(now)
    if missing and (key in OF_START or before is None or missing != environments.missing(before)):
        return missing
    if key not in OF_ROOM:
        return ""
    try:
        seen = peek.facts(Paths()) or facts(look(Paths(), config.settings()).snapshot.machine)
    except (OSError, SchedqError):
        return ""
    ruling, text = never.ruling(now, seen)
    return f"here it can never start: {ruling}: {text}" if ruling else ""


def _when(name: str, place: Place, before: dict[str, Any] | None, now: dict[str, Any] | None) -> str:
    key = place[0] if not place[2].startswith("worker.env.") else ""
    if key in AT_ONCE:
        told = "it counts at once where a scheduler runs, also for workers that run"
    elif key in AT_SUBMIT:
        told = "it counts for jobs that are submitted from now on (schedq update changes those that wait)"
    else:
        told = (
            "it counts from the next start of a worker on, also for jobs that wait; schedq workers retire"
            f" {name.partition(':')[0]} ends those that are idle"
        )
    if before is not None and now is not None and before["revision"] != now["revision"]:
        told += (
            f". It is part of what answers are made by: jobs that wait are pinned to what was before; schedq update"
            f" --slug {name.partition(':')[0]} --state queued --repin lets them take this"
        )
    return told
