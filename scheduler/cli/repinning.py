"""`update --repin`: a job that was submitted for another revision of its provider, checked for the one that is here."""

from __future__ import annotations

from typing import Any

from scheduler import drafting, given, request
from scheduler.client import Client
from scheduler.errors import NoSuchJob, Refused, SchedqError
from scheduler.store import peek
from scheduler.store.row import as_text

WAITING = ("queued", "held")


class Repinning:
    """Each job's input, looked at before anything is written: a schema may take its time, and a write may not."""

    def __init__(self, client: Client, ids: list[int]) -> None:
        self._client = client
        self._specs: dict[str, dict[str, Any]] = {}
        self._columns = {job_id: self._looked_at(job_id) for job_id in ids}

    def columns(self, job_id: int) -> dict[str, Any]:
        """What a job's row says for the revision that is here: revision, params, size.

        Refused where its input, its parameters or the files that it names are not what that revision takes.
        """
        found = self._columns[job_id]
        if isinstance(found, SchedqError):
            raise Refused(f"job {job_id} is not moved to the revision that is here: {found}")
        return found

    def _looked_at(self, job_id: int) -> dict[str, Any] | SchedqError:
        try:
            job = peek.job(self._client.paths, job_id)
            slug = f"{job['slug']}:{job['variant']}" if job["variant"] else str(job["slug"])
            if slug not in self._specs:
                self._specs[slug] = self._client.spec(slug)
            spec = self._specs[slug]
            if spec["revision"] == job["revision"] or job["state"] not in WAITING:
                return {"revision": spec["revision"]}
            return self._checked(spec, job)
        except NoSuchJob:
            raise
        except SchedqError as error:
            return error

    def _checked(self, spec: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
        values = request.parameters(spec, given.assignments(job["params"]))
        data = peek.input_bytes(self._client.paths, job["id"]) or b""
        rules, alone = spec["input"]["files"], {**spec, "input": {**spec["input"], "files": []}}
        row = drafting.check(alone, data, job["input_name"], None, values, self._client.paths)
        refs = ((row.get("beside") or {}).get("draft") or {}).get("refs", ())
        _refuse_other_files(rules, row["input_kind"], data, job["files"], {ref["at"] for ref in refs})
        return {"revision": spec["revision"], "params": as_text(row["params"]), "size": row["size"]}


def _refuse_other_files(rules: list[Any], kind: str, data: bytes, kept: dict[str, Any], later: set[str]) -> None:
    """Refused if this revision takes other values of the input for files than were kept at submit.

    `later`: places of values that are still to come, which are checked then.
    """
    value = request.parsed(kind, data, "the input") if rules else None
    found = set()
    for rule in rules:
        pattern, words = (rule, ()) if isinstance(rule, str) else (rule["pointer"], rule["except"])
        found |= {
            at
            for at, path in request.found_at(value, pattern)
            if at not in later and path is not None and path not in words
        }
    if found != set(kept):
        other = ", ".join(sorted(found ^ set(kept))[:4])
        raise Refused(f"it takes other values of the input for files ({other}); submit it again")
