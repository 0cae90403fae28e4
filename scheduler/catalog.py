"""The compiled manifests, as everything but the manifest layer reads them.

`load()` answers from a file in the cache as long as every file and folder that it was made from is as it was
(time, size, inode); else the manifests are compiled again. A cache that is foreign, broken or cannot be written
costs time, nothing else. Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import json
import os
import sys

from scheduler import clock
from scheduler.config import Paths, config_files, manifest_folders, slips
from scheduler.errors import BrokenManifest, UnknownProvider, UsageError
from scheduler.inputs import cache
from scheduler.model.command import EXEC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = 1
MANIFEST = "provider.toml"
SETTLED_S = 0.05
"""A file changed this recently may change again within the clock's own step: what was read of it is not kept."""

LOOKS = 3
"""How often manifests are read when they change meanwhile: an editor may be half way through them."""


class Catalog:
    """Every provider that can be asked, with what it declares, and what is wrong with the broken ones."""

    def __init__(self, providers: dict[str, Any], broken: dict[str, str], folders: list[str]) -> None:
        self.providers = providers
        self.broken = broken
        self.folders = folders

    def spec(self, name: str) -> dict[str, Any]:
        """What `slug` or `slug:variant` declares, every layer merged.

        UnknownProvider names the nearest and what there is; BrokenManifest says file, key and fix.
        """
        slug, colon, variant = name.partition(":")
        entry = self.providers.get(slug)
        if entry is None:
            if slug == EXEC:
                raise UnknownProvider("exec is no provider: any command is run by schedq exec --ram GIB -- COMMAND")
            if slug in self.broken:
                raise BrokenManifest(self.broken[slug])
            raise UnknownProvider(self._unknown(slug))
        spec = entry["variants"].get(variant)
        if spec is None or (colon and not variant):
            variants = [each for each in entry["variants"] if each]
            if not variants:
                raise UnknownProvider(f"{slug} has no variants, and {name!r} was asked for; ask for {slug}")
            raise UnknownProvider(
                f"{slug} has no variant {variant!r}{_near(variant, variants)}; it has {_some(variants)}; "
                f"ask for {slug}:{variants[0]}"
            )
        found: dict[str, Any] = spec
        return found

    def _unknown(self, slug: str) -> str:
        known = sorted({*self.providers, *self.broken})
        odd = "".join(f"; {each}" for each in odd_folders(self.folders[1:]))
        if not known:
            return f"no provider {slug!r}: there is no manifest in {', '.join(self.folders)}; " + (
                odd.removeprefix("; ") or "name the folder of your manifests in SCHEDQ_MANIFESTS"
            )
        return (
            f"no provider {slug!r}{_near(slug, known)}; known: {_some(known)}; looked into {', '.join(self.folders)}; "
            + (odd.removeprefix("; ") or "SCHEDQ_MANIFESTS adds folders")
        )


