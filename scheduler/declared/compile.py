"""From a manifest and the site's overrides to what the rest reads: one merged spec per variant, with its revision.

Layers, later wins: the manifest, the site's `[providers.SLUG]`, the manifest's `[variants.X]`, the site's
values for that variant. The revision is over what decides an answer, never over what it costs. Slow: imported
when a manifest changed.
"""

from __future__ import annotations

import os
import re
from typing import Any

from pydantic import ValidationError

from scheduler.declared.declaration import PATHS, PLACEHOLDERS, SLUG, VARIANT, Manifest, faults, named, shown, strays
from scheduler.declared.layers import Source, origin_of
from scheduler.declared.refusals import contradictions, is_pinned, shells_of, unkept
from scheduler.declared.revision import environment_hash, revision
from scheduler.errors import BrokenManifest
from scheduler.inputs import cache, schema, validators
from scheduler.inputs.cache import Seen


def declared(source: Source, variant: str) -> Manifest:
    """One variant's manifest, every layer applied. BrokenManifest with every fault of it, one a line."""
    table, origins = source.merged(variant)
    wrong = dict(unkept(table))
    try:
        found = Manifest.model_validate(table)
    except ValidationError as error:
        wrong = {**dict(faults(error)), **wrong}
    if wrong:
        raise BrokenManifest(
            "\n".join(f"{_blamed(source, origin_of(key, origins))}: {named(key)}{why}" for key, why in wrong.items())
        )
    told = contradictions(found, source.folder)
    if told:
        raise BrokenManifest(
            "\n".join(f"{_blamed(source, origin_of(each.split(' ')[0], origins))}: {each}" for each in told)
        )
    return found


def _blamed(source: Source, origin: str) -> str:
    return source.path if origin == "default" else origin


def entry(source: Source, cache_folder: str, origin: str, seen: Seen) -> dict[str, Any]:
    """The catalog entry of a provider: every variant fully merged. BrokenManifest with every fault of all of them."""
    slips, warnings = strays({**source.raw, "variants": source.variants})
    wrong = [f"{source.path}: {each}" for each in slips]
    if not isinstance(source.variants, dict):
        raise BrokenManifest(
            f"{source.path}: variants = {shown(source.variants)}: must be a table; write [variants.NAME]"
        )
    for name, over in source.variants.items():
        if not re.fullmatch(VARIANT, name):
            wrong.append(f"{source.path}: variants.{name}: a variant's name has letters, digits, _ . and -; rename it")
        elif not isinstance(over, dict):
            wrong.append(f"{source.path}: variants.{name} = {shown(over)}: must be a table; write [variants.{name}]")
    unknown = [name for name in source.site if name and name not in source.variants]
    if unknown:
        there = ", ".join(source.variants) or "none"
        wrong.append(
            f"{source.path}: the configuration has values for its variant {unknown[0]}, and its variants are: {there}; "
            f"correct [providers.{source.slug}]"
        )
    specs: dict[str, Any] = {}
    if not wrong:
        for variant in ("", *source.variants):
            try:
                found = declared(source, variant)
                spec = _spec(source, found, variant, cache_folder, seen)
                spec["revision"] = revision(source.folder, found, variant, spec, seen)
                if found.env:
                    spec["environment"] = {
                        "python": found.env.python, "requirements": found.env.requirements, "check": found.env.check,
                        "hash": environment_hash(found.env),
                    }  # fmt: skip
                spec["warnings"] = [*warnings, *_warnings(found, source, variant)]
                specs[variant] = spec
            except BrokenManifest as error:
                wrong += [line for line in str(error).split("\n") if line not in wrong]
    if wrong:
        raise BrokenManifest("\n".join(wrong))
    return {
        "slug": source.slug, "title": specs[""]["title"], "folder": source.folder, "manifest": source.path,
        "origin": origin, "variants": specs,
    }  # fmt: skip


def expanded(text: str, folder: str) -> str:
    """A path of a manifest: `~` expanded, relative to the manifest's folder."""
    return os.path.normpath(os.path.join(folder, os.path.expanduser(text)))


def _words(words: list[str]) -> list[str]:
    return [os.path.expanduser(word) if word.startswith("~") else word for word in words]


