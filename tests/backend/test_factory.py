"""`Backend`: what it needs, and what it says if something is missing."""

import subprocess
import sys

import pytest

from dovetail.backend import Backend
from dovetail.errors import ConfigError
from dovetail.sealing import KEYS_VARIABLE, key_ring

from .conftest import KEY


def test_without_common_keys_processes_are_not_one_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=f"Set {KEYS_VARIABLE} to the same value everywhere"):
        Backend("redis://127.0.0.1")
    monkeypatch.setenv(KEYS_VARIABLE, KEY)
    assert Backend("redis://127.0.0.1").state == "away"
    assert Backend("redis://127.0.0.1", keys=key_ring([KEY])).state == "away"


@pytest.mark.parametrize("package", ["redis", "cryptography.exceptions"])
def test_without_the_extra_one_line_names_it(package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from dovetail.backend import Backend\n"
        f"try: Backend('redis://127.0.0.1', keys=[{KEY!r}])\n"
        "except ValueError as error: print(error)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert output.count("\n") == 1
    assert "pip install 'dovetail-mcp[redis]'" in output


@pytest.mark.bare_interpreter
def test_without_a_url_nothing_of_redis_is_imported() -> None:
    code = "import dovetail.backend, dovetail.serve.http, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "dovetail.backend" in loaded
    assert not {"redis", "hiredis", "dovetail.backend.factory"} & {*loaded}


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("shop", "{dovetail:shop}:"), ("a}:b *?[x]", "{dovetail:a%7D%3Ab%20%2A%3F%5Bx%5D}:")],
)
def test_all_keys_of_a_server_have_one_hash_tag(name: str, prefix: str) -> None:
    assert Backend("redis://127.0.0.1", name=name, keys=[KEY]).prefix == prefix


def test_neither_keys_nor_the_password_are_shown() -> None:
    backend = Backend("redis://me:hunter2@127.0.0.1:1/2", keys=[KEY])
    assert repr(backend) == "Backend('redis://127.0.0.1:1/2')"
    assert repr(backend.client) == "RedisClient('redis://127.0.0.1:1/2')"