def _near(name: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _some(names: list[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more (schedq providers)" if len(names) > 12 else "")


def odd_folders(folders: list[str] | None = None) -> list[str]:
    """What is wrong with the folders that SCHEDQ_MANIFESTS names, a sentence each: no provider can be found there."""
    told = []
    for folder in manifest_folders()[1:] if folders is None else folders:
        if not os.path.isdir(folder):
            told.append(f"SCHEDQ_MANIFESTS names {folder}, which is {_no_folder(folder)}; make it, or correct the path")
        elif os.path.lexists(os.path.join(folder, MANIFEST)):
            told.append(
                f"SCHEDQ_MANIFESTS names {folder}, which is a provider's own folder; name the folder above it,"
                f" {os.path.dirname(folder)}"
            )
        elif not _has_provider(folder):
            told.append(
                f"SCHEDQ_MANIFESTS names {folder}, and no folder in it has a {MANIFEST}; put a provider's folder there,"
                " or correct the path"
            )
    return told


def _no_folder(path: str) -> str:
    return "no folder" if os.path.lexists(path) else "not there"


def _has_provider(folder: str) -> bool:
    try:
        return any(os.path.lexists(os.path.join(folder, name, MANIFEST)) for name in os.listdir(folder))
    except OSError:
        return True


def load(paths: Paths) -> Catalog:
    """The catalog as the manifests on the search path are now. UsageError if the configuration is broken."""
    wrong = slips()
    if wrong:
        raise UsageError("\n".join(wrong))
    folders = manifest_folders()
    key = _key(folders)
    path = os.path.join(paths.cache, "catalog.json")
    kept = _kept(path, key)
    if kept is not None:
        return Catalog(kept["providers"], kept["broken"], folders)
    from scheduler import manifest

    for _ in range(LOOKS):
        begun_ns = int(clock.now_s() * 1e9)
        seen = cache.Seen()
        for each in made_by():
            seen.look(each)
        providers, broken = manifest.compiled(paths.cache, seen)
        if not seen.changed():
            break
    if _settled(seen.signatures, begun_ns) and not seen.changed():
        made = {"key": key, "seen": seen.kept(), "providers": providers, "broken": broken}
        if cache.put(path, json.dumps(made).encode()):
            _sweep(paths.cache, providers, begun_ns)
    return Catalog(providers, broken, folders)


def kept(paths: Paths) -> Catalog | None:
    """The catalog as it was compiled last, None if the manifests have changed since. Compiles and writes nothing."""
    folders = manifest_folders()
    found = _kept(os.path.join(paths.cache, "catalog.json"), _key(folders))
    return Catalog(found["providers"], found["broken"], folders) if found is not None else None


def made_by() -> list[str]:
    """The modules that a catalog is made by: another version of one makes another catalog."""
    here = os.path.dirname(os.path.abspath(__file__))
    found = [os.path.join(here, f"{name}.py") for name in ("catalog", "manifest", "settable", "tomlfile", "readable")]
    for room in ("declared", "inputs"):
        folder = os.path.join(here, room)
        found += sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".py"))
    return found


def _key(folders: list[str]) -> list[Any]:
    return [FORMAT, sys.version, folders, config_files(), os.path.expanduser("~")]


def _kept(path: str, key: list[Any]) -> dict[str, Any] | None:
    """The stored catalog if it is ours, whole, and everything that it was made from is as it was."""
    data = cache.own_bytes(path)
    if data is None:
        return None
    try:
        kept = json.loads(data)
        if kept["key"] != key or not isinstance(kept["providers"], dict) or not isinstance(kept["broken"], dict):
            return None
        for name, was in kept["seen"].items():
            try:
                is_now = os.stat(name)
            except OSError:
                if was is not None:
                    return None
                continue
            if was is None or was[0] != is_now.st_mtime_ns or was[1] != is_now.st_size or was[2] != is_now.st_ino:
                return None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return None
    found: dict[str, Any] = kept
    return found


def _settled(signatures: dict[str, list[int] | None], begun_ns: int) -> bool:
    """Whether nothing that was read changed just before: a second change could look the same."""
    recent = begun_ns - int(SETTLED_S * 1e9)
    return not any(was and recent < was[0] < begun_ns + 2_000_000_000 for was in signatures.values())


def _sweep(folder: str, providers: dict[str, Any], now_ns: int) -> None:
    """Remove validators that no provider here names and nobody wrote for a week, and what a crash left half written."""
    named = {
        os.path.basename(str(spec["input"][which]))
        for entry in providers.values()
        for spec in entry["variants"].values()
        for which in ("validator", "params_validator")
    }
    store = os.path.join(folder, "validators")
    for where in (folder, store):
        try:
            with os.scandir(where) as entries:
                for each in entries:
                    age_s = (now_ns - each.stat(follow_symlinks=False).st_mtime_ns) / 1e9
                    old = where == store and each.name.partition(".")[0] not in named and age_s > 7 * 86400
                    if old or (each.name.endswith(".tmp") and age_s > 3600):
                        os.unlink(each.path)
        except OSError:
            continue
