"""TLS and users in the form of Prometheus's exporters."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import select
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import bcrypt
import pytest

from cleaner.base.clock import SystemClock
from cleaner.base.listening import Address
from cleaner.errors import ConfigError
from cleaner.present.http.message import Request, Response
from cleaner.present.http.server import MAX_CONNECTIONS, MAX_WAITING, HttpServer
from cleaner.present.http.web_config import WebConfigFile, load
from cleaner.storage.fs.file_system import FileSystem
from tests.unit.present.test_passwords import basic, hashed

FS = FileSystem()
_TLS = "tls_server_config:\n  cert_file: a\n  key_file: b\n"


def write(path: Path, text: str) -> Path:
    """Put a file, whole, in the place of the one before, with other times: a server may be looking."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    stamp = time.time_ns() + new.stat().st_size * 1_000_000
    os.utime(new, ns=(stamp, stamp))
    return new.replace(path)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `a.crt` and `a.key`, signed by itself for localhost."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is missing: apt-get install openssl")
    directory = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", directory / "a.key", "-out", directory / "a.crt"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return directory


def test_user_with_the_right_password_is_allowed(tmp_path: Path) -> None:
    """Nobody else is: not another user, not another password, not another scheme, not garbage."""
    path = write(tmp_path / "web.yml", f"basic_auth_users:\n  ann: {hashed('pässword')}\n  bob: {hashed('b:c')}\n")
    is_allowed = load(FS, path).passwords.is_allowed
    assert [is_allowed(basic("ann:pässword")) for _ in range(2)] == [True, True]
    assert is_allowed(basic("bob:b:c"))
    for wrong in ("", "Basic", "Basic ???", basic("ann:"), basic("ann:wrong"), basic("eve:pässword"), basic("pässword"),
                  basic("bob:pässword"), "Bearer " + basic("ann:pässword")[6:], basic("ann:" + "x" * 5000),
                  basic("ann:\0")):  # fmt: skip
        assert not is_allowed(wrong)


def test_empty_file_asks_for_no_password(tmp_path: Path) -> None:
    """No users and no TLS, as the exporters take it."""
    config = load(FS, write(tmp_path / "web.yml", "# nothing yet\n"))
    assert (config.tls, config.has_users, config.passwords.is_allowed("")) == (None, False, True)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("basic_auth_user:\n  ann: x\n", "basic_auth_user unknown here"),
        ("basic_auth_users:\n  ann: secret\n", "'ann' is no bcrypt hash"),
        ("basic_auth_users:\n  'a:b': $2y$10$x\n", "has a colon"),
        ("basic_auth_users: ann\n", "must be names and values"),
        ("tls_server_config:\n  cert_file: a.crt\n", "key_file is missing"),
        ("tls_server_config:\n  cert_file: no.crt\n  key_file: no.key\n", "tls_server_config: "),
        (_TLS + "  min_version: TLS9\n", "min_version must be one of TLS10"),
        (_TLS + "  ciphers: x\n", "ciphers unknown here"),
        (_TLS + "  client_auth_type: RequireAndVerifyClientCert\n", "needs client_ca"),
        ("rate_limit: 1\n", "rate_limit unknown here"),
        ("a: [secret\n", "not YAML, line 2"),
        ("!!python/object/apply:os.system ['true']\n", "not YAML"),
        ("a: &a [x]\nb: [*a, *a]\n", "names and values alone, line 2"),
        ("a: " + "[" * 50_000 + "secret", "names and values alone, line 1"),
        ("basic_auth_users:\n  ann: null\n", "'ann' is no bcrypt hash"),
        ("basic_auth_users:\n  ann: 1" + ":59" * 40_000, "'ann' is no bcrypt hash"),
        (f"basic_auth_users:\n  ann: $2y$20${'.' * 53}\n", "'ann' has cost 20; above 15"),
        ("- 1\n", "must be names and values"),
    ],
)  # fmt: skip
def test_file_that_cannot_be_used_is_an_error_that_says_why(tmp_path: Path, text: str, what: str) -> None:
    """A setting that seems to protect something is never skipped; a password is not repeated."""
    with pytest.raises(ConfigError) as raised:
        load(FS, write(tmp_path / "web.yml", text))
    assert what in str(raised.value) and raised.value.exit_code == 78
    assert "secret" not in str(raised.value) and "\n" not in str(raised.value)


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    """The setting and the path are named."""
    with pytest.raises(ConfigError, match=r"cleaner.http.web.config.file=.*web.yml"):
        load(FS, tmp_path / "web.yml")


