"""Validation cases as jobs: which providers and variants declare some, and the rows that they become.

What cannot run here becomes a row too, one that has ended as `refused`, so that a report shows it beside the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scheduler.catalog import Catalog
from scheduler.client import Client
from scheduler.config import settings
from scheduler.errors import SchedqError
from scheduler.host import environments, named_files
from scheduler.host.machine.facts import facts as machine_facts
from scheduler.inputs.cache import sha256
from scheduler.model.command import called
from scheduler.rules import never
from scheduler.store import cases, peek

Spec = dict[str, Any]
Row = dict[str, Any]
MANIFEST = "provider.toml"
"""What the one case of a provider is called whose manifest is broken."""


@dataclass
class Night:
    """What is to be queued, and what is not: providers without a case, those that passed as they are, and those for
    which this machine has no device, each with how many cases it has and why.
    """

    rows: list[Row] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    left_out: list[tuple[str, int, str]] = field(default_factory=list)

    @property
    def refused(self) -> list[Row]:
        """The rows that are only there to be reported."""
        return [row for row in self.rows if row["beside"].get("refused")]


def name_of(spec: Spec) -> str:
    """`slug`, or `slug:variant`."""
    return called(spec["slug"], spec["variant"])


def chosen(catalog: Catalog, names: list[str]) -> list[Spec]:
    """The specs that these names mean, each once: a provider with its variants that declare cases of their own, or one
    variant. UnknownProvider, BrokenManifest: one of the names.
    """
    found: dict[str, Spec] = {}
    for name in names:
        spec = catalog.spec(name)
        found[name_of(spec)] = spec
        if ":" not in name:
            found |= {name_of(each): each for each in _own(catalog, spec["slug"])}
    return list(found.values())


def everything(catalog: Catalog) -> list[Spec]:
    """The specs of all providers, and of their variants that declare cases of their own."""
    return chosen(catalog, sorted(catalog.providers))


def _own(catalog: Catalog, slug: str) -> list[Spec]:
    variants = catalog.providers[slug]["variants"]
    return [spec for name, spec in variants.items() if name and spec["validation"] != variants[""]["validation"]]


def row_of(client: Client, spec: Spec, case: dict[str, Any], batch: str, **options: Any) -> Row:
    """The job's row of one validation case, its input checked. What memory the provider declares refuses none.

    It is called what `submit` of that input calls it, unless options say otherwise: its files are then called the same.
    """
    free = {**spec, "vram_gib": 0.0, "ram_gib": 0.0}
    [row] = client.checked(
        name_of(spec), [case["input"]], spec=free, params=case["params"], batch=batch,
        timeout_s=case["timeout_s"], **options,
    )  # fmt: skip
    return row


def facts(client: Client) -> Spec:
    """What this machine has, as it was last recorded in the queue; probed where nothing was."""
    found = peek.facts(client.paths)
    if found is None:
        from scheduler.look import look

        found = machine_facts(look(client.paths, settings()).snapshot.machine)
    return found


def never_here(spec: Spec, known: Spec) -> str:
    """Why no job of this provider can run on a machine of these facts as it is; "" = it may."""
    ruling, text = never.ruling(spec, known)
    if ruling:
        return f"{ruling}: {text}"
    return environments.missing(spec)


def planned(
    client: Client,
    specs: list[Spec],
    batch: str,
    *,
    fresh: bool = False,
    repeat: int = 1,
    changed: bool = False,
    here: bool = False,
    unseen: Callable[[Spec], str] = lambda spec: "",
) -> Night:
    """What a validation of these providers queues. `unseen`: why the scheduler that runs would never run one.

    `changed`: a provider is left out that can run and whose cases all passed the last time, with this revision, these
    inputs, parameters, expectations, and files that look the same. `here`: one is left out that needs a device where
    this machine has none at all; what is not installed, or too big, is not.
    """
    night, known = Night(), facts(client)
    for spec in specs:
        if not spec["validation"]:
            night.without.append(name_of(spec))
            continue
        ruling, text = never.ruling(spec, known)
        if here and ruling == "no_device":
            night.left_out.append((name_of(spec), len(spec["validation"]), text))
            continue
        why = never_here(spec, known) or unseen(spec)
        rows = [_row(client, spec, case, batch, why, fresh=fresh) for case in spec["validation"]]
        if changed and not why and all(_passed(client, row) for row in rows):
            night.unchanged.append(name_of(spec))
            continue
        night.rows += [dict(row) for row in rows for _ in range(repeat)]
    return night


def broken(slug: str, fault: str, batch: str) -> Row:
    """The row of a provider whose manifest is broken: refused, with the first fault of it."""
    first, *more = fault.split("\n")
    check = {"case": MANIFEST, "expect": {}}
    why = first + (f" (and {len(more)} more: schedq providers check {slug})" if more else "")
    return {"slug": slug, "name": MANIFEST, "batch": batch, "beside": {"check": check, "refused": why}}


def _row(client: Client, spec: Spec, case: dict[str, Any], batch: str, why: str, *, fresh: bool) -> Row:
    try:
        row = row_of(client, {**spec, "policy": "none"}, case, batch)
    except SchedqError as error:
        why, input_name = why or f"its input is refused: {error}", os.path.basename(case["input"])
        row = {
            "slug": spec["slug"], "variant": spec["variant"], "revision": spec["revision"],
            "name": os.path.splitext(input_name)[0], "batch": batch, "params": case["params"], "input_name": input_name,
            "input_sha256": _hash(case["input"]), "timeout_s": case["timeout_s"],
        }  # fmt: skip
    check = {"case": case["name"], "expect": case["expect"], "fresh": fresh, "files": named_files.looks(spec)}
    beside: Row = {"check": check}
    if why:
        beside["refused"] = why
    return {**row, "beside": beside}


def _hash(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return sha256(file.read())
    except OSError:
        return ""


def _passed(client: Client, row: Row) -> bool:
    check = row["beside"]["check"]
    return peek.looked(client.paths, lambda reader: cases.passed_as_is(reader, row, check), False)
