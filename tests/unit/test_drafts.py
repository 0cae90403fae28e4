"""Inputs that take results of other jobs: how they are written, checked, and made once the results are there."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from manifests_made import BASE, Manifests
from queues import asked, row, writing

from scheduler import catalog, config, drafting, pinning, request
from scheduler.client import Client
from scheduler.config import Paths
from scheduler.errors import InvalidInput, NoSuchJob, Refused, UsageError
from scheduler.inputs.drafts import filled, references
from scheduler.store import content, intake, operator, passing, peek, results
from scheduler.store import drafts as stored
from scheduler.store.engine import Store, check
from scheduler.store.gates import PINNED

FOLDED = BASE + 'files = ["/sequences/*/msa"]\nsize = { sum_len = "/sequences/*/aa" }\n'
AT = "2027-01-15T08:00:00.000000Z"


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    real, made = config._bundled, Manifests(tmp_path, monkeypatch)
    monkeypatch.setattr(config, "_bundled", lambda name: real(name) if name == "migrations" else str(tmp_path / name))
    made.add(text=FOLDED)
    made.add("pdb", BASE.replace('schema = "input.schema.json"', "").replace('".json", ".yaml"', '".pdb"'))
    return Paths()


def chain(**more: Any) -> dict[str, Any]:
    return {"sequences": [{"id": "A", **more}]}


def given(
    paths: Paths, value: Any, name: str = "x.json", folder: str | None = "/", slug: str = "fold"
) -> dict[str, Any]:
    """The row of an input, as `submit` makes it."""
    spec, data = catalog.load(paths).spec(slug), value if isinstance(value, bytes) else json.dumps(value).encode()
    found = drafting.check(spec, data, name, folder, request.parameters(spec, []), paths)
    return {"slug": slug, "data": data, "revision": spec["revision"], "name": "child", **found}


def refusal(paths: Paths, value: Any, **more: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        given(paths, value, **more)
    return str(caught.value)


def parent(paths: Paths, reply: Any, folder: Path | None = None, state: str = "succeeded") -> int:
    """A job that has answered this; its id."""
    (job_id,) = intake.submit(paths, [row()])
    store = Store(paths)
    with store.write() as tx:
        results.put(tx, job_id, 1, json.dumps(reply).encode(), str(folder) if folder else None)
    store.close()
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = ?, ended_at = ? WHERE id = ?", (state, AT, job_id))
    return job_id


def made(paths: Paths, job_id: int) -> pinning.Made:
    """What comes of a draft, written as the scheduler does it."""
    found = pinning.made(paths, job_id)
    assert found is not None
    store = Store(paths)
    with store.write() as tx:
        if found.fault is not None:
            passing.refuse(tx, job_id, *found.fault, AT)
        else:
            for sha256 in list(found.staged):
                content.place(paths, found.staged.pop(sha256), sha256)
            passing.pin(tx, job_id, found.pins, found.columns, found.data, AT)
    store.close()
    found.discard()
    assert check(paths) == []
    return found


def input_of(paths: Paths, job_id: int) -> Any:
    return json.loads(peek.input_bytes(paths, job_id) or b"")


def test_every_reference_is_found_with_its_place() -> None:
    value = {
        "a": [{"$from": 7}, 1],
        "b/c": {"$from": "x", "pointer": "/y"},
        "d": {"$from": " last ", "file": "o/*.pdb"},
    }
    assert references(value, "x") == [
        {"at": "/a/0", "job": "7", "pointer": ""},
        {"at": "/b~1c", "job": "x", "pointer": "/y"},
        {"at": "/d", "job": "last", "file": "o/*.pdb"},
    ]
    assert filled(value, lambda at: at) == {"a": ["/a/0", 1], "b/c": "/b~1c", "d": "/d"}
    assert filled(1, lambda at: at) == 1


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ({"$from": True}, "$from names a job by id"),
        ({"$from": " "}, "$from names a job by id"),
        ({"$from": 1, "pointre": "/x"}, 'beside $from stands "pointre"'),
        ({"$from": 1, "pointer": "/x", "file": "y"}, "not both"),
        ({"$from": 1, "pointer": "x"}, "must be text like /designs/0/score"),
        ({"$from": 1, "pointer": 3}, "must be text like"),
        ({"$from": 1, "file": "../y"}, "leads out of them"),
        ({"$from": 1, "file": "/etc/passwd"}, "leads out of them"),
        ({"$from": 1, "file": ""}, "the file must be a name"),
    ],
)
def test_a_reference_that_is_not_written_as_it_must_be_is_refused_by_its_place(node: Any, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        references({"s": [node]}, "x.json")
    assert str(caught.value).startswith("x.json: at /s/0: ") and text in str(caught.value)


def test_what_is_known_is_checked_at_submit_and_what_is_not_is_passed_over(paths: Paths) -> None:
    ref = {"$from": 1, "pointer": "/aa"}
    assert given(paths, chain(aa=ref))["beside"] == {
        "draft": {"refs": [{"at": "/sequences/0/aa", "job": "1", "pointer": "/aa", "as": "value"}]}
    }
    given(paths, {"sequences": ref}), given(paths, {"sequences": [ref]}), given(paths, chain(aa={"$from": 1}, msa=ref))
    given(paths, b"sequences:\n- {id: {$from: last}}\n", name="x.yaml")
    assert 'at the top: lacks "sequences"' in refusal(paths, {"seed": {"$from": 1}})
    assert 'at /sequences/0: has no key "oops"' in refusal(paths, chain(aa=ref, oops=1))
    assert 'at /sequences/0/id: must match pattern ^[A-Z]+$, and is "a"' in refusal(
        paths, {"sequences": [{"id": "a", "aa": ref}]}
    )
    assert "is checked when its job has ended" in refusal(paths, {"sequences": [ref, {"id": "A", "aa": 3}]})


def test_an_input_that_only_looks_like_a_draft_is_none(paths: Paths) -> None:
    assert "beside" not in given(paths, chain(aa="$from"))


def test_files_that_a_draft_names_itself_are_kept_at_submit(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "a.a3m").write_text(">a")
    found = given(paths, chain(aa={"$from": 1}, msa="a.a3m"), folder=str(tmp_path))
    assert list(found["files"]) == ["/sequences/0/msa"]
    assert "cannot be used" in refusal(paths, chain(aa={"$from": 1}, msa="b.a3m"), folder=str(tmp_path))


def test_a_draft_that_is_all_a_reference_may_be_for_a_provider_of_other_files(paths: Paths) -> None:
    found = given(paths, {"$from": "parent", "pointer": "/pdb"}, slug="pdb")
    assert found["beside"]["draft"]["refs"][0]["as"] == "input" and found["input_kind"] == "json"
    given(paths, {"$from": "parent", "file": "*.pdb"}, slug="pdb")
    assert "is a .cif file, and pdb takes .pdb" in refusal(paths, {"$from": 1, "file": "a.cif"}, slug="pdb")
    assert "a document that is nothing but" in refusal(paths, {"x": {"$from": 1}}, slug="pdb")


def test_an_input_is_made_of_what_was_answered(paths: Paths) -> None:
    first, second = parent(paths, {"aa": "MK", "n": [1]}), parent(paths, {"aa": "QL" * 20_000})
    (child,) = intake.submit(
        paths,
        [
            given(
                paths,
                {"sequences": [{"id": "A", "aa": {"$from": first, "pointer": "/aa"}},
                               {"id": "B", "aa": {"$from": second, "pointer": "/aa"}}]},
            )
        ],
    )  # fmt: skip
    assert asked(paths, "SELECT blocked FROM jobs WHERE id = ?", child) == [("after",)]
    made(paths, child)
    value = input_of(paths, child)
    assert value["sequences"][0] == {"id": "A", "aa": "MK"} and len(value["sequences"][1]["aa"]) == 40_000
    shown = peek.job(paths, child)
    assert shown["blocked"] is None and shown["size"] == 40_002.0 and shown["draft"]["made_at"] == AT
    assert [each["event"] for each in shown["story"]][-1] == "input"
    assert pinning.made(paths, child) is None


def test_what_is_there_is_pinned_at_once_and_stays_whatever_becomes_of_it(paths: Paths) -> None:
    first = parent(paths, {"aa": "MK"})
    (second,) = intake.submit(paths, [row()])
    refs = [{"$from": each, "pointer": "/aa"} for each in (first, second)]
    (child,) = intake.submit(paths, [given(paths, {"sequences": [{"id": "A", "aa": ref} for ref in refs]})])
    assert list(made(paths, child).pins) == ["0"]
    with writing(paths) as db:
        db.execute("DELETE FROM results WHERE job_id = ?", (first,))
        db.execute("INSERT INTO results (job_id, attempt, bytes, reply) VALUES (?, 1, 1, ?)", (second, b'{"aa": null}'))
        db.execute("UPDATE jobs SET state = 'succeeded' WHERE id = ?", (second,))
        db.execute("UPDATE jobs SET state = 'succeeded' WHERE id = ?", (first,))
    found = made(paths, child)
    assert found.fault == (
        "refused",
        f"x.json, made of job {first} /aa, job {second} /aa: at /sequences/1/aa: must be text, not null; fold accepts"
        f" what {catalog.load(paths).spec('fold')['input']['schema']} describes",
    )
    shown = peek.job(paths, child)
    assert (shown["state"], shown["outcome"]["kind"]) == ("failed", "refused")


def test_a_file_becomes_a_path_where_files_are_named_and_text_elsewhere(paths: Paths, tmp_path: Path) -> None:
    out = tmp_path / "made"
    out.mkdir()
    (out / "a.a3m").write_text(">a\nMK"), (out / "seq.txt").write_text("MK"), (out / "job.json").write_text("{}")
    first = parent(paths, {"msa": "a.a3m"}, out)
    bodies = [
        chain(aa={"$from": first, "file": "*.txt"}, msa={"$from": first, "file": "a.a3m"}),
        chain(aa="MK", msa={"$from": first, "pointer": "/msa"}),
    ]
    for body in bodies:
        (child,) = intake.submit(paths, [given(paths, body)])
        made(paths, child)
        shown = peek.job(paths, child)
        assert input_of(paths, child) == chain(aa="MK", msa=str(out / "a.a3m")), shown
        (entry,) = shown["files"].values()
        assert list(shown["files"]) == ["/sequences/0/msa"] and content.read(paths, entry["sha256"]) == b">a\nMK"
    assert len(asked(paths, PINNED)) == 2


@pytest.mark.parametrize(
    ("ref", "text"),
    [
        ({"pointer": "/ab"}, "the reply has nothing at '/ab': its top has aa, n"),
        ({"file": "b.txt"}, "has no output b.txt; did you mean a.txt? its outputs are a.txt, c.pdb, d.pdb"),
        ({"file": "*.pdb"}, "*.pdb matches 2 of its outputs: c.pdb, d.pdb; name one"),
        ({"file": "*.json"}, "has no output *.json"),
    ],
)
def test_what_is_not_there_ends_the_child_and_says_what_is(
    paths: Paths, tmp_path: Path, ref: dict[str, str], text: str
) -> None:
    out = tmp_path / "made"
    out.mkdir()
    for name in ("a.txt", "c.pdb", "d.pdb", "job.json"):
        (out / name).write_text("{}")
    first = parent(paths, {"aa": "MK", "n": [1]}, out)
    (child,) = intake.submit(paths, [given(paths, chain(aa={"$from": first, **ref}))])
    made(paths, child)
    shown = peek.job(paths, child)
    assert (shown["state"], shown["outcome"]["kind"]) == ("failed", "parent_failed")
    assert shown["outcome"]["text"].startswith(f"job {first} (boltz ligand)") and text in shown["outcome"]["text"]


def test_outputs_that_were_overwritten_or_are_gone_are_not_taken(paths: Paths, tmp_path: Path) -> None:
    out = tmp_path / "made"
    out.mkdir()
    (out / "a.txt").write_text("MK")
    (out / "job.json").write_text('{"job": 99}')
    first, gone = parent(paths, {}, out), parent(paths, {}, Path(paths.results) / "gone")
    os.makedirs(paths.results, exist_ok=True)
    for job_id, text in ((first, "were overwritten by job 99"), (gone, "gone are gone")):
        (child,) = intake.submit(paths, [given(paths, chain(aa={"$from": job_id, "file": "a.txt"}))])
        found = made(paths, child)
        assert found.fault is not None and text in found.fault[1]


def test_the_whole_input_is_the_files_bytes_under_its_own_name_or_the_value(paths: Paths, tmp_path: Path) -> None:
    out = tmp_path / "made"
    out.mkdir()
    (out / "one.pdb").write_text("ATOM      1\n")
    first = parent(paths, {"pdb": "ATOM      2\n", "doc": chain(aa="MK")}, out)
    by_file, by_value = intake.submit(
        paths, [given(paths, {"$from": first, **ref}, slug="pdb") for ref in ({"file": "*.pdb"}, {"pointer": "/pdb"})]
    )
    (document,) = intake.submit(paths, [given(paths, {"$from": first, "pointer": "/doc"})])
    for child, name, data in (
        (by_file, "one.pdb", b"ATOM      1\n"), (by_value, "x.pdb", b"ATOM      2\n"),
        (document, "x.json", json.dumps(chain(aa="MK")).encode()),
    ):  # fmt: skip
        made(paths, child)
        assert peek.input_bytes(paths, child) == data and peek.job(paths, child)["input_name"] == name
    assert [peek.job(paths, each)["input_kind"] for each in (by_file, by_value, document)] == ["pdb", "pdb", "json"]


def test_a_reference_is_a_parent_by_itself_by_key_name_last_or_parent(paths: Paths) -> None:
    (first,) = intake.submit(paths, [row()])
    rows = [
        {**given(paths, chain(aa={"$from": "fold"})), "name": "by key"},
        {**row(key="fold")},
        {**given(paths, chain(aa={"$from": "by key"})), "name": "by name"},
        given(paths, chain(aa={"$from": "last"})),
    ]
    alone = given(paths, chain(aa={"$from": "parent"}))
    alone["beside"] = {**alone["beside"], "after": [f"{first}:any"]}
    a, b, c, d, e = intake.submit(paths, [*rows, alone])
    found = asked(
        paths, "SELECT w.job_id, g.parent_id, g.need FROM waits w JOIN gates g ON g.id = w.gate_id ORDER BY 1, 3"
    )
    assert found == [
        (a, b, "ok"), (c, a, "ok"), (d, first, "ok"), (e, first, "any"), (e, first, "ok"),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="means the one job that this comes after, and no --after"):
        intake.submit(paths, [given(paths, chain(aa={"$from": "parent"}))])
    with pytest.raises(NoSuchJob, match="names 'flod', and no other row"):
        intake.submit(paths, [given(paths, chain(aa={"$from": "flod"}))])
    with pytest.raises(UsageError, match="waits for itself"):
        intake.submit(paths, [{**given(paths, chain(aa={"$from": "me"})), "name": "me"}])


def test_a_key_finds_the_job_that_was_made_of_the_same_draft(paths: Paths) -> None:
    first = parent(paths, {"aa": "MK"})
    (child,) = intake.submit(paths, [{**given(paths, chain(aa={"$from": first, "pointer": "/aa"})), "key": "k"}])
    made(paths, child)
    again = {**given(paths, chain(aa={"$from": first, "pointer": "/aa"})), "key": "k"}
    assert intake.submit(paths, [again]) == [child]


def test_what_an_input_takes_is_not_let_go_of(paths: Paths) -> None:
    (first,) = intake.submit(paths, [row()])
    child = given(paths, chain(aa={"$from": first}))
    child["beside"] = {**child["beside"], "after": [f"{first}:any"]}
    (job_id,) = intake.submit(paths, [child])
    store = Store(paths)
    with store.write() as tx:
        assert passing.untie(tx, job_id, AT) == f"--after none, but for job {first}, whose result it takes"
        with pytest.raises(Exception, match=f"takes the result of job {first}, and cannot be made without it"):
            passing.untie(tx, job_id, AT)
        operator.hold(tx, job_id, AT), operator.release(tx, job_id, AT)
    store.close()
    assert peek.job(paths, job_id)["blocked"] == "after"


def test_a_program_queues_what_comes_after_and_each_after_a_batch(paths: Paths) -> None:
    queue = Client(paths.home)
    first = queue.submit_many("fold", [chain(aa="MK"), chain(aa="QL")], batch="model")
    queue.submit("fold", chain(), after=[first[0], "model:any"], on_parent="hold")
    taken = queue.submit_many("fold", [chain(aa={"$from": "parent", "pointer": "/aa"})], each_after="model", after=3)
    shown = [peek.job(paths, each) for each in (3, *taken)]
    assert [{gate.get("id", gate.get("batch")) for gate in each["parents"]} for each in shown] == [
        {1, "model"}, {1, 3}, {2, 3},
    ]  # fmt: skip
    assert [each["on_parent"] for each in shown] == ["hold", "fail", "fail"]
    assert [ref["job"] for each in shown[1:] for ref in each["draft"]["refs"]] == first
    with pytest.raises(UsageError, match="after = True: must be a job's id"):
        queue.submit("fold", chain(), after=True)
    with pytest.raises(UsageError, match="'keep' is none of fail, hold"):
        queue.submit("fold", chain(), on_parent="keep")
    with pytest.raises(UsageError, match="it has 2 jobs, and 3 inputs were given"):
        queue.submit_many("fold", [chain()] * 3, each_after="model")
    with pytest.raises(NoSuchJob, match="did you mean model"):
        queue.submit_many("fold", [chain()], each_after="modle")


def test_a_provider_that_is_gone_puts_a_draft_off(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    first = parent(paths, {"aa": "MK"})
    (child,) = intake.submit(paths, [given(paths, chain(aa={"$from": first, "pointer": "/aa"}))])
    with writing(paths) as db:
        db.execute("UPDATE jobs SET slug = 'foldd' WHERE id = ?", (child,))
    found = pinning.made(paths, child)
    assert found is not None and found.fault is None and "foldd" in found.put_off
    assert stored.opened(paths, child) is not None


def child_of(paths: Paths, value: Any, **more: Any) -> int:
    (child,) = intake.submit(paths, [given(paths, value, **more)])
    return child


def test_an_input_is_not_made_by_another_revision_than_its_job_was_submitted_for(paths: Paths) -> None:
    first = parent(paths, {"aa": "MK"})
    child = child_of(paths, chain(aa={"$from": first, "pointer": "/aa"}))
    with writing(paths) as db:
        db.execute("UPDATE jobs SET revision = 'older' WHERE id = ?", (child,))
    found = pinning.made(paths, child)
    assert found is not None and found.fault is None and found.columns is None and found.pins
    assert found.put_off.startswith("it was submitted for revision older of fold, and ")
    assert f"schedq update --repin {child}" in found.put_off


def test_what_the_disk_cannot_tell_now_ends_no_job(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share that is not mounted, and one that answers EIO: each may be there again."""
    out = tmp_path / "made"
    out.mkdir()
    (out / "a.txt").write_text("MK")
    away, sick = parent(paths, {}, tmp_path / "share"), parent(paths, {"p": "a.txt"}, out)
    gone = pinning.made(paths, child_of(paths, chain(aa={"$from": away, "file": "a.txt"})))
    assert gone is not None and gone.fault is None and "share are not there now" in gone.put_off
    real = os.stat

    def fail(path: Any, *more: Any, **others: Any) -> Any:
        if str(path).endswith("a.txt"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path, *more, **others)

    monkeypatch.setattr(os, "stat", fail)
    for ref in ({"aa": {"$from": sick, "file": "a.txt"}}, {"aa": "MK", "msa": {"$from": sick, "pointer": "/p"}}):
        found = pinning.made(paths, child_of(paths, chain(**ref)))
        assert found is not None and found.fault is None and "Input/output error" in found.put_off