def test_changed_file_counts_from_the_next_question(tmp_path: Path) -> None:
    """A bad change is reported once and changes nothing; a good one counts, also through a link that was moved."""
    told: list[str] = []
    first = write(tmp_path / "1.yml", f"basic_auth_users:\n  ann: {hashed('one')}\n")
    link = tmp_path / "web.yml"
    link.symlink_to(first)
    followed = WebConfigFile(FS, link, told.append)
    write(first, "basic_auth_users:\n  ann: no hash\n")
    assert [followed.current().passwords.is_allowed(basic("ann:one")) for _ in range(3)] == [True] * 3
    assert len(told) == 1 and "stays in force" in told[0]
    second = write(tmp_path / "2.yml", f"basic_auth_users:\n  ann: {hashed('two')}\n  bob: {hashed('two')}\n")
    link.unlink()
    link.symlink_to(second)
    assert followed.current().passwords.is_allowed(basic("ann:two"))
    assert not followed.current().passwords.is_allowed(basic("ann:one"))
    link.unlink()
    assert followed.current().passwords.is_allowed(basic("ann:two"))
    assert len(told) == 2


def test_server_with_tls_and_users_serves_only_them(tmp_path: Path, certificate: Path) -> None:
    """HTTPS with the password is served; without it `401`, but for the probes; plain HTTP gets nothing."""
    for name in ("a.crt", "a.key"):
        shutil.copy(certificate / name, tmp_path / name)
    text = f"tls_server_config:\n  cert_file: a.crt\n  key_file: a.key\nbasic_auth_users:\n  ann: {hashed('one')}\n"
    told: list[object] = []
    web_config = WebConfigFile(FS, write(tmp_path / "web.yml", text), told.append)

    def answer(request: Request) -> Response:
        return Response.words(HTTPStatus.OK, request.path)

    server = HttpServer(
        Address("127.0.0.1", 0),
        answer,
        web_config=web_config,
        warn=told.append,
        failed=told.append,
        clock=SystemClock(),
    )
    trusted = ssl.create_default_context(cafile=str(certificate / "a.crt"))

    def ask(path: str, authorization: str | None = None) -> tuple[int, str | None, bytes]:
        connection = http.client.HTTPSConnection("localhost", server.address.port, context=trusted, timeout=30)
        connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
        response = connection.getresponse()
        return response.status, response.getheader("WWW-Authenticate"), response.read()

    with server:
        assert ask("/metrics", basic("ann:one"))[::2] == (200, b"/metrics\n")
        assert ask("/metrics")[:2] == (401, 'Basic realm="cleaner", charset="UTF-8"')
        assert ask("/metrics", basic("ann:two"))[0] == 401
        assert [ask(path)[0] for path in ("/livez", "/readyz", "/healthz", "/")] == [200, 200, 401, 401]
        plain = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=30)
        plain.request("GET", "/livez")
        with pytest.raises((http.client.HTTPException, OSError)):
            plain.getresponse()
    assert told == []


