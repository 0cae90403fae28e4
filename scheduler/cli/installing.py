"""`schedq install` and `schedq uninstall`: environments built, taken as they are, and removed."""

from __future__ import annotations

import os
import shlex
import time
from typing import Any

from scheduler import catalog, config, sitefile, wake
from scheduler.cli import endings, say, sight, torch_builds
from scheduler.cli.fast import Call
from scheduler.config import Paths
from scheduler.errors import Refused, SchedqError, Temporary, UsageError
from scheduler.host import environments, from_env, holds, marker, named_files, pip, removal
from scheduler.host.served import EVERY_S
from scheduler.store import peek

Spec = dict[str, Any]

SEEN_S = 2 * EVERY_S
"""How long a running scheduler may take to see that an environment is gone."""


def install(call: Call) -> int:
    """Make providers ready, one after another; progress on stderr. A signal ends what is running."""
    found = catalog.load(Paths())
    specs = [found.spec(slug) for slug in dict.fromkeys(call.many("slugs"))]
    if not specs:
        raise UsageError("install needs a provider; schedq providers list shows them")
    path, python = call.text("from_env"), call.text("python")
    given = [flag for flag in ("python", "offline", "find_links") if call.values.get(flag)]
    if path and given:
        flag = given[0].replace("_", "-")
        raise UsageError(f"--from-env builds nothing, and --{flag} says how something is built; give one of the two")
    sources = pip.sources(call.flag("offline"), call.many("find_links"))
    try:
        with endings.raised():
            for spec in specs:
                if path:
                    _take(spec, path)
                else:
                    _build(spec, python, sources)
    except endings.Ended as ended:
        raise ended.interrupted("nothing is being installed any more; the same call begins anew") from None
    wake.nudge(Paths())
    return 0


def _build(spec: Spec, python: str | None, sources: pip.Sources) -> None:
    name = _name(spec)
    taken = _taken(spec)
    if taken and spec["environment"]:
        raise UsageError(
            f"{name} runs in {spec['python']}, as {taken} says; schedq uninstall {name} ends that, then install builds"
            " its own"
        )
    if spec["python"] or not spec["environment"]:
        _note_not_ours(spec, python)
    else:
        made = environments.install(spec, say.note, python=python, sources=sources)
        if not made.fresh:
            say.note(f"{name}: already installed in {made.path}")
    _note_rest(spec)


def _note_not_ours(spec: Spec, python: str | None) -> None:
    missing = environments.missing({**spec, "files": []})
    if missing:
        raise SchedqError(missing)
    if python:
        raise UsageError(
            f"{_name(spec)} builds no environment: its manifest says what it runs in ({_program(spec)})"
            + ("; --from-env PATH takes another for this machine" if spec["python"] else "")
        )
    say.note(f"{_name(spec)}: nothing to install, it runs in {_program(spec)}")


def _program(spec: Spec) -> str:
    return str(spec["python"] or "a program of its own")


def _take(spec: Spec, path: str) -> None:
    """Record an environment that is there as the provider's, once the manifest's check has run in it."""
    name = _name(spec)
    if not spec["script"] and not any("{python}" in word for word in spec["command"] or []):
        raise UsageError(f"{name} runs in no Python: its command is {' '.join(spec['command'] or [])}")
    say.note(f"{name}: looking into {path}")
    taken = from_env.taken(spec, path)
    file = sitefile.put(config.config_files()[1], name, {"python": taken.python})
    now = catalog.load(Paths()).spec(name)
    held = (
        f"{say.counted(len(taken.packages.keys() - {'python'}), 'package')}, {holds.digest(taken.prefix)}"
        if taken.prefix
        else "?"
    )
    say.note(
        f"{name}: runs in {taken.python} (Python {taken.version}; {held}) from its next start on; recorded in {file}, "
        f"[providers.{name}]. It is used as it is: nothing in it is changed"
    )
    for each in taken.notes:
        say.note(f"{name}: note: {each}")
    if now["python"] != taken.python:
        say.note(f"{name}: warning: another layer of the configuration says {now['python']}, and that counts")
    warm = _workers([spec])
    if warm:
        say.note(
            f"{name}: {warm} still in the environment that it was started in; schedq workers retire {spec['slug']} ends"
            " it when it is idle"
        )
    _note_rest(now)


def _note_rest(spec: Spec) -> None:
    """What is worth knowing of a provider that is installed: a torch for no device, files that are not there yet."""
    torch_builds.note(spec, Paths())
    lacks = [row for file in spec["files"] if (row := named_files.state_of(spec, file))["text"]]
    if lacks:
        size = sum(row["bytes"] or 0 for row in lacks)
        told = f", {named_files.size(size)}" if size else ""
        say.note(
            f"{_name(spec)}: {say.counted(len(lacks), 'file')}{told}, still to be fetched: "
            f"{named_files.fetching(_name(spec), lacks)}"
        )


