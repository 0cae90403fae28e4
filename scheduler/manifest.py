"""Manifests found, read and compiled: what each provider declares, what is wrong with it, where a value comes from.

Slow (pydantic): imported when a manifest changed, and by `schedq providers`. The fast paths read catalog.py.
"""

from __future__ import annotations

import os
from typing import Any

from scheduler import config, readable, tomlfile
from scheduler.declared.compile import declared, entry, is_slug
from scheduler.declared.layers import Source, origin_of, values
from scheduler.errors import BrokenManifest, InvalidInput, UnknownProvider, UsageError
from scheduler.inputs import formats
from scheduler.inputs.cache import Seen
from scheduler.inputs.formats import shortened
from scheduler.inputs.schema import explain
from scheduler.inputs.yamltext import parse_yaml
from scheduler.model.command import EXEC

NAME = "provider.toml"


def compiled(cache_folder: str, seen: Seen) -> tuple[dict[str, Any], dict[str, str]]:
    """Every provider of the search path: (entries by slug, messages of broken ones by slug). Later folders win.

    A broken manifest is never replaced by one of an earlier folder. UsageError if the configuration is broken.
    """
    for path in config.config_files():
        seen.look(path)
    site = config.settings()
    entries: dict[str, Any] = {}
    broken: dict[str, str] = {}
    for slug, (folder, origin) in sorted(found(seen).items()):
        try:
            entries[slug] = _entry(folder, site, cache_folder, origin, seen)
        except BrokenManifest as error:
            broken[slug] = str(error)
    return entries, broken


def found(seen: Seen) -> dict[str, tuple[str, str]]:
    """The folder of each provider and where its search folder is named, by slug (as the folder is called)."""
    places: dict[str, tuple[str, str]] = {}
    for index, root in enumerate(config.manifest_folders()):
        seen.look(root)
        try:
            names = sorted(os.listdir(root))
        except OSError:
            continue
        for name in names:
            folder = os.path.join(root, name)
            if name[0] in "._" or not os.path.isdir(folder):
                continue
            seen.look(folder)
            if os.path.lexists(os.path.join(folder, NAME)):
                places[name] = (folder, "bundled" if index == 0 else "$SCHEDQ_MANIFESTS")
    return places


def _entry(folder: str, site: config.Settings, cache_folder: str, origin: str, seen: Seen) -> dict[str, Any]:
    """The catalog entry of a folder. Whatever stands in the way is a BrokenManifest: one never harms the others."""
    path = os.path.join(folder, NAME)
    try:
        return entry(_source(folder, site, seen), cache_folder, origin, seen)
    except BrokenManifest:
        raise
    except OSError as error:
        where = f"{path}: " if error.filename in (None, path) else f"{path}: {error.filename} "
        raise BrokenManifest(f"{where}{error.strerror}") from None
    except Exception as error:
        raise BrokenManifest(
            f"{path}: cannot be used, and schedq has no better words for why: {type(error).__name__}: {error}; remove "
            "what was added last, and report it"
        ) from error


def _source(folder: str, site: config.Settings, seen: Seen) -> Source:
    """A folder's manifest as it is written. BrokenManifest with the place, the key or the kind of what is wrong."""
    path = os.path.join(folder, NAME)
    name = os.path.basename(folder)
    if not is_slug(name):
        raise BrokenManifest(
            f"{path}: its folder is called {name!r}, and a provider's name is lower-case letters, digits and _, "
            "a letter first; rename the folder"
        )
    if name == EXEC:
        raise BrokenManifest(
            f"{path}: a provider may not be called {name!r}: jobs of that name are the commands of `schedq exec`; "
            "rename the folder, and the slug in it"
        )
    try:
        raw = tomlfile.parsed(seen.bytes_of(path, tomlfile.MOST_BYTES), path)
    except UsageError as error:
        raise BrokenManifest(str(error)) from None
    except OSError as error:
        raise BrokenManifest(f"{path}: {error.strerror}") from None
    return Source(path, raw, site.providers, site.site_origins)


def parted(name: str) -> tuple[str, str]:
    """What is named and which variant of it, "" for none: a slug, or a folder, which has a `/`; then `:VARIANT`."""
    if "/" in name and (os.path.isdir(name) or ":" not in os.path.basename(name)):
        return name, ""
    where, _, variant = name.rpartition(":") if "/" in name else name.partition(":")
    return where, variant


def _folder_of(name: str) -> str:
    """The folder of a slug on the search path, or the folder itself where one is given: what has a `/` is one."""
    slug = parted(name)[0]
    if "/" in slug:
        folder = os.path.abspath(slug)
        if not os.path.lexists(os.path.join(folder, NAME)):
            raise UnknownProvider(f"{folder} has no {NAME}; name a folder that has one, or a provider")
        return folder
    places = found(Seen())
    if slug not in places:
        import difflib

        near = difflib.get_close_matches(slug, places, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(places) or 'none'}"
        if os.path.lexists(os.path.join(slug, NAME)):
            hint = f"the folder that you are in has one: ./{slug}"
        else:
            hint += f"; SCHEDQ_MANIFESTS adds folders, and a provider's own folder is named with a slash: ./{slug}"
        raise UnknownProvider(f"no provider {slug!r} in {', '.join(config.manifest_folders())}; {hint}")
    return places[slug][0]