def test_connections_that_never_shake_hands_do_not_stop_a_scrape(tmp_path: Path, certificate: Path) -> None:
    """They give way to those that do, as silent ones do without TLS."""
    tls = f"tls_server_config:\n  cert_file: {certificate}/a.crt\n  key_file: {certificate}/a.key\n"
    trusted = ssl.create_default_context(cafile=str(certificate / "a.crt"))
    with guarded(write(tmp_path / "web.yml", tls)) as server, contextlib.ExitStack() as stack:
        port = server.address.port
        for _ in range(MAX_CONNECTIONS + 8):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        began = time.monotonic()
        connection = http.client.HTTPSConnection("localhost", port, context=trusted, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            assert connection.getresponse().read() == b"/metrics\n"
        assert time.monotonic() - began < 2.0


def test_client_that_resets_within_a_large_answer_is_no_line_of_asyncios(
    tmp_path: Path, certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With TLS nothing fails when the client has gone, and each further piece would be one."""
    tls = f"tls_server_config:\n  cert_file: {certificate}/a.crt\n  key_file: {certificate}/a.key\n"
    trusted = ssl.create_default_context(cafile=str(certificate / "a.crt"))
    web_config = WebConfigFile(FileSystem(), write(tmp_path / "web.yml", tls), lambda _: None)
    with HttpServer(
        Address("127.0.0.1", 0),
        lambda _: Response(bytes(5_000_000)),
        web_config=web_config,
        warn=lambda _: None,
        failed=lambda _: None,
        clock=SystemClock(),
    ) as server:
        for _ in range(5):
            plain = socket.create_connection(("127.0.0.1", server.address.port), timeout=30)
            with trusted.wrap_socket(plain, server_hostname="localhost") as client:
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                client.recv(10)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert caplog.messages == []


def test_client_certificates_count_as_users(tmp_path: Path, certificate: Path) -> None:
    """Who asks for certificates has closed the door, too; the lowest version of TLS is the one set."""
    for name in ("a.crt", "a.key"):
        shutil.copy(certificate / name, tmp_path / name)
    text = (
        "tls_server_config: {cert_file: a.crt, key_file: a.key, min_version: TLS13, client_ca_file: a.crt, "
        "client_auth_type: RequireAndVerifyClientCert}\n"
    )
    config = load(FS, write(tmp_path / "web.yml", text))
    assert config.has_users and config.tls is not None
    assert config.tls.minimum_version is ssl.TLSVersion.TLSv1_3


class Storm:
    """Clients that guess passwords of one user, each a new one as soon as it has its answer."""

    def __init__(self, port: int, guessers: int) -> None:
        self._port = port
        self._is_over = threading.Event()
        self.answers: Counter[int] = Counter()
        self._threads = [threading.Thread(target=self._guess, args=(number,)) for number in range(guessers)]

    def __enter__(self) -> Storm:
        for thread in self._threads:
            thread.start()
        while not self.answers:  # until it is under way
            self._is_over.wait(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _guess(self, guesser: int) -> None:
        for number in itertools.count():
            if self._is_over.is_set():
                return
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.answers[get(self._port, "/metrics", f"prom:{guesser}-{number}", timeout=2)] += 1


def get(port: int, path: str, user: str | None, *, timeout: float = 30, source: str = "127.0.0.1") -> int:
    """Return the status of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout, source_address=(source, 0))
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Authorization": basic(user)} if user else {})
        return connection.getresponse().status


@contextlib.contextmanager
def guarded(path: Path) -> Iterator[HttpServer]:
    """Serve on the loopback, to those that a `web.config.file` names."""
    told: list[object] = []
    server = HttpServer(
        Address("127.0.0.1", 0),
        lambda request: Response.words(HTTPStatus.OK, request.path),
        web_config=WebConfigFile(FS, path, told.append),
        warn=told.append,
        failed=told.append,
        clock=SystemClock(),
    )
    with server:
        yield server
    assert told == []
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("cleaner-http")] == []
    for thread in threading.enumerate():
        if thread.name == "cleaner-passwords":  # closing has not waited for its last comparison
            thread.join(30)
            assert not thread.is_alive()