def test_text_that_is_none_is_a_fault_of_the_input(paths: Paths) -> None:
    first = parent(paths, {"pdb": "ATOM\udc80"})
    found = made(paths, child_of(paths, {"$from": first, "pointer": "/pdb"}, slug="pdb"))
    assert found.fault == ("refused", f"job {first} /pdb would be the input, and its character 4 is no text")


def test_a_large_input_is_staged_before_anything_is_written_and_holds_no_memory(paths: Paths) -> None:
    first = parent(paths, {"aa": "MK" * 50_000})
    child = child_of(paths, chain(aa={"$from": first, "pointer": "/aa"}))
    found = pinning.made(paths, child)
    assert found is not None and found.columns is not None and found.data is None
    assert found.columns["input_sha256"] in found.staged
    found.discard()
    made(paths, child)
    assert len(input_of(paths, child)["sequences"][0]["aa"]) == 100_000
    assert asked(paths, "SELECT input IS NULL FROM jobs WHERE id = ?", child) == [(1,)]


def test_a_file_that_is_too_large_for_an_input_is_refused_before_it_is_read(paths: Paths, tmp_path: Path) -> None:
    out = tmp_path / "made"
    out.mkdir()
    with open(out / "big.pdb", "wb") as file:
        file.truncate(65 << 20)
    first = parent(paths, {}, out)
    found = made(paths, child_of(paths, {"$from": first, "file": "big.pdb"}, slug="pdb"))
    assert found.fault is not None and not found.staged
    assert found.fault[1].startswith(f"job {first} (boltz ligand): the file big.pdb has 68157440 bytes, above")