def _name(spec: Spec) -> str:
    return f"{spec['slug']}:{spec['variant']}" if spec["variant"] else str(spec["slug"])


def _taken(spec: Spec) -> str:
    """The file of the configuration that names a provider's interpreter; "" if its manifest does, or nothing."""
    from scheduler import manifest

    origin = manifest.origins(_name(spec)).get("worker.python", "") if spec["python"] else ""
    return next((file for file in config.config_files() if origin.startswith(f"{file} ")), "")


def _untaken(spec: Spec) -> str:
    """The file of the configuration that names the interpreter of a provider to be uninstalled; "" if none does.

    Refused if it names that of all variants, and one is to be uninstalled.
    """
    from scheduler import manifest

    file, slug = _taken(spec), spec["slug"]
    if file and spec["variant"] and f"[providers.{slug}]" in manifest.origins(_name(spec))["worker.python"]:
        raise Refused(
            f"{_name(spec)} runs in what {file} says of all variants of {slug}; nothing was changed. To end that for "
            f"all of them: schedq uninstall {slug}"
        )
    return file


def _workers(specs: list[Spec]) -> str:
    """Which workers of this queue run for these providers, as the beginning of a sentence; "" if none does.

    What was recorded of them counts while a scheduler runs: without one, the process table alone does.
    """
    paths = Paths()
    if not wake.scheduler_runs(paths):
        return ""
    slugs = {spec["slug"] for spec in specs}
    rows = [row for row in peek.status(paths)["workers"] if row["slug"] in slugs and row["state"] != "gone"]
    if not rows:
        return ""
    first = rows[0]
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    job = f" with job {first['job']}" if first.get("job") else ""
    verb = "runs" if len(rows) == 1 else "run"
    return f"worker {first['id']} of {first['slug']} ({first['state']}{job}){more} {verb}"


# --- away with it


def uninstall(call: Call) -> int:
    """Remove environments: those of some providers, or all that no provider declares. What may not go is told first.

    A provider that runs in an environment which was taken as it is stops running there; what was built for it stays.
    """
    paths, found = Paths(), catalog.load(Paths())
    specs = [found.spec(slug) for slug in dict.fromkeys(call.many("slugs"))]
    unused = call.flag("all_unused")
    if not specs and not unused:
        raise UsageError("uninstall needs a provider, or --all-unused; schedq providers list shows them")
    roots = config.envs()
    removal.sweep(roots)
    there = removal.found(roots)
    taken = {_name(spec): file for spec in specs if (file := _untaken(spec))}
    hashes = _hashes([spec for spec in specs if _name(spec) not in taken], found, there)
    names = {os.path.basename(marker.folder_of("", each)) for each in hashes}
    chosen = [each for each in there if (each.hash in hashes if each.hash else os.path.basename(each.path) in names)]
    if unused:
        _refuse_unknown(paths)
        chosen += [each for each in _unused(found, there) if each not in chosen]
    _refuse(chosen, specs, taken)
    rows = [{"path": each.path, "hash": each.hash, "bytes": removal.bytes_of(each.path)} for each in chosen]
    if not call.flag("dry_run"):
        _remove(call, rows, specs)
        for name in taken:
            if not sitefile.remove(config.config_files()[1], name, "python"):
                raise SchedqError(f"{taken[name]} no longer says what {name} runs in; look again")
        wake.nudge(paths)
    _tell(call, rows, taken)
    for spec in [spec for spec in specs if spec["environment"] and _name(spec) in taken]:
        left = [each.path for each in there if each not in chosen and each.hash == spec["environment"]["hash"]]
        if left:
            say.note(f"{_name(spec)}: what was built for it stays, in {', '.join(left)}; another such call removes it")
    return 0


def _remove(call: Call, rows: list[dict[str, Any]], specs: list[Spec]) -> None:
    """Remove environments one by one; what went is told also where one of them cannot."""
    done: list[dict[str, Any]] = []
    try:
        with endings.raised():
            for row in rows:
                removal.remove(row["path"], lambda path=row["path"]: _used_now(path, specs))  # type: ignore[misc]
                done.append(row)
    except (SchedqError, endings.Ended) as error:
        if done:
            _tell(call, done, {})
        if isinstance(error, endings.Ended):
            raise error.interrupted("what was not removed is as it was; the same call goes on") from None
        raise


