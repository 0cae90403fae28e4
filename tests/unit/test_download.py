"""A file is in its place only when it is whole and what was declared; whatever happens before is gone on with."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mounts import mounted
from web import Web, served

from scheduler.errors import SchedqError, Temporary
from scheduler.host import download, named_files

ROOT = Path(__file__).resolve().parents[2]
CONTENT = bytes(range(256)) * 4096
SHA = hashlib.sha256(CONTENT).hexdigest()
FETCH = """
import json, sys
from scheduler.host import download
say = lambda text: print(text, flush=True)
print(download.fetch(json.loads(sys.argv[1]), lambda *_: None, lambda *_: None, say), flush=True)
"""


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with served() as web:
        yield web


def row(path: Path, url: str, **over: Any) -> dict[str, Any]:
    """A declared file, with what of it is there."""
    return named_files.state_of({}, {"path": str(path), "url": url, "bytes": len(CONTENT), "sha256": SHA, **over})


def fetch(of: dict[str, Any], *, patience_s: float = 20.0, pauses_s: tuple[float, ...] = (0.0, 0.0)) -> tuple[str, str]:
    """Its sha256, and what was said."""
    said: list[str] = []
    found = download.fetch(of, lambda *_: None, lambda *_: None, said.append, patience_s=patience_s, pauses_s=pauses_s)
    return found, "\n".join(said)


def left_in_part(tmp_path: Path, url: str, at: int, etag: str = '"one"') -> Path:
    """A file of which so many bytes were fetched, as an interrupted fetch leaves it; its place."""
    path = tmp_path / "w.bin"
    Path(named_files.part_of(str(path))).write_bytes(CONTENT[:at])
    Path(named_files.part_of(str(path)) + ".json").write_text(json.dumps({"url": url, "etag": etag}))
    return path


def only(folder: Path, *names: str) -> bool:
    return sorted(each.name for each in folder.iterdir()) == sorted(names)


def test_a_file_is_fetched_whole_into_a_folder_that_is_made_for_it(web: Web, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "w.bin"
    steps: list[tuple[int, int | None]] = []
    of = row(path, web.page("/w", CONTENT))
    assert download.fetch(of, lambda *step: steps.append(step), lambda *_: None, print) == SHA
    assert path.read_bytes() == CONTENT
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert only(path.parent, "w.bin")


def test_a_fetch_that_was_interrupted_goes_on_where_it_stopped(web: Web, tmp_path: Path) -> None:
    url = web.page("/w", CONTENT)
    path = left_in_part(tmp_path, url, 700_000)
    assert fetch(row(path, url)) == (SHA, "")
    assert path.read_bytes() == CONTENT
    assert web.ranges() == ["bytes=700000-"]
    assert web.asked[0][1]["if-range"] == '"one"'
    assert only(tmp_path, "w.bin")


def test_a_file_that_changed_meanwhile_is_fetched_from_the_beginning(web: Web, tmp_path: Path) -> None:
    url = web.page("/w", CONTENT, etag='"two"')
    path = left_in_part(tmp_path, url, 700_000)
    assert "from the beginning" in fetch(row(path, url))[1]
    assert path.read_bytes() == CONTENT


def test_what_was_fetched_of_another_address_is_not_gone_on_with(web: Web, tmp_path: Path) -> None:
    path = left_in_part(tmp_path, "http://elsewhere.example/w", 700_000)
    assert fetch(row(path, web.page("/w", CONTENT)))[0] == SHA
    assert web.ranges() == [""]


def test_a_part_of_which_no_version_and_no_hash_is_known_is_not_gone_on_with(web: Web, tmp_path: Path) -> None:
    url = web.page("/w", CONTENT, etag="")
    path = left_in_part(tmp_path, url, 700_000, etag="")
    assert fetch(row(path, url, sha256=None))[0] == SHA
    assert web.ranges() == [""]
    web.page("/w", CONTENT, etag="", ends_after=200_000, cuts=1)
    assert fetch(row(tmp_path / "v.bin", url, sha256=None))[0] == SHA
    assert web.ranges() == ["", "", ""]


def test_a_server_that_cannot_go_on_in_the_middle_begins_anew(web: Web, tmp_path: Path) -> None:
    url = web.page("/w", CONTENT, ranges=False)
    path = left_in_part(tmp_path, url, 700_000)
    assert "from the beginning" in fetch(row(path, url))[1]
    assert path.read_bytes() == CONTENT


def test_a_connection_that_breaks_again_and_again_is_gone_on_with(web: Web, tmp_path: Path) -> None:
    path = tmp_path / "w.bin"
    assert fetch(row(path, web.page("/w", CONTENT, ends_after=200_000)))[0] == SHA
    assert path.read_bytes() == CONTENT
    assert web.ranges()[:3] == ["", "bytes=200000-", "bytes=400000-"]


def test_a_server_that_is_ill_for_a_moment_is_asked_again(web: Web, tmp_path: Path) -> None:
    assert fetch(row(tmp_path / "w.bin", web.page("/w", CONTENT, fails=2)))[0] == SHA


def test_a_server_that_stays_ill_is_temporary_and_what_was_fetched_stays(web: Web, tmp_path: Path) -> None:
    url = web.page("/w", CONTENT, fails=99)
    path = left_in_part(tmp_path, url, 700_000)
    with pytest.raises(Temporary, match=r"503 Service Unavailable .*700000 bytes of it stay"):
        fetch(row(path, url))
    web.pages["/w"].fails = 0
    assert fetch(row(path, url))[0] == SHA
    assert web.ranges()[-1] == "bytes=700000-"


def test_a_server_that_says_nothing_any_more_is_not_waited_for(web: Web, tmp_path: Path) -> None:
    path = tmp_path / "w.bin"
    with pytest.raises(Temporary, match=r"said nothing for 0.3 s .*300000 bytes of it stay"):
        fetch(row(path, web.page("/w", CONTENT, holds_after=300_000)), patience_s=0.3, pauses_s=())
    assert not path.exists()
    web.go_on.set()
    assert fetch(row(path, web.address + "/w"))[0] == SHA


def test_a_server_that_is_not_there_is_temporary(tmp_path: Path, web: Web) -> None:
    with pytest.raises(Temporary, match=r"refused .*ask again later"):
        fetch(row(tmp_path / "w.bin", "http://127.0.0.1:9/w"), pauses_s=())


@pytest.mark.parametrize(("status", "word"), [(404, "correct its url"), (401, "wants a login"), (403, "wants a login")])
def test_a_file_that_is_not_served_is_an_error_at_once(web: Web, tmp_path: Path, status: int, word: str) -> None:
    with pytest.raises(SchedqError, match=f"{status} .*{word}") as caught:
        fetch(row(tmp_path / "w.bin", web.page("/w", status=status)))
    assert caught.value.exit_code == 1
    assert len(web.asked) == 1


def test_a_redirect_is_followed_also_in_the_middle(web: Web, tmp_path: Path) -> None:
    web.page("/real", CONTENT)
    url = web.page("/w", status=302, location="/real")
    path = left_in_part(tmp_path, url, 700_000)
    assert fetch(row(path, url))[0] == SHA
    assert web.ranges() == ["bytes=700000-"] * 2


def test_a_redirect_to_a_file_of_this_machine_is_not_followed(web: Web, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(CONTENT)
    url = web.page("/w", status=302, location=f"file://{tmp_path}/secret")
    with pytest.raises(SchedqError):
        fetch(row(tmp_path / "w.bin", url))
    assert not (tmp_path / "w.bin").exists()


def test_a_redirect_from_https_to_http_is_not_followed() -> None:
    from io import BytesIO
    from urllib.request import Request

    from scheduler.host.addresses import _Redirects

    with pytest.raises(SchedqError, match=r"leads to http://b\.example/w, which is not https"):
        _Redirects().redirect_request(Request("https://a.example/w"), BytesIO(), 302, "", {}, "http://b.example/w")


def test_redirects_in_a_circle_are_an_error(web: Web, tmp_path: Path) -> None:
    with pytest.raises(SchedqError, match="302"):
        fetch(row(tmp_path / "w.bin", web.page("/w", status=302, location="/w")))


def test_another_content_than_declared_is_put_nowhere(web: Web, tmp_path: Path) -> None:
    path = tmp_path / "w.bin"
    path.write_bytes(b"as it was")
    with pytest.raises(SchedqError, match=rf"has the sha256 \w+, and {'0' * 64} is declared") as caught:
        fetch(row(path, web.page("/w", CONTENT), sha256="0" * 64))
    assert caught.value.exit_code == 1
    assert path.read_bytes() == b"as it was"
    assert only(tmp_path, "w.bin"), "what is known to be wrong is not gone on with"


def test_a_file_of_another_size_is_not_even_begun(web: Web, tmp_path: Path) -> None:
    with pytest.raises(SchedqError, match=f"has {len(CONTENT)} bytes, and 9 are declared"):
        fetch(row(tmp_path / "w.bin", web.page("/w", CONTENT), bytes=9))
    assert only(tmp_path)


def test_a_server_that_does_not_say_how_long_it_is_is_held_to_the_declared_size(web: Web, tmp_path: Path) -> None:
    url = web.page("/w", CONTENT, measured=False)
    assert fetch(row(tmp_path / "w.bin", url))[0] == SHA
    with pytest.raises(SchedqError, match=f"gave {len(CONTENT)} bytes, and {len(CONTENT) + 1} are declared"):
        fetch(row(tmp_path / "v.bin", url, bytes=len(CONTENT) + 1))


def test_a_file_of_which_nothing_is_declared_is_told_by_its_hash(web: Web, tmp_path: Path) -> None:
    assert fetch(row(tmp_path / "w.bin", web.page("/w", CONTENT), bytes=None, sha256=None))[0] == SHA


def test_a_part_that_is_whole_already_is_checked_and_put_in_place(web: Web, tmp_path: Path) -> None:
    url = web.page("/w", CONTENT)
    path = left_in_part(tmp_path, url, len(CONTENT))
    assert fetch(row(path, url))[0] == SHA
    assert web.asked == []
    left_in_part(tmp_path, url, len(CONTENT))
    assert fetch(row(path, url, bytes=None, sha256=None))[0] == SHA
    assert web.ranges() == [f"bytes={len(CONTENT)}-"]


def test_a_file_of_this_machine_is_copied_and_a_missing_one_named(tmp_path: Path) -> None:
    source = tmp_path / "with blank.bin"
    source.write_bytes(CONTENT)
    path = tmp_path / "w.bin"
    url = f"file://{tmp_path}/with%20blank.bin"
    assert fetch(row(path, url))[0] == SHA
    assert path.read_bytes() == source.read_bytes() == CONTENT
    with pytest.raises(SchedqError, match="No such file"):
        fetch(row(tmp_path / "v.bin", f"file://{tmp_path}/none"))


@pytest.mark.parametrize("url", ["ftp://a.example/w", "s3://bucket/w", "/w"])
def test_an_address_of_another_kind_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(SchedqError, match="http, https and file are understood"):
        fetch(row(tmp_path / "w.bin", url))


@pytest.mark.parametrize(
    "url",
    ["http://a.example/gewichte-ä", "http://[::1/x", "http://a.example/a b", "http://a.example:abc/w", "http:///w",
     "https://a.example:/w", "http://a.example:99999/w", "http://a.example/a\nb", "https://ä.example/w"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_before_anything_is_asked(tmp_path: Path, url: str) -> None:
    with pytest.raises(SchedqError, match=r"cannot be fetched: .*correct its url in the manifest") as caught:
        fetch(row(tmp_path / "w.bin", url))
    assert caught.value.exit_code == 1 and only(tmp_path)


def test_a_redirect_to_an_address_that_is_none_is_an_error_of_its_own(web: Web, tmp_path: Path) -> None:
    with pytest.raises(SchedqError) as caught:
        fetch(row(tmp_path / "w.bin", web.page("/w", status=302, location="http://[::1/w")))
    assert caught.value.exit_code == 1 and len(web.asked) == 1


@pytest.mark.parametrize(("tag", "modified"), [('"two"', ""), ("", "Tue, 02 Jan 2024 00:00:00 GMT"), ("", "")])
@pytest.mark.parametrize("sha256", [SHA, None])
def test_a_rest_of_another_version_is_not_put_behind_what_is_there(
    web: Web, tmp_path: Path, tag: str, modified: str, sha256: str | None
) -> None:
    headers = {"Last-Modified": modified} if modified else {}
    url = web.page("/w", CONTENT, etag=tag, careless=True, headers=headers)
    path = left_in_part(tmp_path, url, 700_000, etag="" if modified else '"one"')
    beside = Path(named_files.part_of(str(path)))
    if modified:
        known = {"url": url, "modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
        Path(f"{beside}.json").write_text(json.dumps(known))
    mixed = bool(tag or modified or not sha256)
    if mixed:
        beside.write_bytes(b"x" * 700_000)
    assert fetch(row(path, url, sha256=sha256))[0] == SHA
    assert path.read_bytes() == CONTENT
    assert web.ranges() == ["bytes=700000-", *([""] if mixed else [])]


@pytest.mark.parametrize("packed", ["gzip", "br"])
def test_a_file_that_its_server_packs_is_put_nowhere(web: Web, tmp_path: Path, packed: str) -> None:
    url = web.page("/w", CONTENT, headers={"Content-Encoding": packed})
    with pytest.raises(SchedqError, match=f"gives it packed .Content-Encoding: {packed}") as caught:
        fetch(row(tmp_path / "w.bin", url, sha256=None))
    assert caught.value.exit_code == 1 and not (tmp_path / "w.bin").exists()
    assert web.asked[0][1]["accept-encoding"] == "identity"
    assert fetch(row(tmp_path / "v.bin", web.page("/w", CONTENT, headers={"Content-Encoding": "identity"})))[0] == SHA


def test_a_socks_proxy_is_refused_and_only_where_it_would_be_used(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = web.page("/w", CONTENT)
    monkeypatch.setenv("all_proxy", "socks5h://ada:sesame@127.0.0.1:9")
    with pytest.raises(SchedqError, match=r"is a SOCKS one \(socks5h\).*no_proxy") as caught:
        fetch(row(tmp_path / "w.bin", url))
    assert caught.value.exit_code == 1 and "sesame" not in str(caught.value)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert fetch(row(tmp_path / "w.bin", url))[0] == SHA


@pytest.mark.parametrize("sha256", [SHA, None])
def test_what_another_fetch_has_put_in_place_since_it_was_looked_at_is_not_fetched_again(
    web: Web, tmp_path: Path, sha256: str | None
) -> None:
    of = row(tmp_path / "w.bin", web.page("/w", CONTENT), sha256=sha256)
    (tmp_path / "w.bin").write_bytes(CONTENT)
    assert fetch(of)[0] == SHA
    assert web.asked == [] and only(tmp_path, "w.bin")


def test_what_was_put_in_place_meanwhile_is_compared_before_it_is_called_good(web: Web, tmp_path: Path) -> None:
    of = row(tmp_path / "w.bin", web.page("/w", CONTENT))
    (tmp_path / "w.bin").write_bytes(b"x" * len(CONTENT))
    assert fetch(of)[0] == SHA
    assert (tmp_path / "w.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("there", [b"old", None])
def test_a_link_stays_and_what_it_leads_to_is_fetched(web: Web, tmp_path: Path, there: bytes | None) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "w.bin").symlink_to(tmp_path / "store" / "real.bin")
    if there:
        (tmp_path / "store" / "real.bin").write_bytes(there)
    assert fetch(row(tmp_path / "w.bin", web.page("/w", CONTENT)))[0] == SHA
    assert (tmp_path / "w.bin").is_symlink()
    assert (tmp_path / "store" / "real.bin").read_bytes() == CONTENT
    assert only(tmp_path / "store", "real.bin") and only(tmp_path, "store", "w.bin")


@pytest.mark.parametrize("variable", ["http_proxy", "ALL_PROXY"])
def test_the_proxy_of_the_environment_is_used(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    web.page("/w", CONTENT)
    monkeypatch.setenv(variable, web.address)
    assert fetch(row(tmp_path / "w.bin", "http://weights.invalid/w"))[0] == SHA
    assert web.asked[0][0] == "http://weights.invalid/w"


def test_a_disk_without_the_room_is_not_begun_to_be_filled(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = download.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(SchedqError, match=r"takes 0\.00 GiB more, and its disk has 0\.00 GiB free") as caught:
        fetch(row(tmp_path / "w.bin", web.page("/w", CONTENT)))
    assert caught.value.exit_code == 75


def test_a_disk_that_runs_full_on_the_way_keeps_what_there_is(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mounted(tmp_path / "small", options="size=512k") as folder:
        usage = download.shutil.disk_usage(tmp_path)
        monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage)
        path = folder / "w.bin"
        with pytest.raises(SchedqError, match="No space left on device") as caught:
            fetch(row(path, web.page("/w", CONTENT)))
        assert caught.value.exit_code == 75
        assert not path.exists()
        assert os.stat(named_files.part_of(str(path))).st_size > 100_000


def start(of: dict[str, Any]) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", FETCH, json.dumps(of)]
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_of_two_fetches_at_once_the_second_waits_and_finds_it_there(web: Web, tmp_path: Path) -> None:
    path = tmp_path / "w.bin"
    of = row(path, web.page("/w", CONTENT, holds_after=300_000))
    with start(of) as first:
        assert web.holds.wait(30)
        waits = threading.Event()
        said: list[str] = []

        def say(text: str) -> None:
            said.append(text)
            waits.set()
            web.go_on.set()

        assert download.fetch(of, lambda *_: None, lambda *_: None, say) == SHA
        assert first.communicate(timeout=30)[0].strip() == SHA
    assert f"another fetch (process {first.pid}) is at work on it" in said[0]
    assert len(web.asked) == 1
    assert only(tmp_path, "w.bin")


def test_a_fetch_that_is_killed_leaves_what_the_next_one_goes_on_with(web: Web, tmp_path: Path) -> None:
    path = tmp_path / "w.bin"
    of = row(path, web.page("/w", CONTENT, holds_after=300_000))
    with start(of) as first:
        assert web.holds.wait(30)
        part = Path(named_files.part_of(str(path)))
        while part.stat().st_size < 300_000:
            assert first.poll() is None
        first.send_signal(signal.SIGKILL)
        first.wait(30)
    web.pages["/w"].holds_after = None
    assert not path.exists()
    assert fetch(row(path, of["url"]))[0] == SHA
    assert web.ranges() == ["", "bytes=300000-"]


@pytest.mark.parametrize("kind", ["link", "dangling link", "FIFO", "folder"])
def test_what_lies_where_a_part_would_is_told_and_left_as_it_is(web: Web, tmp_path: Path, kind: str) -> None:
    (elsewhere := tmp_path / "elsewhere").write_bytes(b"precious")
    beside = Path(named_files.part_of(str(tmp_path / "w.bin")))
    if kind == "FIFO":
        os.mkfifo(beside)
    elif kind == "folder":
        beside.mkdir()
    else:
        beside.symlink_to(elsewhere if kind == "link" else tmp_path / "nowhere")
    with pytest.raises(SchedqError, match=rf"{beside} is a {kind.split()[-1]}, .*remove it, and ask again"):
        fetch(row(tmp_path / "w.bin", web.page("/w", CONTENT)))
    assert elsewhere.read_bytes() == b"precious" and only(tmp_path, "elsewhere", beside.name)


def test_a_fifo_in_the_place_of_a_file_is_told_and_not_waited_at(web: Web, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.bin")
    with pytest.raises(SchedqError, match=r"is a FIFO, and .* is one file; remove it"):
        fetch(row(tmp_path / "w.bin", web.page("/w", CONTENT)))


@pytest.mark.parametrize("status", [202, 204, 206])
def test_an_answer_that_is_not_the_whole_file_is_not_taken_for_it(web: Web, tmp_path: Path, status: int) -> None:
    of = row(tmp_path / "w.bin", web.page("/w", status=status), bytes=None, sha256=None)
    with pytest.raises(SchedqError, match=f"answers {status} .*, which is not the whole file"):
        fetch(of)
    assert not (tmp_path / "w.bin").exists()
