"""TLS and SASL/PLAIN: who may connect, what is answered before a login, and what the page of metrics says of it."""

from __future__ import annotations

import contextlib
import ssl
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from cleaner.app.options import CallContext
from cleaner.app.serve_log_dirs import ServedLogDirs
from cleaner.base.listening import Address
from cleaner.errors import ConfigError, UsageError
from cleaner.present.http.endpoint import access_of, metrics_server
from cleaner.serve.codes import Code
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.served import running
from tests.support.wire_client import WireClient, frame_of
from tests.unit.present.test_passwords import hashed
from tests.unit.present.test_web_config import certificate as certificate
from tests.unit.present.test_web_config import write

TOPIC = "topic"
CONTEXT = CallContext.of()


def log_dir(root: Path) -> Path:
    """A log of three records."""
    log = LogBuilder()
    log.append(*((f"k{n}", "v" * 300_000) for n in range(3)))
    (root / "logs").mkdir()
    return write_log_dir(root / "logs", log)


@contextlib.contextmanager
def guarded(root: Path, text: str, **more: Any) -> Iterator[ServedLogDirs]:
    """Serve a log dir by a file of `--access`."""
    file = write(root / "access.yml", text)
    with running(log_dir(root), access=access_of(file, CONTEXT), **more) as served:
        yield served


def users(**passwords: str) -> str:
    """Return the part of the file with users."""
    return "basic_auth_users:\n" + "".join(f"  {name}: {hashed(word)}\n" for name, word in passwords.items())


def tls(certificate: Path) -> str:
    """Return the part of the file with the certificate."""
    return f"tls_server_config:\n  cert_file: {certificate}/a.crt\n  key_file: {certificate}/a.key\n"


def login(client: WireClient, token: bytes, mechanism: str = "PLAIN") -> list[int]:
    """Try to log in; returns the codes of both answers."""
    agreed = client.ask("SaslHandshake", 1, mechanism=mechanism)
    assert agreed.mechanisms == ["PLAIN"]
    return [agreed.error_code, client.ask("SaslAuthenticate", 2, auth_bytes=token).error_code]


def test_nothing_is_answered_before_a_login(tmp_path: Path) -> None:
    """But which versions there are; another request ends the connection, and so does a wrong password."""
    with guarded(tmp_path, users(ann="one", bob="two")) as served:
        port = served.address.port
        with WireClient(port) as client:
            assert client.ask("ApiVersions", 3).api_keys
            assert login(client, b"\0ann\0one") == [0, 0]
            assert client.fetch(TOPIC, 0).error_code == 0
            assert client.ask("SaslHandshake", 1, mechanism="PLAIN").error_code == Code.ILLEGAL_SASL_STATE
        for request, values in (("Metadata", {"topics": None}), ("SaslAuthenticate", {"auth_bytes": b"\0ann\0one"})):
            with WireClient(port) as client, pytest.raises(EOFError):
                code = client.ask(request, 1, **values).error_code
                assert code == Code.ILLEGAL_SASL_STATE
                client.frame()
        wrong = [
            b"\0ann\0two",
            b"\0eve\0one",
            b"\0ann\0",
            b"ann",
            b"",
            b"bob\0ann\0one",
            b"\0ann:o\0ne",
            b"\0\xff\0\xff",
        ]
        for token in wrong:
            with WireClient(port) as client:
                assert login(client, token) == [0, Code.SASL_AUTHENTICATION_FAILED], token
                with pytest.raises(EOFError):
                    client.frame()
        with WireClient(port) as client:
            assert client.ask("SaslHandshake", 0, mechanism="PLAIN").error_code == Code.UNSUPPORTED_VERSION
            assert login(client, b"\0ann\0one", "SCRAM-SHA-256")[0] == Code.UNSUPPORTED_SASL_MECHANISM
        assert served.numbers()["failed logins", ""] == len(wrong) + 2


def test_guessers_at_one_address_do_not_hold_up_another(tmp_path: Path) -> None:
    """Addresses take turns, and of guessers who have left no password is compared."""
    with guarded(tmp_path, users(ann="one")) as served, contextlib.ExitStack() as stack:
        port = served.address.port
        for number in range(30):
            guesser = stack.enter_context(WireClient(port))
            guesser.ask("SaslHandshake", 1, mechanism="PLAIN")
            guesser.socket.sendall(frame_of("SaslAuthenticate", 2, {"auth_bytes": b"\0ann\0%d" % number}))
        with WireClient(port, "127.0.0.2") as client:
            began = time.monotonic()
            assert login(client, b"\0ann\0one") == [0, 0]
            assert time.monotonic() - began < 1.5  # thirty guesses take three seconds
        stack.close()
        with WireClient(port) as client:
            began = time.monotonic()
            assert login(client, b"\0ann\0two") == [0, Code.SASL_AUTHENTICATION_FAILED]
            assert time.monotonic() - began < 1.5


