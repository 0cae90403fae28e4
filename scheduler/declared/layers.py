"""The layers of a provider's values and where each comes from: the manifest, the site, a variant, the site's variant.

A budget belongs to a machine, a manifest to everyone: `[providers.SLUG]` in the configuration overrides numbers,
paths, time-outs and environment values, under the manifest's own tables or without them. Slow: imported when a
manifest changed.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from scheduler.declared.declaration import TABLES, Table, keys, shown, strays
from scheduler.errors import BrokenManifest

MEASURED = ("gpu.vram_budget_gb", "host.ram_budget_gb")
"""What a table's notes are about, where it has that."""

NOTES = ("measured", "measured_at", "measured_on", "device", "date", "note")
SITE_TABLES = ("gpu", "host", "cpu", "worker", "retry")
FLAT = {key: name for name in reversed(SITE_TABLES) for key in keys(TABLES[name])}


class Source:
    """A manifest as it was read, with the site's overrides beside it."""

    def __init__(self, path: str, raw: dict[str, Any], site: dict[str, Any], site_origins: dict[str, str]) -> None:
        self.path = path
        self.folder = os.path.dirname(path)
        self.raw = {key: value for key, value in raw.items() if key != "variants"}
        self.variants: dict[str, Any] = raw.get("variants", {})
        self.slug = str(raw.get("slug", ""))
        self.site_origins = site_origins
        self.notes: dict[str, str] = {}
        self.site = {name.partition(":")[2]: over for name, over in site.items() if name.partition(":")[0] == self.slug}
        by_variant = self.site.get("", {}).get("variants", {})
        for name, over in by_variant.items() if isinstance(by_variant, dict) else ():
            if isinstance(over, dict):
                both: dict[str, Any] = {}
                _lay(both, over, "", {})
                _lay(both, self.site.get(name, {}), "", {})
                self.site[name] = both

    def merged(self, variant: str) -> tuple[dict[str, Any], dict[str, str]]:
        """The keys of one variant with every layer applied, and each key's origin. BrokenManifest names the layer."""
        table: dict[str, Any] = {}
        origins: dict[str, str] = {}
        _lay(table, self.raw, self.path, origins)
        self._lay_site("", table, origins)
        if variant:
            _lay(table, self.variants[variant], f"{self.path} [variants.{variant}]", origins)
            self._lay_site(variant, table, origins)
        return table, origins

    def _lay_site(self, variant: str, table: dict[str, Any], origins: dict[str, str]) -> None:
        over = self.site.get(variant)
        if over is None:
            return
        name = f"{self.slug}:{variant}" if variant else self.slug
        nested: dict[str, Any] = {}
        files: dict[str, str] = {}
        notes: dict[str, list[str]] = {}
        for key, value in over.items():
            file = self._file_of(name, variant, key)
            if key in NOTES:
                notes.setdefault(file, []).append(str(value))
            elif key == "env" and isinstance(value, dict):
                self._lay_part(nested, {"worker": {"env": value}}, files, name, variant, "worker.")
            elif (key in SITE_TABLES and isinstance(value, dict)) or key == "files":
                self._lay_part(nested, {key: value}, files, name, variant, "")
            elif key in FLAT:
                self._lay_part(nested, {FLAT[key]: {key: value}}, files, name, variant, f"{FLAT[key]}.")
            elif not (key == "variants" and not variant and _all_tables(value)):
                raise BrokenManifest(
                    f"{file}: providers.{name}.{key} = {shown(value)}: a site cannot set this; it sets numbers, paths, "
                    f"time-outs and env, like {', '.join(('vram_budget_gb', 'python', 'start_timeout_s'))}"
                )
        wrong = strays(nested)
        if sum(map(len, wrong)):
            told = (wrong[0] + wrong[1])[0]
            file = next((files[key] for key in files if told.startswith(key)), self._file_of(name, variant, ""))
            raise BrokenManifest(f"{file}: [providers.{name}]: {told}; correct or remove it")
        _lay(table, nested, "", {})
        for key, file in files.items():
            origins[key] = f"{file} [providers.{name}]"
        for file, said in notes.items():
            laid = [key for key in files if files[key] == file]
            for key in [key for key in laid if key in MEASURED] or laid:
                origins[key] += f" ({', '.join(said)})"

    def _lay_part(
        self, nested: dict[str, Any], part: dict[str, Any], files: dict[str, str], name: str, variant: str, more: str
    ) -> None:
        """Lay one key of the site; `files` gets where each value of it is from. `more` is not written in the file."""
        laid: dict[str, str] = {}
        _lay(nested, part, "", laid)
        files.update({key: self._file_of(name, variant, key.removeprefix(more)) for key in laid})

    def _file_of(self, name: str, variant: str, key: str) -> str:
        """The file that a key of the site is from; of a table, or of all of it ("" as key), the first that has some."""
        for place in (name, f"{self.slug}.variants.{variant}") if variant else (name,):
            whole = f"{place}.{key}" if key else place
            for at, path in self.site_origins.items():
                if at == whole or at.startswith(f"{whole}."):
                    return path
        return ""


def _all_tables(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, dict) for each in value.values())


def _lay(under: dict[str, Any], over: dict[str, Any], origin: str, origins: dict[str, str], at: str = "") -> None:
    """Lay one layer over another, table by table; lists and values replace."""
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(under.get(key, {}), dict):
            table = dict(under.get(key, {}))
            _lay(table, value, origin, origins, f"{at}{key}.")
            under[key] = table
        else:
            under[key], origins[f"{at}{key}"] = value, origin


def origin_of(key: str, origins: dict[str, str]) -> str:
    """Where a dotted key comes from; `default` if no layer has it."""
    plain = re.sub(r"\[\d+\]", "", key)
    while plain:
        if plain in origins:
            return origins[plain]
        plain = plain.rpartition(".")[0]
    return "default"


def values(model: Table, at: str = "") -> dict[str, Any]:
    """Every leaf of a manifest by its dotted key, as the manifest writes it."""
    found: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        key = f"{at}{field.alias or name}"
        if isinstance(value, Table):
            found.update(values(value, f"{key}."))
        elif isinstance(value, dict) and value:
            found.update({f"{key}.{each}": of for each, of in value.items()})
        else:
            found[key] = json.loads(json.dumps(value, default=lambda each: each.model_dump(by_alias=True)))
    return found
