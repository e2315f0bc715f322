import multiprocessing
import os
import string
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from dovetail import sealing
from dovetail.errors import ConfigError
from dovetail.sealing import Forged, KeyRing, key_ring

OLD, NEW, OTHER = ("old key " * 4, "new key " * 4, "another " * 4)
Make = Callable[..., KeyRing]


def bare(*keys: str) -> KeyRing:
    """A ring made where `cryptography` is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cryptography.exceptions", None)
        ring = key_ring(keys)
        assert not ring.encrypts
    return ring


def full(*keys: str) -> KeyRing:
    ring = key_ring(keys)
    if not ring.encrypts:
        pytest.skip("cryptography is not installed")
    return ring


both = pytest.mark.parametrize("make", [full, bare], ids=["encrypted", "signed"])


@both
@pytest.mark.parametrize("data", [b"", b"x", b"{}" * 500], ids=["empty", "short", "long"])
def test_what_was_sealed_opens_again(make: Make, data: bytes) -> None:
    ring = make(NEW)
    assert ring.open("session", ring.seal("session", data, bound=b"alice"), bound=b"alice") == data


@both
def test_a_token_is_safe_in_headers_and_urls(make: Make) -> None:
    ring = make(NEW)
    tokens = "".join(ring.seal("session", bytes(range(length))) for length in range(64))
    assert set(tokens) <= set(string.ascii_letters + string.digits + "-_")


@both
def test_the_same_bytes_never_give_the_same_token(make: Make) -> None:
    ring = make(NEW)
    assert len({ring.seal("session", b"same") for _ in range(1000)}) == 1000


@both
def test_a_token_does_not_open_for_another_purpose_or_another_user(make: Make) -> None:
    ring = make(NEW)
    token = ring.seal("session", b"data", bound=b"alice")
    for purpose, bound in [
        ("cursor", b"alice"),
        ("session", b"bob"),
        ("session", b""),
        ("sessio", b"nalice"),
    ]:
        with pytest.raises(Forged):
            ring.open(purpose, token, bound=bound)


@both
def test_what_it_is_bound_to_and_what_is_in_it_cannot_flow_into_each_other(make: Make) -> None:
    from base64 import urlsafe_b64decode as decode, urlsafe_b64encode as encode

    ring = make(NEW)
    raw = decode(ring.seal("session", b"cd", bound=b"ab") + "==")
    moved = encode(raw[:13] + raw[14:]).rstrip(b"=").decode()
    with pytest.raises(Forged):
        ring.open("session", moved, bound=b"abc")


@both
def test_every_changed_bit_is_noticed(make: Make) -> None:
    ring = make(NEW)
    token = ring.seal("session", b"some data")
    alphabet = string.ascii_letters + string.digits + "-_"
    for place, letter in enumerate(token):
        for other in {
            alphabet[(alphabet.index(letter) + 1) % 64],
            alphabet[(alphabet.index(letter) + 17) % 64],
        }:
            with pytest.raises(Forged):
                ring.open("session", token[:place] + other + token[place + 1 :])


@both
def test_a_token_has_one_spelling(make: Make) -> None:
    ring = make(NEW)
    for length in range(3):  # each leaves other bits unused in the last letter
        token = ring.seal("session", b"x" * length)
        last = [
            token[:-1] + letter
            for letter in string.ascii_letters + string.digits + "-_"
            if letter != token[-1]
        ]
        for spelling in [
            token + "=",
            token + "\n",
            " " + token,
            token[:4] + "!" + token[4:],
            token + "====",
            *last,
        ]:
            with pytest.raises(Forged):
                ring.open("session", spelling)


@both
def test_plus_and_slash_are_no_letters_of_a_token(make: Make) -> None:
    ring = make(NEW)
    token = next(
        t for t in (ring.seal("session", b"x") for _ in range(1000)) if "-" in t and "_" in t
    )
    for spelling in (token.replace("-", "+"), token.replace("_", "/")):
        with pytest.raises(Forged):
            ring.open("session", spelling)


@both
def test_truncated_and_foreign_tokens_are_refused_with_the_same_words(make: Make) -> None:
    ring = make(NEW)
    token = ring.seal("session", b"data")
    foreign = [token[:end] for end in range(len(token))]
    foreign += [
        make(OTHER).seal("session", b"data"),
        "é" * 40,
        "\udc80" * 40,
        "A" * 100,
        "~" * 100,
        "\0" * 64,
        "A" * 100_000,
    ]
    for wrong in foreign:
        with pytest.raises(Forged) as caught:
            ring.open("session", wrong)
        assert str(caught.value) == "not a valid token"
        assert isinstance(caught.value, ValueError)


@given(st.text())
def test_no_text_at_all_makes_opening_fail_otherwise(text: str) -> None:
    for ring in RINGS:
        with pytest.raises(Forged):
            ring.open("session", text)


@both
def test_keys_are_rotated_by_putting_the_new_one_in_front(make: Make) -> None:
    before, during, after = make(OLD), make(NEW, OLD), make(NEW)
    old, new = before.seal("session", b"1"), during.seal("session", b"2")
    assert during.open("session", old) == b"1"
    assert during.open("session", new) == after.open("session", new) == b"2"
    with pytest.raises(Forged):
        after.open("session", old)
    with pytest.raises(Forged):
        before.open("session", new)


def test_an_encrypted_token_shows_nothing_and_a_signed_one_does() -> None:
    from base64 import urlsafe_b64decode as decode

    assert b"visible" not in decode(full(NEW).seal("session", b"visible") + "==")
    assert b"visible" in decode(bare(NEW).seal("session", b"visible") + "==")


def test_a_signed_token_opens_where_encryption_is_installed_but_not_the_other_way_round() -> None:
    assert full(NEW).open("session", bare(NEW).seal("session", b"data")) == b"data"
    with pytest.raises(Forged):
        bare(NEW).open("session", full(NEW).seal("session", b"data"))


def test_a_token_cannot_be_passed_off_as_the_other_kind() -> None:
    from base64 import urlsafe_b64decode as decode, urlsafe_b64encode as encode

    ring = full(NEW)
    for maker in (full(NEW), bare(NEW)):
        raw = bytearray(decode(maker.seal("session", b"data") + "=="))
        for kind in {0, 1, 2, 3, 255} - {raw[0]}:
            raw[0] = kind
            with pytest.raises(Forged):
                ring.open("session", encode(raw).rstrip(b"=").decode())


def test_keys_come_from_the_configuration_before_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", OLD)
    ring = key_ring([NEW.encode()])
    assert ring.origin == "configured"
    assert (
        key_ring(NEW).open("session", ring.seal("session", b"1")) == b"1"
    )  # one key needs no brackets


def test_keys_come_from_the_environment_separated_by_commas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", f" {'n' * 16} , {'o' * 16},")
    ring = key_ring()
    assert ring.origin == "environment"
    assert ring.open("session", key_ring(["o" * 16]).seal("session", b"1")) == b"1"
    assert key_ring(["n" * 16]).open("session", ring.seal("session", b"2")) == b"2"


def _sealed_in_a_child(connection: "multiprocessing.connection.Connection") -> None:
    connection.send(key_ring().seal("session", b"from a child"))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_without_any_key_the_processes_of_one_program_share_one(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOVETAIL_KEYS", raising=False)
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("not on this system")
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    child = context.Process(target=_sealed_in_a_child, args=(theirs,))
    child.start()
    assert ours.poll(20)
    ring = key_ring()
    assert ring.origin == "process"
    assert ring.open("session", ours.recv()) == b"from a child"
    child.join()
    ours.close()
    theirs.close()


@pytest.mark.parametrize("blank", ["", " ", ",", " , "])
def test_a_blank_variable_is_no_key(blank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", blank)
    assert key_ring().origin == "process"


def test_a_short_key_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", f"{OLD},hunter2")
    with pytest.raises(
        ConfigError, match=r"DOVETAIL_KEYS: key 2 has 7 characters.*token_urlsafe"
    ) as caught:
        key_ring()
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError, match="key 1 has 15 characters"):
        key_ring([b"x" * 15])
    with pytest.raises(ConfigError, match="at least one"):
        key_ring([])


def test_what_need_not_be_hidden_is_only_signed() -> None:
    ring = full(NEW)
    token = ring.seal("session", b"known to its holder", hide=False)
    assert bare(NEW).open("session", token) == ring.open("session", token) == b"known to its holder"
    with pytest.raises(Forged):
        ring.open("session", ring.seal("session", b"known to its holder"), hidden=False)
    with pytest.raises(Forged):
        ring.open("session", token[:-2] + ("AA" if token[-2:] != "AA" else "BB"))


@pytest.mark.bare_interpreter
def test_a_signature_loads_no_library_for_encryption() -> None:
    code = (
        f"import sys; from dovetail.sealing import key_ring; ring = key_ring([{NEW!r}]); "
        "ring.open('a', ring.seal('a', b'', hide=False)); print(*sys.modules)"
    )
    program = [sys.executable, "-c", code]
    loaded = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()
    assert "cryptography" not in loaded


def test_a_ring_does_not_show_its_keys() -> None:
    ring = key_ring(["s3cret" * 4])
    assert "s3cret" not in repr(ring) + str([getattr(ring, name) for name in ring.__slots__])


@pytest.mark.bare_interpreter
def test_nothing_heavy_is_loaded_before_the_first_token() -> None:
    code = (
        f"import sys; from dovetail.sealing import key_ring; key_ring([{NEW!r}]); "
        "print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"asyncio", "cryptography", "multiprocessing", "base64"} & set(loaded)


# tokens as bytes, and subkeys


@both
@pytest.mark.parametrize("data", [b"", b"x" * 1000], ids=["empty", "long"])
def test_a_token_may_be_bytes(make: Make, data: bytes) -> None:
    ring = make(NEW)
    token = ring.seal_bytes("row", data, bound=b"key")
    assert make(OLD, NEW).open_bytes("row", token, bound=b"key") == data
    for changed in (b"", token[:-1], token + b"x", token[:1], b"\xff" + token[1:]):
        with pytest.raises(Forged):
            ring.open_bytes("row", changed, bound=b"key")
    for index in range(min(len(token), 60)):
        flipped = token[:index] + bytes([token[index] ^ 1]) + token[index + 1 :]
        with pytest.raises(Forged):
            ring.open_bytes("row", flipped, bound=b"key")
    with pytest.raises(Forged):
        ring.open_bytes("row", token, bound=b"other key")


def salt_of(ring: KeyRing) -> bytes:
    return ring.seal_bytes("row", b"")[1:17]


def test_every_ring_encrypts_with_subkeys_of_its_own() -> None:
    one, two = full(NEW), full(NEW)
    assert salt_of(one) == salt_of(one) != salt_of(two)
    assert two.open_bytes("row", one.seal_bytes("row", b"data")) == b"data"


def test_a_subkey_is_replaced_before_it_encrypts_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "MAX_TOKENS_PER_SALT", 3)
    ring = full(NEW)
    tokens = [ring.seal_bytes("row", b"data") for _ in range(9)]
    assert len({token[1:17] for token in tokens}) == 3
    assert {ring.open_bytes("row", token) for token in tokens} == {b"data"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_has_another_subkey() -> None:
    ring = full(NEW)
    salt, (reading, writing) = salt_of(ring), os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, salt_of(ring))
        os._exit(0)
    os.waitpid(child, 0)
    assert len(other := os.read(reading, 100)) == 16 and other != salt == salt_of(ring)
    os.close(reading)
    os.close(writing)


def test_what_was_encrypted_without_a_subkey_still_opens() -> None:
    ring = full(NEW)
    [cipher] = ring._derive_ciphers(sealing.ENCRYPTED, "login", b"")
    old = b"\x01" + b"n" * 12 + cipher.encrypt(b"n" * 12, b"data", b"alice")
    assert ring.open_bytes("login", old, bound=b"alice") == b"data"


def test_forged_salts_cost_no_memory() -> None:
    ring = full(NEW)
    token = ring.seal_bytes("row", b"data")
    known = len(ring._ciphers)
    for n in range(100):
        with pytest.raises(Forged):
            ring.open_bytes("row", token[:1] + n.to_bytes(16) + token[17:])
    assert len(ring._ciphers) == known


RINGS = (key_ring([NEW]), bare(NEW))


def test_a_digest_depends_on_the_first_key_and_the_purpose() -> None:
    ring = KeyRing([b"one", b"two"])
    name = ring.digest("a", b"x")
    assert name == KeyRing([b"one"]).digest("a", b"x")
    others = [KeyRing([b"two", b"one"]).digest("a", b"x"), ring.digest("b", b"x")]
    assert len({name, *others, ring.digest("a", b"y")}) == 4
