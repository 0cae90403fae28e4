"""A declared folder comes out of its archive whole, once, and holds nothing that leads out of it."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler.errors import SchedqError, Temporary
from scheduler.host import named_files, unpacking


def archive(folder: Path, *members: tuple[str, bytes | None], link: str = "") -> str:
    """A tar archive with these files (None = a folder), and a link of this name; its path."""
    path = folder / "mols.tar"
    with tarfile.open(path, "w") as made:
        for name, data in members:
            entry = tarfile.TarInfo(name)
            entry.type, entry.size, entry.mode = (
                (tarfile.DIRTYPE, 0, 0o755) if data is None else (b"0", len(data), 0o644)
            )
            made.addfile(entry, io.BytesIO(data or b""))
        if link:
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
            made.addfile(entry)
    return str(path)


def unpacked(source: str, folder: Path, **how: Any) -> list[tuple[int, int | None]]:
    """Unpack it; how far it said it was."""
    said: list[tuple[int, int | None]] = []
    unpacking.unpack(source, str(folder), lambda done, of: said.append((done, of)), lambda text: None, **how)
    return said


def sha_of(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@pytest.mark.parametrize("top", ["mols/", "./mols/", ""])
def test_a_folder_comes_out_whole_and_nothing_is_left_beside_it(tmp_path: Path, top: str) -> None:
    members = [(f"{top}ALA.pkl", b"a" * 3000), (f"{top}deep/B.pkl", b"b")]
    source = archive(tmp_path, *([(top, None)] if top else []), *members)
    said = unpacked(source, tmp_path / "cache" / "mols")
    assert (tmp_path / "cache" / "mols" / "ALA.pkl").read_bytes() == b"a" * 3000
    assert (tmp_path / "cache" / "mols" / "deep" / "B.pkl").read_bytes() == b"b"
    assert sorted(os.listdir(tmp_path / "cache")) == [".mols.unpacked.json", "mols"]
    assert said and all(0 < done <= (of or 0) == Path(source).stat().st_size for done, of in said)


@pytest.mark.parametrize(
    ("name", "link", "word"),
    [("../out", "", "leads out of its folder"), ("/tmp/out", "", "leads out"), ("a", "b", "which is no plain file")],
)
def test_what_leads_out_is_not_taken_and_nothing_is_put_in_place(
    tmp_path: Path, name: str, link: str, word: str
) -> None:
    source = archive(tmp_path, (name, b"x"), link=link)
    with pytest.raises(SchedqError, match=word):
        unpacked(source, tmp_path / "cache" / "mols")
    assert os.listdir(tmp_path / "cache") == [] and not (tmp_path / "out").exists()


def test_an_archive_that_is_not_there_or_not_whole_is_told(tmp_path: Path) -> None:
    with pytest.raises(Temporary, match=r"mols\.tar, which is not there; fetch that first"):
        unpacked(str(tmp_path / "mols.tar"), tmp_path / "mols")
    source = Path(archive(tmp_path, ("mols/a", os.urandom(100_000))))
    source.write_bytes(source.read_bytes()[:60_000])
    with pytest.raises(SchedqError, match="is no tar archive, or not whole"):
        unpacked(str(source), tmp_path / "mols")
    assert not (tmp_path / "mols").exists()


def test_a_killed_one_leaves_no_folder_and_the_next_one_begins_anew(tmp_path: Path) -> None:
    source = archive(tmp_path, ("mols/a", b"a"))
    call = (
        "import os; from scheduler.host import unpacking as u; u.crashpoint = lambda name: os.kill(os.getpid(), 9);"
        f"u.unpack({source!r}, {str(tmp_path / 'mols')!r}, print, print)"
    )
    killed = subprocess.run([sys.executable, "-c", call], capture_output=True)
    assert killed.returncode == -9 and not (tmp_path / "mols").exists(), killed
    (Path(named_files.part_of(str(tmp_path / "mols"))) / "half").write_text("x")
    unpacked(source, tmp_path / "mols")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mols.unpacked.json", "mols", "mols.tar"]
    assert os.listdir(tmp_path / "mols") == ["a"]


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    source = archive(tmp_path, ("mols/a", b"a"))
    (tmp_path / "mols").mkdir()
    assert unpacked(source, tmp_path / "mols") == []
    assert os.listdir(tmp_path / "mols") == []
    assert not Path(named_files.part_of(str(tmp_path / "mols"))).exists()


def third_header_damaged(data: bytes) -> bytes:
    return data[: 2 * 1024 + 100] + b"\xff" * 50 + data[2 * 1024 + 150 :]


@pytest.mark.parametrize(
    "damaged",
    [
        third_header_damaged,
        lambda data: data[: 2 * 1024],
        lambda data: data[:2500],
        lambda data: gzip.compress(third_header_damaged(data)),
        lambda data: gzip.compress(data[: 2 * 1024]),
        lambda data: gzip.compress(data, mtime=0)[:-300],
        lambda data: gzip.compress(data, mtime=0)[:-6] + b"\0\0\0\0\0\0",
        lambda data: gzip.compress(data, mtime=0)[:400] + b"\0" * 40 + gzip.compress(data, mtime=0)[440:],
        lambda data: lzma.compress(data)[:-300],
        lambda data: lzma.compress(data)[:400] + b"\0" * 40 + lzma.compress(data)[440:],
    ],
)
def test_an_archive_of_which_members_are_lost_or_changed_is_put_nowhere(
    tmp_path: Path, damaged: Callable[[bytes], bytes]
) -> None:
    source = Path(archive(tmp_path, *((f"mols/{name}", os.urandom(500)) for name in "abcd")))
    source.write_bytes(damaged(source.read_bytes()))
    with pytest.raises(SchedqError, match="no tar archive, or not whole") as caught:
        unpacked(str(source), tmp_path / "cache" / "mols")
    assert caught.value.exit_code == 1 and os.listdir(tmp_path / "cache") == []


@pytest.mark.parametrize("packed", [gzip.compress, lzma.compress, bytes])
def test_a_whole_archive_is_unpacked_however_it_is_packed(tmp_path: Path, packed: Callable[[bytes], bytes]) -> None:
    source = Path(archive(tmp_path, *((f"mols/{name}", os.urandom(500)) for name in "abcd")))
    source.write_bytes(packed(source.read_bytes()))
    unpacked(str(source), tmp_path / "mols", sha256=sha_of(str(source)))
    assert sorted(os.listdir(tmp_path / "mols")) == ["a", "b", "c", "d"]


def test_another_archive_than_is_declared_is_not_unpacked(tmp_path: Path) -> None:
    source = archive(tmp_path, ("mols/a", b"a"))
    with pytest.raises(SchedqError, match=r"has the sha256 \w+, and 0000.*nothing was unpacked"):
        unpacked(source, tmp_path / "cache" / "mols", sha256="0" * 64)
    assert os.listdir(tmp_path / "cache") == []


@pytest.mark.parametrize("top", ["mols/", ""])
def test_a_folder_is_replaced_on_request_and_only_if_it_is_of_another_archive(tmp_path: Path, top: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "mols").symlink_to(tmp_path / "real" / "mols")
    unpacked(archive(tmp_path, (f"{top}a", b"old")), tmp_path / "mols")
    source = archive(tmp_path, (f"{top}b", b"new"))
    unpacked(source, tmp_path / "mols", sha256=sha_of(source), anew=True)
    assert (tmp_path / "mols").is_symlink() and os.listdir(tmp_path / "real" / "mols") == ["b"]
    assert sorted(os.listdir(tmp_path / "real")) == [".mols.unpacked.json", "mols"]
    (tmp_path / "mols" / "mine").touch()
    assert unpacked(source, tmp_path / "mols", sha256=sha_of(source), anew=True) == []
    assert (tmp_path / "mols" / "mine").exists(), "another call has unpacked it from this very archive"


def test_what_was_unpacked_is_on_the_disk_before_it_is_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[bool] = []
    monkeypatch.setattr(unpacking.marker, "sync", lambda _: there.append((tmp_path / "mols").exists()))
    unpacked(archive(tmp_path, ("mols/a", b"a")), tmp_path / "mols")
    assert there == [False]


Files = Callable[..., "subprocess.CompletedProcess[str]"]


def declared(tmp_path: Path, about: str) -> tuple[Path, Files]:
    """A provider with a folder, declared first, and its archive, of which that is declared; `schedq files` of it."""
    folder = tmp_path / "manifests" / "toy"
    folder.mkdir(parents=True)
    (folder / "worker.py").touch()
    (folder / "provider.toml").write_text(
        'slug = "toy"\nmode = "resident"\n[gpu]\npolicy = "none"\n[host]\nram_budget_gb = 0.1\n'
        f'[worker]\npython = "{sys.executable}"\nscript = "worker.py"\nenv = {{ CACHE = "{tmp_path}/cache" }}\n'
        '[[files]]\npath = "${CACHE}/mols"\narchive = "${CACHE}/mols.tar"\n'
        f'[[files]]\npath = "${{CACHE}}/mols.tar"\n{about}\n'
    )
    environ = {
        **os.environ, "SCHEDQ_HOME": str(tmp_path / "home"), "SCHEDQ_MANIFESTS": str(folder.parent),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }  # fmt: skip

    def files(*words: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "-m", "scheduler", "files", "toy", *words]
        return subprocess.run(call, env=environ, capture_output=True, text=True, timeout=60)

    return folder, files


@pytest.mark.parametrize("wrong", [b"of another size", None])
def test_a_folder_is_of_the_declared_archive_whatever_was_there_before(tmp_path: Path, wrong: bytes | None) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "cache").mkdir()
    right, there = archive(tmp_path / "src", ("mols/a", b"right")), tmp_path / "cache" / "mols.tar"
    size = Path(right).stat().st_size
    _folder, files = declared(tmp_path, f'bytes = {size}\nsha256 = "{sha_of(right)}"\nurl = "file://{right}"')
    os.rename(archive(tmp_path / "cache", ("mols/a", b"wrong")), there)
    if wrong is not None:
        there.write_bytes(there.read_bytes() + wrong)
    refused = files("--fetch")
    assert refused.returncode == 1 and "--overwrite" in refused.stderr, refused
    assert not (tmp_path / "cache" / "mols").exists(), "it was unpacked from an archive that is not the declared one"
    (tmp_path / "cache" / "mols").mkdir()
    (tmp_path / "cache" / "mols" / "a").write_bytes(b"wrong")
    replaced = files("--fetch", "--overwrite")
    assert replaced.returncode == 0, replaced
    assert (tmp_path / "cache" / "mols" / "a").read_bytes() == b"right"
    assert files("--verify").returncode == 0
    (tmp_path / "cache" / ".mols.unpacked.json").write_text('{"sha256": "replaced"}')
    told = files("--verify")
    assert told.returncode == 1 and "was unpacked from one that was replaced" in " ".join(told.stdout.split()), told
    (tmp_path / "cache" / "mols" / "a").write_bytes(b"wrong")
    assert files("--fetch", "--overwrite").returncode == 0
    assert (tmp_path / "cache" / "mols" / "a").read_bytes() == b"right"


def test_a_fetch_unpacks_the_folder_of_an_archive_that_it_fetched(tmp_path: Path) -> None:
    source = archive(tmp_path, ("mols/a", b"a"))
    folder, files = declared(tmp_path, f'url = "file://{source}"')
    assert "mols" in files().stdout
    fetched = files("--fetch")
    assert fetched.returncode == 0, fetched
    assert (tmp_path / "cache" / "mols" / "a").read_bytes() == b"a"
    (tmp_path / "cache" / "mols" / "a").unlink()
    (tmp_path / "cache" / "mols").rmdir()
    (tmp_path / "cache" / "mols.tar").unlink()
    (folder / "provider.toml").write_text((folder / "provider.toml").read_text().replace(source, "/nowhere"))
    lacks = files("--fetch")
    assert lacks.returncode != 0 and "which is not there; fetch that first" in lacks.stderr, lacks


def test_one_file_of_the_folders_name_comes_to_lie_in_the_folder(tmp_path: Path) -> None:
    unpacked(archive(tmp_path, ("mols", b"a")), tmp_path / "cache" / "mols")
    assert (tmp_path / "cache" / "mols" / "mols").read_bytes() == b"a"


def test_a_link_where_it_would_be_unpacked_is_told_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / "precious").touch()
    for target in (elsewhere, elsewhere / "precious"):
        beside = Path(named_files.part_of(str(tmp_path / "mols")))
        beside.symlink_to(target)
        with pytest.raises(SchedqError, match=rf"{beside} is a link, .*remove it, and ask again"):
            unpacked(archive(tmp_path, ("a", b"a")), tmp_path / "mols")
        beside.unlink()
    assert (elsewhere / "precious").exists()