def test_a_piece_that_is_kept_already_is_named_as_relied_on(paths: Paths, tmp_path: Path) -> None:
    out = tmp_path / "made"
    out.mkdir()
    (out / "a.a3m").write_text(">a\nMK")
    first = parent(paths, {"msa": "a.a3m"}, out)
    sha256 = content.put(paths, b">a\nMK")
    found = pinning.made(paths, child_of(paths, chain(aa="MK", msa={"$from": first, "pointer": "/msa"})))
    assert found is not None and found.relied == {sha256} and not found.staged


def test_links_to_folders_are_not_followed_in_search_of_a_file(paths: Paths, tmp_path: Path) -> None:
    out = tmp_path / "made"
    (out / "run1").mkdir(parents=True)
    (out / "run1" / "x.pdb").write_text("ATOM      1\n")
    for name, to in (("a", "."), ("b", "."), ("latest", "run1")):
        (out / name).symlink_to(to)
    first = parent(paths, {}, out)
    for file in ("**/x.pdb", "latest/*.pdb", "latest/x.pdb", "*/x.pdb"):
        child = child_of(paths, {"$from": first, "file": file}, slug="pdb")
        made(paths, child)
        assert peek.input_bytes(paths, child) == b"ATOM      1\n", file


def test_a_file_is_found_by_the_path_that_its_worker_had_and_never_outside(paths: Paths, tmp_path: Path) -> None:
    out = tmp_path / "made"
    out.mkdir()
    (out / "a.a3m").write_text(">a\nMK"), (tmp_path / "b.a3m").write_text(">b\nMK")
    first = parent(paths, {"msa": os.path.join(paths.attempt(1, 1), "out", "a.a3m"), "up": "../b.a3m"}, out)
    child = child_of(paths, chain(aa="MK", msa={"$from": first, "pointer": "/msa"}))
    made(paths, child)
    assert input_of(paths, child) == chain(aa="MK", msa=str(out / "a.a3m"))
    found = made(paths, child_of(paths, chain(aa="MK", msa={"$from": first, "pointer": "/up"})))
    assert found.fault is not None and found.fault[1].endswith("leads out of its outputs")