def _hashes(specs: list[Spec], found: catalog.Catalog, there: list[removal.Found]) -> set[str]:
    """The hashes of the environments of these providers. Refused if one that is there is another's too.

    A provider that is named stands for all of its variants, a variant for itself.
    """
    named, built = {_name(spec) for spec in specs}, {each.hash for each in there}
    users = {
        spec["environment"]["hash"]: _name(spec)
        for slug, entry in found.providers.items() if slug not in named
        for spec in entry["variants"].values()
        if spec["environment"] and not spec["python"] and _name(spec) not in named
    }  # fmt: skip
    hashes = {spec["environment"]["hash"] for spec in specs if spec["environment"]}
    for spec in specs:
        other = users.get(spec["environment"]["hash"]) if spec["environment"] else None
        if other is not None and spec["environment"]["hash"] in built:
            own = _name(spec)
            raise Refused(
                f"the environment of {own} is that of {other} too; nothing was removed. To remove it, name both: "
                f"schedq uninstall {own} {other}"
            )
    return hashes


def _refuse_unknown(paths: Paths) -> None:
    """Refused while a scheduler of this queue serves manifests that this call does not know: they declare some too."""
    if not wake.scheduler_runs(paths):
        return
    about = sight.told(paths)
    if about is None:
        raise Temporary("the scheduler of this queue does not say which manifests it serves; nothing was removed")
    known = {os.path.realpath(each) for each in config.manifest_folders()}
    served = about.get("manifests")
    odd = [str(each) for each in served if os.path.realpath(str(each)) not in known] if isinstance(served, list) else []
    if odd:
        folders = ":".join([*config.manifest_folders()[1:], *odd])
        raise Refused(
            f"the scheduler of this queue serves the manifests in {odd[0]} too, and this call does not know what those "
            f"declare; nothing was removed. Name it here: SCHEDQ_MANIFESTS={shlex.quote(folders)} schedq "
            "uninstall --all-unused"
        )


def _unused(found: catalog.Catalog, there: list[removal.Found]) -> list[removal.Found]:
    """What no provider declares. Refused while a manifest is broken: nobody knows what that one uses."""
    if found.broken:
        slug = min(found.broken)
        raise Refused(
            f"the manifest of {slug} is broken, so what it uses is not known; nothing was removed. "
            f"schedq providers check {slug} says what is wrong"
        )
    declared = {
        spec["environment"]["hash"]
        for entry in found.providers.values() for spec in entry["variants"].values() if spec["environment"]
    }  # fmt: skip
    return [each for each in there if each.hash not in declared and each.ours]


def _refuse(chosen: list[removal.Found], specs: list[Spec], taken: dict[str, str]) -> None:
    """Refused or Temporary, with nothing removed, if one of them cannot be."""
    if specs and not chosen and not taken:
        told = "; ".join(environments.missing(spec) or f"{_name(spec)} runs in {spec['python']}" for spec in specs)
        raise Refused(f"there is nothing to remove: {told}")
    ours = config.config_files()[1]
    for name, file in taken.items():
        if file != ours:
            raise Refused(f"{name} runs in what {file} says; remove its python from [providers.{name}] there")
    for each in chosen:
        if not each.ours:
            raise Refused(f"{each.path} is another user's, or lies where you may not write; nothing was removed")
        why = _used(each.path, specs)
        if why:
            raise Temporary(why)


def _used(path: str, specs: list[Spec]) -> str:
    """Who runs in an environment, and what to do about it; "" if nobody does."""
    warm = _workers(specs)
    if warm:
        slug = specs[0]["slug"]
        return f"{warm} in {path}; nothing was removed. Wait, or end it (schedq workers retire {slug}), and ask again"
    pids = removal.used_by(path)
    if pids:
        shown = ", ".join(map(str, pids[:5])) + (f" and {len(pids) - 5} more" if len(pids) > 5 else "")
        noun = "process" if len(pids) == 1 else "processes"
        verb = "runs" if len(pids) == 1 else "run"
        return f"{noun} {shown} {verb} in {path}; nothing was removed. End it, or wait, and ask again"
    return ""


def _used_now(path: str, specs: list[Spec]) -> str:
    """The same, once a running scheduler has seen that nothing is to be started there."""
    if wake.scheduler_runs(Paths()):
        time.sleep(SEEN_S)
    return _used(path, specs)


def _tell(call: Call, rows: list[dict[str, Any]], taken: dict[str, str]) -> None:
    freed = sum(row["bytes"] for row in rows)
    if call.flag("json"):
        dry = call.flag("dry_run")
        told = {"removed": rows, "freed_bytes": freed, "no_longer_taken": sorted(taken), "dry_run": dry}
        say.out(say.document({"schema_version": 1, **told}))
        return
    would = "would " if call.flag("dry_run") else ""
    for name in taken:
        say.out(f"{would or ''}no longer run {name} in what {taken[name]} said; that environment stays as it is")
    for row in rows:
        what = "" if row["hash"] else ", left unfinished"
        say.out(f"{'would remove' if would else 'removed'} {row['path']} ({named_files.size(row['bytes'])}{what})")
    if not rows and not taken:
        say.out("nothing is unused")
    if len(rows) > 1:
        say.out(f"{'would free' if would else 'freed'} {named_files.size(freed)}")