def _spec(source: Source, found: Manifest, variant: str, cache_folder: str, seen: Seen) -> dict[str, Any]:
    worker, asked, folder = found.worker, found.input, source.folder
    wrong: list[str] = []

    def there(key: str, text: str | None) -> str | None:
        if text is None:
            return None
        where = f"variants.{variant}.{key}" if variant and _varies(source.variants[variant], key) else key
        if text.lstrip()[:1] in ("{", "[") or "\n" in text:
            named = PATHS[re.sub(r"\[\d+\]", "", key)]
            wrong.append(f"{source.path}: {where} = {shown(text)}: must be the path of {named}")
            return None
        path = expanded(text, folder)
        seen.look(os.path.dirname(path))
        why = seen.fault(path)
        if why:
            wrong.append(f"{source.path}: {where} = {shown(text)}: {path} {why}")
        return path

    python = worker.python
    if python is not None and ("/" in python or python.startswith("~")) and not python.startswith("$"):
        python = expanded(python, folder)
    script = there("worker.script", worker.script)
    schema_path, params_path = there("input.schema", asked.schema_), there("input.params", asked.params)
    cases = [
        {"name": each.name, "input": there(f"validation[{index}].input", each.input), "params": each.params,
         "expect": each.expect, "timeout_s": each.timeout_s}
        for index, each in enumerate(found.validation)
    ]  # fmt: skip
    example = there("example", found.example) or there("input.example", asked.example)
    if wrong:
        raise BrokenManifest("\n".join(wrong))
    rules = schema.read(schema_path) if schema_path else {}
    params = schema.read(params_path) if params_path else {}
    return {
        "slug": found.slug, "variant": variant, "title": found.title or found.slug, "mode": found.mode,
        "folder": folder, "manifest": source.path, "revision": "", "policy": found.gpu.policy,
        "vram_gib": found.gpu.vram_budget_gb if found.gpu.policy == "required" else 0.0,
        "ram_gib": found.host.ram_budget_gb, "count": found.gpu.count, "threads": found.cpu.threads,
        "python": python, "script": script, "args": _words(worker.args),
        "command": None if worker.command is None else _words(worker.command), "wrap": _words(worker.wrap),
        "outputs": worker.outputs, "env": worker.env, "unset": worker.unset, "pass": worker.pass_,
        "start_timeout_s": worker.start_timeout_s, "request_timeout_s": worker.request_timeout_s,
        "idle_timeout_s": worker.idle_timeout_s, "max_workers": worker.max_workers, "stop_grace_s": worker.stop_grace_s,
        "later_for_s": worker.later_for_s, "retry": found.retry.model_dump(), "environment": None,
        "files": [
            {**each.model_dump(), "path": each.path if each.path[0] == "$" else expanded(each.path, folder)}
            for each in found.files
        ],
        "input": {
            "accept": asked.accept, "schema": schema_path, "params": params_path,
            "files": [
                {"pointer": each.pointer, "except": each.except_} if each.except_ else each.pointer
                for each in asked.files
            ],
            "size": {} if asked.size.sum_len is None else {"sum_len": asked.size.sum_len},
            "validator": _validator(schema_path, cache_folder, seen),
            "params_validator": _validator(params_path, cache_folder, seen),
            "defaults": {
                name: rule["default"] for name, rule in params.get("properties", {}).items()
                if isinstance(rule, dict) and "default" in rule
            },
            "shared": [name for name in params.get("properties", {}) if name in rules.get("properties", {})],
            "apart": [
                name for name in params.get("properties", {})
                if isinstance(rule := rules.get("properties", {}).get(name), dict) and rule.get("readOnly") is True
            ],
        },
        "example": example or (cases[0]["input"] if cases else None), "validation": cases, "warnings": [],
    }  # fmt: skip


def _varies(over: Any, key: str) -> bool:
    for part in re.sub(r"\[\d+\]", "", key).split("."):
        if not isinstance(over, dict) or part not in over:
            return isinstance(over, list)
        over = over[part]
    return True


def _validator(path: str | None, cache_folder: str, seen: Seen) -> str | None:
    """Where the compiled validator of a schema lies in the cache; made if it is not there yet."""
    if path is None:
        return None
    base = os.path.join(cache_folder, "validators", cache.sha256(seen.bytes_of(path))[:32])
    if not validators.is_kept(base):
        validators.keep(base, schema.compiled(path))
    return base


def _warnings(found: Manifest, source: Source, variant: str) -> list[str]:
    told = []
    if found.host.ram_budget_gb is None:
        told.append("host.ram_budget_gb is missing: charged its learned host use, 0 until measured")
    if found.gpu.policy == "required" and found.gpu.vram_budget_gb is None:
        told.append("gpu.vram_budget_gb is missing: nothing is admitted (undeclared) until it is measured")
    loose = [line for line in (found.env.requirements if found.env else ()) if not is_pinned(line)]
    if loose:
        more = f" and {len(loose) - 1} more" if len(loose) > 1 else ""
        told.append(
            f"env.requirements: {shown(loose[0])}{more} pins no version: what is installed depends on the day; write "
            "NAME==VERSION"
        )
    if "gpu" not in source.raw:
        told.append('[gpu] is missing: policy = "required" is assumed')
    for key, words in (("wrap", found.worker.wrap), ("command", found.worker.command or [])):
        if shells_of(words):
            told.append(
                f"worker.{key} runs a shell ({shells_of(words)[0]}): what its text starts is not looked into; it must "
                "stay the parent of the worker, or become it (exec)"
            )
    words = found.worker.command or []
    if words and not any("{input}" in word or "{request}" in word for word in words):
        told.append("worker.command has no {input}: the request's file is not handed on")
    if words and found.input.files and not any("{request}" in word for word in words):
        told.append(
            "worker.command has no {request}: the files that an input names are told there, and in no other place"
        )
    for name in sorted(set(re.findall(r"\{([a-z_]+)\}", " ".join(words))) - set(PLACEHOLDERS)):
        told.append(
            f"worker.command has {{{name}}}, which is none of {', '.join('{' + each + '}' for each in PLACEHOLDERS)}"
        )
    return told


def is_slug(name: str) -> bool:
    """Whether a folder's name can be a provider's."""
    return re.fullmatch(SLUG, name) is not None