def test_a_key_means_a_draft_with_its_parameters_and_its_parent(paths: Paths) -> None:
    first, second = parent(paths, {"aa": "MK"}), parent(paths, {"aa": "QL"})
    draft = chain(aa={"$from": "parent", "pointer": "/aa"})

    def asking(of: int, seed: int, **more: Any) -> dict[str, Any]:
        found = {**given(paths, draft), "params": {"seed": seed}, **more}
        return {**found, "beside": {**found["beside"], "after": [str(of)]}}

    (child,) = intake.submit(paths, [asking(first, 1, key="k")])
    made(paths, child)
    assert intake.submit(paths, [asking(first, 1, key="k")]) == [child]
    for other in (asking(first, 2, key="k"), asking(second, 1, key="k")):
        with pytest.raises(Refused, match="asks fold for something else"):
            intake.submit(paths, [other])
    (one, two) = intake.submit(paths, [asking(first, 1, batch="b"), asking(first, 2, batch="b")])
    fates: list[str] = []
    again = [asking(first, 2, batch="b"), asking(second, 2, batch="b")]
    assert intake.submit(paths, again, resume=True, fates=fates) == [two, two + 1] and one < two
    assert fates == ["unended", "added"]


def test_a_result_that_was_pruned_is_refused_at_submit_and_said_later(paths: Paths) -> None:
    first, late = parent(paths, {"aa": "MK"}), parent(paths, {"aa": "MK"})
    child = child_of(paths, chain(aa={"$from": late, "pointer": "/aa"}))
    with writing(paths) as db:
        db.execute("UPDATE jobs SET pruned_at = ?", (AT,))
        db.execute("UPDATE results SET reply = NULL, sha256 = NULL")
    with pytest.raises(Refused, match=f"takes the result of job {first}, which was pruned on 2027-01-15"):
        child_of(paths, chain(aa={"$from": first, "pointer": "/aa"}))
    found = made(paths, child)
    assert found.fault is not None and "was pruned on 2027-01-15, and its input takes /aa" in found.fault[1]


