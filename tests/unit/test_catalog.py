"""The catalog's cache: fresh when something changed, never trusted when it is not ours, never needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from manifests_made import BASE, Manifests

from scheduler import catalog, manifest
from scheduler.config import Paths
from scheduler.errors import BrokenManifest, UnknownProvider, UsageError
from scheduler.inputs import cache
from scheduler.inputs.cache import Seen


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifests:
    made = Manifests(tmp_path, monkeypatch)
    made.add()
    return made


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    true = manifest.compiled

    def counted(cache_folder: str, seen: Seen) -> tuple[dict[str, object], dict[str, str]]:
        done.append(cache_folder)
        return true(cache_folder, seen)

    monkeypatch.setattr(manifest, "compiled", counted)
    return done


def age(*roots: Path) -> None:
    """Set every time below these folders an hour back, as if nothing had been touched lately."""
    then = time.time() - 3600
    for root in roots:
        for path in [*root.rglob("*"), root]:
            os.utime(path, (then, then))


def stored(made: Manifests) -> Path:
    return made.home / "cache" / "catalog.json"


def load() -> catalog.Catalog:
    return catalog.load(Paths())


def test_a_catalog_is_compiled_once(made: Manifests, compilations: list[str]) -> None:
    age(made.root)
    first = load()
    assert load().providers == first.providers
    assert len(compilations) == 1
    assert stored(made).stat().st_mode & 0o777 == 0o600
    assert first.spec("fold")["slug"] == "fold"


CHANGES = {
    "the manifest": lambda made: (made.root / "fold" / "provider.toml").write_text(
        BASE.replace("{slug}", "fold") + "\n"
    ),
    "its schema": lambda made: (made.root / "fold" / "input.schema.json").write_text("{}"),
    "its script": lambda made: (made.root / "fold" / "worker.py").write_text("x"),
    "code beside it": lambda made: (made.root / "fold" / "new.py").write_text("x"),
    "a new provider": lambda made: made.add("other"),
    "one less": lambda made: (made.root / "fold" / "provider.toml").unlink(),
    "a missing script": lambda made: (made.root / "fold" / "worker.py").unlink(),
    "a configuration": lambda made: made.site("[providers.fold]\nthreads = 3\n"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_is_compiled_again_when_something_changed(made: Manifests, compilations: list[str], what: str) -> None:
    age(made.root)
    load()
    CHANGES[what](made)
    load()
    assert len(compilations) == 2
    age(*(each for each in (made.root, made.config.parent) if each.exists()))
    load()
    load()
    assert len(compilations) == 3


def test_a_file_put_in_place_of_another_of_its_size_and_time_is_noticed(
    made: Manifests, compilations: list[str]
) -> None:
    age(made.root)
    load()
    script = made.root / "fold" / "worker.py"
    seen, folder = script.stat(), script.parent.stat()
    (script.parent / "other").write_text("import changed\n")
    os.utime(script.parent / "other", ns=(seen.st_mtime_ns, seen.st_mtime_ns))
    (script.parent / "other").rename(script)
    os.utime(script.parent, ns=(folder.st_mtime_ns, folder.st_mtime_ns))
    assert script.stat().st_size == seen.st_size
    load()
    assert len(compilations) == 2


def test_another_search_path_is_another_catalog(
    made: Manifests, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    age(made.root)
    assert "fold" in load().providers
    monkeypatch.setenv("SCHEDQ_MANIFESTS", str(tmp_path / "nowhere"))
    with pytest.raises(UnknownProvider, match=r"there is no manifest in .*names .*nowhere, which is not there"):
        load().spec("fold")


def test_what_changed_just_now_is_not_kept(made: Manifests, compilations: list[str]) -> None:
    soon = time.time() + 0.01
    os.utime(made.root / "fold" / "worker.py", (soon, soon))
    load()
    assert not stored(made).exists()
    age(made.root)
    load()
    assert stored(made).exists()
    assert len(compilations) == 2


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"key": 1}', '{"key": [], "seen": 3, "providers": {}, "broken": {}}']
)
def test_a_corrupt_cache_is_made_again(made: Manifests, compilations: list[str], text: str) -> None:
    age(made.root)
    load()
    stored(made).write_text(text)
    assert load().spec("fold")["slug"] == "fold"
    assert len(compilations) == 2
    assert json.loads(stored(made).read_text())["providers"]["fold"]


def test_a_corrupt_cache_whose_key_is_right_is_made_again(made: Manifests, compilations: list[str]) -> None:
    age(made.root)
    load()
    kept = json.loads(stored(made).read_text())
    for wrong in ({"seen": []}, {"seen": {str(made.root): [1]}}, {"seen": {str(made.root): 4}}, {"providers": []}):
        stored(made).write_text(json.dumps({**kept, **wrong}))
        assert load().spec("fold")
    assert len(compilations) == 5


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_a_cache_that_others_can_touch_is_not_read(made: Manifests, compilations: list[str], mode: int) -> None:
    age(made.root)
    load()
    stored(made).chmod(mode)
    load()
    assert len(compilations) == 2


def test_a_link_or_a_pipe_in_the_cache_is_not_read(made: Manifests, compilations: list[str]) -> None:
    age(made.root)
    load()
    beside = stored(made).with_name("beside")
    stored(made).rename(beside)
    stored(made).symlink_to(beside)
    load()
    stored(made).unlink()
    os.mkfifo(stored(made), 0o600)
    load()
    assert len(compilations) == 3


def test_a_home_that_cannot_be_written_only_costs_time(made: Manifests, compilations: list[str]) -> None:
    age(made.root)
    made.home.mkdir()
    (made.home / "cache").write_text("not a folder")
    assert load().spec("fold")["slug"] == "fold"
    assert load().spec("fold")["input"]["validator"]
    assert len(compilations) == 2


def test_a_full_disk_leaves_nothing_half_written(made: Manifests, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_source: str, _target: str) -> None:
        raise OSError(28, "No space left on device")

    age(made.root)
    monkeypatch.setattr("os.rename", full)
    assert load().spec("fold")
    assert not list((made.home / "cache").rglob("*.*"))


def test_a_provider_that_is_not_there_is_answered_with_the_nearest(made: Manifests) -> None:
    made.add("bad", text="slug = 1")
    found = load()
    with pytest.raises(UnknownProvider, match=r"no provider 'flod'; did you mean fold\?; known: bad, fold") as caught:
        found.spec("flod")
    assert str(caught.value).endswith(f"; looked into {', '.join(found.folders)}; SCHEDQ_MANIFESTS adds folders")
    assert len(found.folders) > 1
    with pytest.raises(BrokenManifest, match=r"provider.toml: slug = 1: must be text"):
        found.spec("bad")
    with pytest.raises(UnknownProvider, match="fold has no variants"):
        found.spec("fold:small")


def test_a_variant_that_is_not_there_is_answered_with_those_that_are(made: Manifests) -> None:
    made.add(more="[variants.small]\ncpu = { threads = 2 }\n[variants.large]\ncpu = { threads = 8 }\n")
    found = load()
    assert found.spec("fold:small")["threads"] == 2
    assert found.spec("fold")["threads"] == 1
    for name in ("fold:smal", "fold:"):
        with pytest.raises(UnknownProvider, match="it has small, large"):
            found.spec(name)


def test_many_providers_are_named_shortly(made: Manifests) -> None:
    for number in range(30):
        made.add(f"p{number:02}")
    with pytest.raises(UnknownProvider, match=r"known: fold, p00, .*p10 and 19 more \(schedq providers\)"):
        load().spec("zzzz")


def test_a_broken_configuration_is_no_broken_manifest(made: Manifests) -> None:
    made.site("[providers\n")
    with pytest.raises(UsageError, match=r"config.toml: .*\(at line 1, column 11\)"):
        load()


def test_old_validators_and_half_written_files_are_swept(made: Manifests) -> None:
    store = made.home / "cache" / "validators"
    store.mkdir(parents=True)
    for name in ("aa.cpython-311", "bb.cpython-311.77.tmp"):
        (store / name).write_text("x")
    age(store, made.root)
    os.utime(store / "aa.cpython-311", (1, 1))
    load()
    left = {each.name.partition(".")[0] for each in store.iterdir()}
    named = load().spec("fold")["input"]
    assert left == {Path(named["validator"]).name, Path(named["params_validator"]).name}


def test_a_fresh_catalog_imports_nothing_slow(made: Manifests) -> None:
    script = (
        "import sys\nfrom scheduler import catalog, request\nfrom scheduler.config import Paths\n"
        "paths = Paths()\nspec = catalog.load(paths).spec('fold')\n"
        f"read = request.read({str(made.root / 'fold' / 'in.json')!r})\n"
        "values = request.parameters(spec, [])\nrequest.check(spec, *read, values, paths)\n"
        "slow = {'pydantic', 'fastjsonschema', 'ruamel', 'tomllib', 'typer', 'sqlalchemy', 'dataclasses',\n"
        "        'inspect', 'typing', 'pathlib', 'subprocess', 'datetime', 'tempfile', 'hashlib', 'decimal',\n"
        "        'difflib', 'glob', 'scheduler.manifest', 'scheduler.inputs.schema'}\n"
        "print(sorted(slow & set(sys.modules)))"
    )
    (made.root / "fold" / "in.json").write_text('{"sequences": [{"id": "A"}]}')
    age(made.root)
    for _ in ("compiles", "reads"):
        done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_a_validator_is_kept_and_made_again_when_it_is_not_ours(made: Manifests) -> None:
    from scheduler.inputs import validators

    age(made.root)
    asked = load().spec("fold")["input"]
    place = Path(validators.file_of(asked["validator"]))
    whole = place.read_bytes()
    for damage in (b"", whole[:-1], whole.replace(b"schedq validator", b"schedq validatox"), whole[:-30] + b"x" * 30):
        place.write_bytes(damage)
        assert not validators.is_kept(asked["validator"])
        with pytest.raises(validators.Invalid):
            validators.load(asked["validator"], asked["schema"])({"sequences": []})
        assert place.read_bytes() == whole
    other = Path(validators.file_of(asked["params_validator"])).read_bytes()
    digest = slice(len(validators.FORMAT), len(validators.FORMAT) + 64)
    place.write_bytes(other[: digest.start] + whole[digest] + other[digest.stop :])
    assert not validators.is_kept(asked["validator"])
    place.write_bytes(whole)
    assert validators.is_kept(asked["validator"])
    place.chmod(0o644)
    assert not validators.is_kept(asked["validator"])


def test_a_signature_changes_with_time_size_or_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert cache.signature(str(path)) is None
    path.write_text("a")
    first = cache.signature(str(path))
    path.write_text("ab")
    assert cache.signature(str(path)) != first


def test_what_it_is_made_by_is_there(made: Manifests) -> None:
    assert [each for each in catalog.made_by() if not os.path.isfile(each)] == []
    names = {os.path.basename(each) for each in catalog.made_by()}
    assert {"compile.py", "declaration.py", "schema.py", "manifest.py", "tomlfile.py"} <= names


@pytest.mark.parametrize("how", ["truncated", "another"])
def test_what_changed_while_it_was_read_is_read_again(
    made: Manifests, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    age(made.root)
    path = made.root / "fold" / "provider.toml"
    whole, done = path.read_text(), []
    if how == "truncated":
        path.write_text("")
    true = manifest.compiled

    def overtaken(cache_folder: str, seen: Seen) -> tuple[dict[str, object], dict[str, str]]:
        answer = true(cache_folder, seen)
        if not done:
            path.write_text(whole.replace("28.0", "20.0"))
        done.append(1)
        return answer

    monkeypatch.setattr(manifest, "compiled", overtaken)
    assert load().spec("fold")["vram_gib"] == 20.0
    assert len(done) == 2


def test_what_changes_without_end_is_answered_all_the_same(made: Manifests, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    true = manifest.compiled

    def overtaken(cache_folder: str, seen: Seen) -> tuple[dict[str, object], dict[str, str]]:
        answer = true(cache_folder, seen)
        done.append(1)
        (made.root / "fold" / f"new{len(done)}.py").write_text("x")
        return answer

    monkeypatch.setattr(manifest, "compiled", overtaken)
    assert load().spec("fold")
    assert len(done) <= 5