def test_kafkas_client_with_tls_and_password(tmp_path: Path, certificate: Path) -> None:
    """Every record comes; without TLS, with another password or for another host nothing does."""
    with guarded(tmp_path, tls(certificate) + users(ann="one"), listen_at=("0.0.0.0", 0)) as served:  # noqa: S104
        trusted = ssl.create_default_context(cafile=str(certificate / "a.crt"))
        consumer = KafkaConsumer(
            bootstrap_servers=f"127.0.0.1:{served.address.port}",
            security_protocol="SASL_SSL",
            ssl_context=trusted,
            sasl_mechanism="PLAIN",
            sasl_plain_username="ann",
            sasl_plain_password="one",  # noqa: S106
            consumer_timeout_ms=3000,
        )
        with contextlib.closing(consumer):
            consumer.assign([TopicPartition(TOPIC, 0)])
            consumer.seek_to_beginning()
            assert [(each.offset, len(each.value)) for each in first_of(consumer, 3)] == [
                (n, 300_000) for n in range(3)
            ]
        with WireClient(served.address.port) as plain, pytest.raises(EOFError):
            plain.ask("ApiVersions", 0)


def first_of(consumer: Any, count: int) -> list[Any]:
    """Return that many records."""
    return [next(consumer) for _ in range(count)]


@pytest.mark.parametrize("part", ["", "tls", "users"])
def test_beyond_loopback_both_are_needed(tmp_path: Path, certificate: Path, part: str) -> None:
    """TLS alone lets anybody read, and a password alone can be read by anybody."""
    text = {"": "", "tls": tls(certificate), "users": users(ann="one")}[part]
    with pytest.raises(UsageError, match="--access FILE"), guarded(tmp_path, text, listen_at=("0.0.0.0", 0)):  # noqa: S104
        pass


def test_file_that_loses_its_users_lets_no_one_in(tmp_path: Path, certificate: Path) -> None:
    """Beyond loopback, whatever the file says by now; and the operator is told."""
    warnings: list[str] = []
    text = tls(certificate) + users(ann="one")
    trusted = ssl.create_default_context(cafile=str(certificate / "a.crt"))
    with guarded(tmp_path, text, listen_at=("0.0.0.0", 0), warn=warnings.append) as served:  # noqa: S104
        write(tmp_path / "access.yml", tls(certificate))
        with WireClient(served.address.port) as client, pytest.raises((OSError, EOFError)):
            client.socket = trusted.wrap_socket(client.socket, server_hostname="localhost")
            client.ask("ApiVersions", 0)
    assert any("refused" in each for each in warnings)


def test_a_file_that_cannot_be_used_is_named_by_its_option(tmp_path: Path) -> None:
    """Not by that of the daemon."""
    with pytest.raises(ConfigError, match=r"^--access="):
        access_of(write(tmp_path / "access.yml", "basic_auth_users:\n  ann: one\n"), CONTEXT)


def test_metrics(tmp_path: Path) -> None:
    """Connections, requests, errors, bytes and groups, by Kafka's names; other paths are not found."""
    with running(log_dir(tmp_path)) as served, WireClient(served.address.port) as client:
        client.fetch(TOPIC, 99)
        size = len(client.fetch(TOPIC, 0).records)
        client.ask("DeleteTopics", 1, topic_names=["topic"], timeout_ms=1)
        with metrics_server(Address("127.0.0.1", 0), served.numbers, None, CONTEXT) as page:
            text = urllib.request.urlopen(f"http://{page.address}/metrics", timeout=5).read().decode()
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://{page.address}/", timeout=5)
    for line in (
        "cleaner_serve_open_connections 1.0",
        'cleaner_serve_connections_total{result="accepted"} 1.0',
        'cleaner_serve_requests_total{api="Fetch"} 2.0',
        'cleaner_serve_refused_requests_total{api="DeleteTopics"} 1.0',
        'cleaner_serve_errors_total{error="OFFSET_OUT_OF_RANGE"} 1.0',
        f'cleaner_serve_sent_bytes_total{{content="records"}} {size}.0',
        "cleaner_serve_failed_logins_total 0.0",
        "cleaner_serve_groups 0.0",
    ):
        assert line in text.splitlines(), line
