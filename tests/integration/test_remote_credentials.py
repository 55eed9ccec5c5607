"""Who asks: by the chains of Google's and Azure's tools, through proxies; and what of it is shown."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.base.remote_path import any_path
from cleaner.errors import LogDirOfflineError
from cleaner.storage.fs import gs
from cleaner.storage.fs.remote import RemoteFiles
from cleaner.storage.fs.store import Limits
from tests.support.object_servers import ObjectServer, environment_of
from tests.support.s3_server import BUCKET, SECRET

LIMITS = Limits(attempts=1, silence_seconds=5)


@pytest.fixture
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    started = ObjectServer(request.param)
    started.put("kafka/a", b"1")
    for name in ("STORAGE_EMULATOR_HOST", "AZURE_STORAGE_CONNECTION_STRING", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield started
    started.stop()


@pytest.mark.parametrize("server", ["gs"], indirect=True)
def test_service_account_of_google(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its token is asked for once, goes with each request, and is in no log."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    account = {"type": "service_account", "client_email": "a@b", "private_key": key.decode(), "project_id": "p"}
    (tmp_path / "account.json").write_text(json.dumps({**account, "token_uri": f"{server.url}/token"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    monkeypatch.setattr(gs, "_GOOGLE", server.url)
    files = RemoteFiles(LIMITS)
    with caplog.at_level(logging.DEBUG):
        assert files.read_bytes(any_path(f"gs://{BUCKET}/kafka/a")) == b"1"
    assert set(server.authorized) == {f"Bearer {SECRET}"}
    assert [path for _, path, _ in server.requests].count("/token") == 1
    assert SECRET not in caplog.text


@pytest.mark.parametrize("server", ["gs"], indirect=True)
def test_missing_and_bad_credentials_of_google(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One error, at once."""
    monkeypatch.setattr(gs, "_GOOGLE", server.url)
    for content in (None, "{}"):
        if content is not None:
            (tmp_path / "account.json").write_text(content)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        with pytest.raises(LogDirOfflineError, match="no credentials by the usual chain of Google's tools"):
            RemoteFiles(LIMITS).list_dir(any_path(f"gs://{BUCKET}/kafka"))
    assert server.requests == []


@pytest.mark.parametrize("server", ["gs"], indirect=True)
def test_proxy_of_the_environment(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that this machine does not know is asked through it."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://storage.invalid")
    monkeypatch.setenv("http_proxy", server.url)
    assert RemoteFiles(LIMITS).list_dir(any_path(f"gs://{BUCKET}/kafka")) == ["a"]
    assert server.requests[0][1].startswith("http://storage.invalid/storage/v1/b/")


@pytest.mark.parametrize("server", ["abfs"], indirect=True)
def test_credentials_of_azure(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signature in the connection string; without any, with a bad key, or for another account, an error at once."""
    url = any_path(f"abfs://{BUCKET}@archive.dfs.core.windows.net/kafka")
    point = f"AccountName=archive;BlobEndpoint={server.url}/archive"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"{point};SharedAccessSignature=sv=1&sig={SECRET}")
    assert RemoteFiles(LIMITS).list_dir(url) == ["a"]
    server.requests.clear()
    other = any_path(f"abfs://{BUCKET}@other.dfs.core.windows.net/kafka")
    for text, path, words in (
        (f"{point};AccountKey=x", url, "is not base64"),
        (point, url, "no connection string, SAS or key"),
        (f"{point};AccountKey=eA==", other, "is of another account"),
    ):
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
        with pytest.raises(LogDirOfflineError, match=words):
            RemoteFiles(LIMITS).list_dir(path)
    assert server.requests == []
    monkeypatch.setenv(
        "AZURE_STORAGE_CONNECTION_STRING", environment_of("abfs", server)["AZURE_STORAGE_CONNECTION_STRING"]
    )
    assert RemoteFiles(LIMITS).list_dir(url) == ["a"]