class WrittenMeanwhile(FileSystem):
    """The file gets its content right behind the first look at what it was."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def read_bytes(self, path: Path, limit: int = 1 << 30) -> bytes:
        data = super().read_bytes(path, limit)
        path.write_text(self.text)
        return data


def test_file_that_is_written_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    """Else what was half written, with no user yet, would stay in force."""
    path = write(tmp_path / "web.yml", "")
    assert set(
        WebConfigFile(WrittenMeanwhile(f"basic_auth_users:\n  prom: {hashed('a')}\n"), path, print).current().users
    ) == {"prom"}


def test_file_that_is_emptied_lets_no_one_in(tmp_path: Path) -> None:
    """An editor that writes over it empties it first; a file without users is not enough."""
    told: list[str] = []
    path = write(tmp_path / "web.yml", f"basic_auth_users:\n  prom: {hashed('a')}\n")
    followed = WebConfigFile(FS, path, told.append)
    write(path, "")
    assert set(followed.current().users) == {"prom"}
    assert ["empty" in message for message in told] == [True]
    write(path, "# nobody is asked\n")
    assert followed.current().users == {}


def test_file_with_certificates_that_is_emptied_is_reported_once(tmp_path: Path, certificate: Path) -> None:
    """However many requests come while it is empty."""
    told: list[str] = []
    tls = f"tls_server_config:\n  cert_file: {certificate}/a.crt\n  key_file: {certificate}/a.key\n"
    path = write(tmp_path / "web.yml", f"{tls}basic_auth_users:\n  prom: {hashed('a')}\n")
    followed = WebConfigFile(FS, path, told.append)
    write(path, "")
    assert [set(followed.current().users) for _ in range(3)] == [{"prom"}] * 3
    assert len(told) == 1


def test_known_user_and_probes_are_served_in_a_storm_of_guesses(tmp_path: Path) -> None:
    """At once: a comparison takes a quarter of a second, and thirty of them are always asked for."""
    costly = bcrypt.hashpw(b"secret", bcrypt.gensalt(12)).decode()
    with guarded(write(tmp_path / "web.yml", f"basic_auth_users:\n  prom: {costly}\n")) as server:
        port = server.address.port
        assert get(port, "/metrics", "prom:secret") == 200
        with Storm(port, 30) as storm:
            began = time.monotonic()
            for _ in range(10):
                assert get(port, "/metrics", "prom:secret") == 200
                assert get(port, "/livez", None) == 200
                assert get(port, "/readyz", None) == 200
                assert get(port, "/metrics", None) == 401
            assert time.monotonic() - began < 30  # a turn in the line each would be minutes
        assert set(storm.answers) <= {401}


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"], ids=["from their place", "from another"])
def test_right_password_is_heard_first_in_a_storm_of_guesses(tmp_path: Path, source: str) -> None:
    """Nobody knows it yet: it has its turn in the line, and is known from then on; also after the file has changed."""
    path = write(tmp_path / "web.yml", f"basic_auth_users:\n  prom: {hashed('secret')}\n")
    with guarded(path) as server, Storm(server.address.port, 30):
        assert get(server.address.port, "/metrics", "prom:secret", source=source) == 200
        write(path, f"# another\nbasic_auth_users:\n  prom: {hashed('changed')}\n")
        assert get(server.address.port, "/metrics", "prom:secret", source=source) == 401
        assert get(server.address.port, "/metrics", "prom:changed", source=source) == 200


def test_wrong_guesses_have_a_pace(tmp_path: Path) -> None:
    """Ten a second, from all together, however cheap the hash."""
    with guarded(write(tmp_path / "web.yml", f"basic_auth_users:\n  prom: {hashed('secret')}\n")) as server:
        began = time.monotonic()
        assert [get(server.address.port, "/", f"prom:{number}") for number in range(6)] == [401] * 6
        assert time.monotonic() - began > 0.45


def test_line_that_is_full_sends_more_of_the_crowd_away(tmp_path: Path) -> None:
    """With `429`, and lets who comes from elsewhere in; closing waits for none of them."""
    costly = bcrypt.hashpw(b"secret", bcrypt.gensalt(12)).decode()
    path = write(tmp_path / "web.yml", f"basic_auth_users:\n  prom: {costly}\n")
    with contextlib.ExitStack() as stack:
        with guarded(path) as server:
            port = server.address.port
            crowd: dict[socket.socket, http.client.HTTPConnection] = {}
            for number in range(MAX_WAITING + 8):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                stack.callback(connection.close)
                connection.request("GET", "/", headers={"Authorization": basic(f"prom:{number}")})
                crowd[connection.sock] = connection
            answers: list[int] = []
            while 429 not in answers:  # some of them may have had their turn meanwhile
                ready, _, _ = select.select(list(crowd), [], [], 30)
                assert ready
                answers += [crowd.pop(each).getresponse().status for each in ready]
            assert set(answers) <= {401, 429}
            assert get(port, "/", "prom:secret", source="127.0.0.2") == 200
            began = time.monotonic()
        assert time.monotonic() - began < 10
