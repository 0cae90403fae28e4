"""What this host serves: the providers of the catalog, with what of each is installed, looked at again and again.

What was known of a provider whose manifest is broken or gone by now is kept for what still runs of it, and a catalog
that cannot be read at all changes nothing: it is said once, and the last one stands.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from scheduler import catalog
from scheduler.clock import monotonic_s
from scheduler.config import Paths
from scheduler.errors import SchedqError
from scheduler.host import commands, environments, interpreters, named_files
from scheduler.model.command import EXEC
from scheduler.model.provider import Provider

log = logging.getLogger("schedq")

EVERY_S = 1.0

Spec = dict[str, Any]


class Served:
    """Asked on the loop's thread and never waits for a program; what a slug declares may be asked on any."""

    def __init__(self, paths: Paths, answers: interpreters.Answers | None = None) -> None:
        self.paths = paths
        self._answers = answers or interpreters.Answers()
        self._specs: dict[tuple[str, str], Spec] = {}
        self._providers: dict[tuple[str, str], Provider] = {}
        self._looked_at: float | None = None
        self._trouble = ""

    def providers(self) -> dict[tuple[str, str], Provider]:
        """Every provider by (slug, variant), looked at anew once a second. SchedqError or OSError: first look only."""
        now = monotonic_s()
        if self._looked_at is not None and now - self._looked_at < EVERY_S:
            return self._providers
        try:
            self._providers = self._look()
            self._trouble = ""
        except (SchedqError, OSError) as error:
            if self._looked_at is None:
                raise
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.error("the providers stay as they were, since they cannot be read: %s", error)
        self._looked_at = now
        return self._providers

    def _look(self) -> dict[tuple[str, str], Provider]:
        now_there = catalog.load(self.paths)
        found: dict[tuple[str, str], Provider] = {}
        for slug, entry in now_there.providers.items():
            for variant, spec in entry["variants"].items():
                self._specs[slug, variant] = spec
                found[slug, variant] = provider_of(spec, self.missing(spec))
        for slug, message in now_there.broken.items():
            for key in {(slug, ""), *(key for key in self._specs if key[0] == slug)}:
                known = self._providers.get(key) or Provider(*key)
                found[key] = replace(known, installed=False, not_installed_text=f"its manifest is broken: {message}")
        for key in self._providers.keys() - found.keys():
            where = self._specs[key]["manifest"] if key in self._specs else "its manifest"
            name = ":".join(filter(None, key))
            text = f"{name} is in no manifest any more; put it back into {where}, or cancel its jobs"
            found[key] = replace(self._providers[key], installed=False, not_installed_text=text)
        return found

    def spec(self, slug: str, variant: str) -> Spec | None:
        """What a provider declares, every layer merged, or a command asks for; None if nothing was ever known of it."""
        if slug == EXEC:
            return commands.spec_of(variant)
        return self._specs.get((slug, variant))

    def files(self) -> list[str]:
        """The paths of all files that manifests name: weights, which are read when a worker loads."""
        return [
            named_files.path_of(spec, file) for spec in list(self._specs.values()) for file in spec.get("files", ())
        ]

    def missing(self, spec: Spec) -> str:
        """Why a provider is not installed; "" if nothing is known to be missing."""
        return environments.missing(spec, ask=self._answers.of)

    def python_of(self, spec: Spec) -> str:
        """The interpreter that a provider runs in; "" if there is none."""
        return environments.python_of(spec, ask=self._answers.of) or ""

    def budget_of(self, slug: str) -> tuple[float, float] | None:
        """What is declared for a slug: (device GiB, host GiB), None = unknown."""
        spec = self._specs.get((slug, ""))
        if spec is None or spec["vram_gib"] is None:
            return None
        return float(spec["vram_gib"]), float(spec["ram_gib"] or 0.0)


def provider_of(spec: Spec, missing: str) -> Provider:
    """A catalog entry's figures as the rules see them."""
    retry = spec["retry"]
    return Provider(
        slug=spec["slug"],
        variant=spec["variant"],
        revision=spec["revision"],
        environment=environments.identity(spec),
        mode=spec["mode"],
        policy=spec["policy"],
        vram_gib=spec["vram_gib"],
        ram_gib=spec["ram_gib"] or 0.0,
        count=spec["count"],
        threads=spec["threads"],
        max_workers=spec["max_workers"] or 0,
        start_timeout_s=spec["start_timeout_s"],
        request_timeout_s=spec["request_timeout_s"],
        idle_timeout_s=spec["idle_timeout_s"],
        stop_grace_s=spec["stop_grace_s"],
        later_for_s=spec["later_for_s"],
        max_attempts=retry["max_attempts"],
        retry_outcomes=tuple(retry["outcomes"]),
        backoff_s=retry["backoff_s"],
        installed=not missing,
        not_installed_text=missing,
    )