def read(name: str, site: config.Settings | None = None) -> dict[str, Any]:
    """The catalog entry of one provider (a slug, or a folder that is on no search path) as it is this moment.

    `site` stands for the settings that there are. UnknownProvider, BrokenManifest.
    """
    folder = _folder_of(name)
    return _entry(folder, site or config.settings(), config.Paths().cache, folder, Seen())


def check(name: str) -> list[dict[str, str]]:
    """What is wrong with one provider (a slug, or a folder that is on no search path), as findings.

    A finding is {"level": "error" | "warning", "text"}. Beyond reading it, its defaults, its example and the
    parameters of its cases must pass its own schemas. Whether it is installed is not asked here.
    """
    folder = _folder_of(name)
    try:
        made = _entry(folder, config.settings(), config.Paths().cache, folder, Seen())
    except BrokenManifest as error:
        return [{"level": "error", "text": line} for line in str(error).split("\n")]
    told: dict[str, str] = {}
    for spec in made["variants"].values():
        told.update(dict.fromkeys(_misfits(spec), "error"))
        told.update(dict.fromkeys(_odd_cases(spec), "warning"))
        told.update(dict.fromkeys((f"{made['manifest']}: {each}" for each in spec["warnings"]), "warning"))
    return [{"level": level, "text": text} for text, level in sorted(told.items(), key=lambda each: each[1])]


def _unfit(spec: dict[str, Any], path: str) -> str:
    """Why a provider would refuse this file as its input; empty if it would not."""
    accept = spec["input"]["accept"]
    ending = formats.suffix(os.path.basename(path), accept)
    if not formats.accepted(ending, accept):
        return f"{path}: is no input of a provider that takes {', '.join(accept)}"
    kind = formats.KINDS.get(ending)
    if kind not in ("json", "yaml"):
        return ""
    try:
        most_bytes = int(config.settings().number("input_max_mib") * (1 << 20))
        text = formats.decoded(readable.read(path, most_bytes), path, kind)
        value = formats.parse_json(text, path) if kind == "json" else parse_yaml(text, path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    except InvalidInput as error:
        return str(error)
    if isinstance(value, dict):
        defaults = spec["input"]["defaults"]
        value = {**{name: defaults[name] for name in spec["input"]["shared"] if name in defaults}, **value}
    pointer, why = explain(spec["input"]["schema"], value) if spec["input"]["schema"] else ("", "")
    return f"{path}: at {pointer or 'the top'}: {why}" if why else ""


def _odd_cases(spec: dict[str, Any]) -> list[str]:
    """Validation inputs that the provider itself would refuse: meant so, or a slip."""
    odd = ((case["name"], _unfit(spec, case["input"])) for case in spec["validation"])
    return [f"validation {name}: its input would be refused: {why}" for name, why in odd if why]


def _misfits(spec: dict[str, Any]) -> list[str]:
    """The example, defaults and cases' parameters that the provider's own schemas refuse."""
    example = _unfit(spec, spec["example"]) if spec["example"] else ""
    if example and spec["example"] not in [case["input"] for case in spec["validation"]]:
        return [f"the example would be refused: {example}", *_misfits({**spec, "example": None})]
    rules = spec["input"]["params"]
    if rules is None:
        return [
            f"{spec['manifest']}: validation {case['name']}: params = {shortened(case['params'])}: it takes none"
            for case in spec["validation"] if case["params"]
        ]  # fmt: skip
    wrong = []
    defaults = spec["input"]["defaults"]
    for whose, params in [
        ("the defaults", {}),
        *((f"validation {each['name']}", each["params"]) for each in spec["validation"]),
    ]:
        pointer, why = explain(rules, {**defaults, **params})
        if why and not (whose == "the defaults" and why.startswith("lacks ")):
            wrong.append(f"{rules}: {whose}: {pointer or 'the parameters'}: {why}")
    return wrong


def describe(name: str, site: config.Settings | None = None) -> dict[str, Any]:
    """Every value of a provider (`slug` or `slug:variant`) with where it comes from. `site`: as for `read`.

    {"slug", "variant", "variants", "folder", "manifest", "values": [{"key", "value", "origin"}], "warnings"}. Keys are
    dotted, as the manifest writes them. UnknownProvider, BrokenManifest.
    """
    seen = Seen()
    folder = _folder_of(name)
    site = site or config.settings()
    made = _entry(folder, site, config.Paths().cache, folder, seen)
    source = _source(folder, site, seen)
    variant = parted(name)[1]
    if variant not in made["variants"]:
        raise UnknownProvider(
            f"{made['slug']} has no variant {variant!r}; it has {', '.join(source.variants) or 'none'}"
        )
    _, origins = source.merged(variant)
    rows = [
        {"key": key, "value": value, "origin": origin_of(key, origins)}
        for key, value in values(declared(source, variant)).items()
    ]
    return {
        "slug": made["slug"], "variant": variant, "variants": list(source.variants), "folder": folder,
        "manifest": source.path, "values": rows, "warnings": made["variants"][variant]["warnings"],
    }  # fmt: skip


def origins(name: str) -> dict[str, str]:
    """Where each value of a provider comes from, by its dotted key: a file with its table, or `default`."""
    return {row["key"]: row["origin"] for row in describe(name)["values"]}
