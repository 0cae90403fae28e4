"""Who is told, really: a command, and an HTTP server that answers, refuses, hangs, drips, redirects; and no secrets."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driven import eventually

from scheduler.config import Paths, Settings
from scheduler.errors import UsageError
from scheduler.host import notices
from scheduler.host.notices import Children, Notices, Receivers
from scheduler.model.telling import Notice
from scheduler.settable import DEFAULTS, open_part

NOTICE = Notice(1, "batch_ended", {"id": "q:1", "event": "batch_ended", "text": "batch night ended", "batch": "night"})


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hook)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.over = threading.Event()
        self.says = ""

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Hook(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.server.got.append((self.path, dict(self.headers), self.rfile.read(length)))
        where = self.path.partition("?")[0]
        if where == "/hang":
            self.server.over.wait(20)
            return
        if where == "/open":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
            self.server.over.wait(20)
            return
        if where.startswith("/echo"):
            self.wfile.write(f"HTTP/1.1 401 {self.server.says}\r\n\r\n{self.server.says}".encode())
            return
        if where == "/drip":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while not self.server.over.wait(0.05):
                self.wfile.write(b"X")
            return
        code = {"/500": 500, "/301": 301, "/307": 307, "/away": 307, "/loop": 307, "/endless": 200}.get(where, 200)
        self.send_response(code)
        here = self.server.url("")
        goes = {"/301": "/ok", "/307": "/ok", "/loop": "/loop", "/away": "http://localhost:1/steal"}
        if where in goes:
            self.send_header("Location", goes[where] if where != "/307" else here + goes[where])
        self.end_headers()
        if where == "/500":
            self.wfile.write(f"no such hook: {self.path}".encode())
        if where == "/endless":
            while not self.server.over.wait(0.001):
                self.wfile.write(b"x" * 65536)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.over.set()
    made.shutdown()
    thread.join()
    made.server_close()


def post(server: Server, path: str, timeout_s: float = 5.0, **more: Any) -> str:
    return notices.tell(Receivers(url=server.url(path), timeout_s=timeout_s, **more), NOTICE).error


def test_a_webhook_gets_json_with_a_text_and_takes_it(server: Server) -> None:
    told = notices.tell(Receivers(url=server.url("/ok")), NOTICE)
    assert (told.took, told.error) == (("url",), "")
    ((path, headers, body),) = server.got
    assert (path, headers["Content-Type"], json.loads(body)["text"]) == ("/ok", "application/json", "batch night ended")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/500", "answered 500 Internal Server Error"),
        ("/301", "redirects (301) to http://127.0.0.1"),
        ("/away", "redirects to http://localhost:1, which is another host"),
        ("/loop", "redirects more than 3 times"),
    ],
)
def test_a_webhook_that_does_not_take_it_is_named_by_its_host(server: Server, path: str, told: str) -> None:
    error = post(server, path)
    assert error.startswith("http://127.0.0.1:") and told in error


def test_a_redirect_of_the_post_within_the_host_is_followed(server: Server) -> None:
    assert post(server, "/307") == ""
    assert [got[0] for got in server.got] == ["/307", "/ok"] and server.got[1][2] == server.got[0][2]


@pytest.mark.parametrize("path", ["/hang", "/drip"])
def test_a_webhook_that_hangs_or_drips_is_left_after_its_time(server: Server, path: str) -> None:
    begun = time.monotonic()
    error = post(server, path, 0.5)
    assert time.monotonic() - begun < 3.0
    assert "had not answered after 0.5 s" in error or "no answer in time" in error


@pytest.mark.parametrize("path", ["/endless", "/open"])
def test_an_answer_without_end_was_taken_and_is_not_read(server: Server, path: str) -> None:
    assert post(server, path, 1.0) == ""


@pytest.mark.parametrize("path", ["/hang", "/drip"])
def test_no_thread_is_left_to_a_server_that_hangs_or_drips(server: Server, path: str) -> None:
    for _ in range(3):
        assert post(server, path, 0.2)
    until = time.monotonic() + 5
    while any(each.name == "schedq-webhook" for each in threading.enumerate()) and time.monotonic() < until:
        time.sleep(0.01)
    assert not [each for each in threading.enumerate() if each.name == "schedq-webhook"]


SECRET = "abcdefghij0123456789ABCDEFGHIJ9876543210klmnopqrst+/uvwxyz=="


@pytest.mark.parametrize(
    "says",
    [
        f"{'x' * 40} we do not know the credential Bearer {SECRET}",
        f"no team for token {SECRET}", "no team T0PS3CR3T", r"no hook \/echo\/T0PS3CR3T\/B0XES", "bad key Qu3ry+V4lue",
    ],
)  # fmt: skip
def test_what_a_server_repeats_of_a_secret_is_hidden_before_it_is_cut(server: Server, says: str) -> None:
    server.says = says
    error = post(server, "/echo/T0PS3CR3T/B0XES?key=Qu3ry%2BV4lue", headers=(f"Authorization: Bearer {SECRET}",))
    assert "answered 401" in error and len(error) < 260
    assert not [each for each in (SECRET[:8], "T0PS", "B0XES", "Qu3ry") if each in error]


def test_a_notice_that_one_receiver_cannot_be_told_goes_to_the_other(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    whom = Receivers((command(tmp_path, "exit 0"),), url=server.url("/ok"))
    told = notices.tell(whom, NOTICE)
    assert told.took == ("url",) and told.error == "the command cannot be told: OSError: No space left on device"


def test_nobody_there_is_said() -> None:
    error = notices.tell(Receivers(url="http://127.0.0.1:1/x/secret", timeout_s=5.0), NOTICE).error
    assert error == "http://127.0.0.1:1 cannot be reached: Connection refused"


def test_no_error_has_anything_of_the_address_but_its_host(server: Server, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.env"
    secrets.write_text("HOOK=T0K3N-of-the-hook\nBEARER='b34r3r-of-ours'\n")
    secrets.chmod(0o600)
    port = server.server_address[1]
    url = f"http://ada:pa55word@127.0.0.1:{port}/500?key=${{HOOK}}"
    more = {"headers": ("Authorization: Bearer ${BEARER}",), "secrets": str(secrets)}
    whom = Receivers(url=url.replace("ada:pa55word@", ""), timeout_s=5.0, **more)  # type: ignore[arg-type]
    error = notices.tell(whom, NOTICE).error
    ((path, headers, _),) = server.got
    assert path == "/500?key=T0K3N-of-the-hook" and headers["Authorization"] == "Bearer b34r3r-of-ours"
    assert "answered 500" in error and "T0K3N" not in error and "b34r3r" not in error and "key=" not in error
    for bad in (url, "http://127.0.0.1:notaport/secret", "http://127.0.0.1:1/secret\r\nX: y", "http://[::1/secret"):
        error = notices.tell(Receivers(url=bad, timeout_s=2.0, secrets=str(secrets)), NOTICE).error
        assert error and "secret" not in error and "pa55word" not in error, bad
        assert ("a name before its host" in error) is (bad == url)
    assert "Bearer" not in repr(whom) and "500" not in repr(whom)


def test_an_address_can_be_a_name_of_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_HOOK", server.url("/ok"))
    assert notices.tell(Receivers(url="env:MY_HOOK"), NOTICE).error == ""
    error = notices.tell(Receivers(url="env:MY_HOOKS"), NOTICE).error
    assert error == "MY_HOOKS is neither in secrets.env nor in the scheduler's environment"


def test_secrets_that_others_can_read_are_not_used(server: Server, tmp_path: Path) -> None:
    (tmp_path / "secrets.env").write_text("HOOK=abcdef\n")
    (tmp_path / "secrets.env").chmod(0o644)
    error = post(server, "/${HOOK}", secrets=str(tmp_path / "secrets.env"))
    assert "it must be 0600" in error and server.got == []


def command(tmp_path: Path, text: str) -> str:
    path = tmp_path / "notify"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def test_a_command_gets_json_on_stdin_and_the_event_in_its_environment(tmp_path: Path) -> None:
    out = tmp_path / "out"
    whom = Receivers((command(tmp_path, f'cat > {out}; echo "$SCHEDQ_EVENT $SCHEDQ_BATCH $1" >> {out}'), "a b; c"))
    assert notices.tell(whom, NOTICE).took == ("command",)
    body, said = out.read_text().split("}")
    assert json.loads(body + "}") == NOTICE.body and said == "batch_ended night a b; c\n"


def test_a_command_that_fails_hangs_or_is_not_there_is_said(tmp_path: Path) -> None:
    failing = Receivers((command(tmp_path, "echo it is full >&2; exit 3"),))
    assert notices.tell(failing, NOTICE).error == f"{tmp_path}/notify: exit 3: it is full"
    hanging = Receivers((command(tmp_path, "sleep 1000"),), timeout_s=0.3)
    begun = time.monotonic()
    assert "had not ended after 0.3 s and was killed" in notices.tell(hanging, NOTICE).error
    assert time.monotonic() - begun < 3.0
    assert "cannot be run: No such file" in notices.tell(Receivers(("/nonexistent",)), NOTICE).error


def test_what_a_command_says_without_end_is_not_kept(tmp_path: Path) -> None:
    script = """yes | head -c 40000000 >&2
    while [ "$(stat -L -c %s /proc/self/fd/2)" -gt 16777216 ]; do sleep 0.01; done
    echo cut short >&2; exit 3"""
    assert (
        notices.tell(Receivers((command(tmp_path, script),)), NOTICE).error == f"{tmp_path}/notify: exit 3: cut short"
    )


def test_a_command_that_repeats_its_words_shows_none_of_them(tmp_path: Path) -> None:
    said = f"{'x' * 190} the token {SECRET} was not known"
    whom = Receivers((command(tmp_path, f"echo '{said}' >&2; exit 3"), "--token", SECRET))
    error = notices.tell(whom, NOTICE).error
    assert error.endswith("the token ... was not known") and len(error) < 260 + len(str(tmp_path))


def test_who_took_it_is_not_told_again(server: Server, tmp_path: Path) -> None:
    whom = Receivers((command(tmp_path, f"echo x >> {tmp_path}/out"),), url=server.url("/500"))
    told = notices.tell(whom, NOTICE)
    assert told.took == ("command",) and "answered 500" in told.error
    again = notices.tell(whom, Notice(1, "batch_ended", NOTICE.body, told.took))
    assert again.took == ("command",) and (tmp_path / "out").read_text() == "x\n"


def test_closing_waits_for_nobody(server: Server, tmp_path: Path) -> None:
    woken = threading.Event()
    script, begun_by = f"touch {tmp_path}/begun; exec sleep 1000", tmp_path / "begun"
    telling = Notices(Receivers((command(tmp_path, script),), timeout_s=60.0, events=("batch_ended",)), woken.set)
    assert telling.wants("batch_ended") and not telling.wants("breaker_opened")
    telling.tell(NOTICE)
    eventually(begun_by.exists)
    begun = time.monotonic()
    telling.close()
    assert time.monotonic() - begun < 1.0
    assert woken.wait(5) and telling.over()[0].error
    hanging = Notices(Receivers(url=server.url("/hang"), timeout_s=60.0), woken.set)
    hanging.tell(NOTICE)
    begun = time.monotonic()
    hanging.close()
    assert time.monotonic() - begun < 1.0


def test_after_the_end_no_command_is_started() -> None:
    children = Children()
    children.close()
    assert children.started(lambda: pytest.fail("it was started")) is None


def faults(**values: object) -> list[str]:
    return Settings({**DEFAULTS, **values}, dict.fromkeys(DEFAULTS, "config.toml"), {}).faults()


def test_settings_are_checked_and_what_is_said_of_them_holds_no_secret() -> None:
    good = {
        "notify_url": "https://hooks.example.org/T0/K3N?x=1", "notify_on": ["breaker_opened"],
        "notify_headers": ["Authorization: Bearer s3cret"], "notify_command": "notify --token s3cret",
    }  # fmt: skip
    assert faults(**good) == []
    shown = [str(open_part(key, value)) for key, value in good.items()]
    assert shown[0] == "https://hooks.example.org/..." and shown[3] == "notify ..."
    assert "s3cret" not in " ".join(shown) and "K3N" not in " ".join(shown) and "pw" not in " ".join(shown)
    for key, bad in (
        ("notify_url", "ftp://hooks.example.org/s3cret"), ("notify_url", "hooks.example.org/s3cret"), ("notify_url", 7),
        ("notify_headers", ["Bearer s3cret"]), ("notify_headers", 5), ("notify_on", ["job_ended"]),
        ("notify_command", "notify 's3cret"), ("notify_timeout", "10"), ("schedule_limit", "soon"),
        ("notify_url", "https://ada:s3cret@hooks.example.org/x"), ("notify_timeout", "0s"), ("schedule_limit", "0s"),
    ):  # fmt: skip
        (fault,) = faults(**{key: bad})
        assert key in fault and "s3cret" not in fault


def test_who_is_told_is_read_from_the_settings(tmp_path: Path) -> None:
    values = {**DEFAULTS, "notify_command": "/bin/notify 'a b'", "notify_timeout": "3s"}
    whom = notices.receivers(Settings(values, dict.fromkeys(DEFAULTS, "default"), {}), Paths(str(tmp_path)))
    assert (whom.command, whom.timeout_s, whom.names) == (("/bin/notify", "a b"), 3.0, ("command",))
    assert whom.events == ("batch_ended", "breaker_opened") and whom.described() == ["the command /bin/notify"]


def test_a_fault_in_a_test_of_nobody_is_a_wrong_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from scheduler.cli import notifying
    from scheduler.cli.fast import Call

    monkeypatch.setenv("SCHEDQ_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="nobody is told of anything"):
        notifying.test(Call("notify test", {}))