def test_outputs_that_a_draft_has_still_to_take_are_not_overwritten(paths: Paths, tmp_path: Path) -> None:
    out = tmp_path / "made"
    (first,) = intake.submit(paths, [row(out=str(out))])
    out.mkdir()
    (out / "a.txt").write_text("MK")
    child = child_of(paths, chain(aa={"$from": first, "file": "a.txt"}))
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = 'succeeded', ended_at = ? WHERE id = ?", (AT, first))
        db.execute(
            "INSERT INTO results (job_id, attempt, bytes, reply, destination) VALUES (?, 1, 2, x'7b7d', ?)",
            (first, str(out)),
        )
    over = row(out=str(out), overwrite=True)
    with pytest.raises(Refused, match=rf"job {child} \(queued\) takes its input from what job {first} left there"):
        intake.submit(paths, [over])
    made(paths, child)
    intake.submit(paths, [over])
    assert not out.exists() and input_of(paths, child) == chain(aa="MK")


def test_repin_lets_a_file_that_is_still_to_come_be_checked_then(paths: Paths) -> None:
    from scheduler.cli.repinning import Repinning

    (first,) = intake.submit(paths, [row()])
    child = child_of(paths, chain(aa="MK", msa={"$from": first, "pointer": "/msa"}))
    with writing(paths) as db:
        db.execute("UPDATE jobs SET revision = 'older' WHERE id = ?", (child,))
    columns = Repinning(Client(paths.home), [child]).columns(child)
    assert columns["revision"] == catalog.load(paths).spec("fold")["revision"]
