"""Whether a Redis server is set up as a shared backend needs it.

`dovetail backend check` prints all checks, and a server logs the ones that are about the settings
of Redis if they fail (`warn_about_settings`). INFO and CONFIG may be forbidden, as they often are
in the cloud. Then a check says that it does not know, which is not a failure.
"""

import asyncio
import time
from collections.abc import Iterator
from secrets import token_hex
from typing import Any, Literal

from msgspec import Struct

from ...errors import BackendAway, ConfigError
from ...logs import get_logger
from ...sealing import GENERATE_KEY, KEYS_VARIABLE, key_ring
from .address import RedisAddress
from .client import RedisClient
from .scripts import CHANGE_ROW, HEARTBEAT

MIN_VERSION = (7, 0)
MAX_CLOCK_SECONDS = 2.0
"""How far the clocks of two machines may differ. Tokens contain times of the machine that made
them."""
PINGS = 5
"""How often the speed is measured; the fastest reply counts."""
SLOW_SHARE = 0.1
"""A Redis that needs more than this part of the deadline for a PING is slow."""
SETTINGS = ("maxmemory-policy", "appendonly", "appendfsync", "save")
FSYNC_LOSS = {
    "always": "loses no acknowledged write",
    "everysec": "may lose the writes of the last second. To lose none, set: appendfsync always",
    "no": "may lose the writes of about the last 30 seconds. To lose none, set: appendfsync always",
}
"""What a killed Redis loses, by its setting `appendfsync`."""
SAFE_FSYNC = ("always", "everysec")
"""The values of `appendfsync` that lose a second at most."""

log = get_logger("backend")


class Check(Struct, frozen=True):
    """The result of one check."""

    name: str
    status: Literal["ok", "warning", "failed"]
    """A server works with a "warning". It does not work, or loses data, if the check "failed"."""
    text: str


class RedisFacts:
    """What Redis says about itself.

    Args:
        info: The text of INFO; empty if it is forbidden.
        settings: The settings that CONFIG GET has returned.
    """

    def __init__(self, info: str, settings: dict[str, str]) -> None:
        lines = (line.partition(":") for line in info.splitlines())
        self._info = {name: value for name, colon, value in lines if colon}
        self._settings = settings

    def check_settings(self) -> Iterator[Check]:
        """Check what an administrator sets."""
        yield self._check_version()
        yield self._check_persistence()
        yield self._check_eviction()

    def _check_version(self) -> Check:
        version = self._info.get("redis_version")
        if version is None:
            return Check("version", "warning", "unknown, because INFO is not allowed")
        product = self._info.get("server_name", "redis").capitalize()
        own = self._info.get(f"{product.lower()}_version", version)
        text = f"{product} {own}"
        parts = version.split(".")
        if tuple(int(part) if part.isdigit() else 0 for part in parts[:2]) < MIN_VERSION:
            return Check("version", "failed", f"{text} is too old. Install Redis 7.0 or later")
        return Check("version", "ok", text)

    def _check_persistence(self) -> Check:
        aof = self._settings.get("appendonly") or {"1": "yes", "0": "no"}.get(
            self._info.get("aof_enabled", "")
        )
        if aof == "yes":
            fsync = self._settings.get("appendfsync", "")
            loss = FSYNC_LOSS.get(fsync, "may lose the last writes, depending on appendfsync")
            mode = f"AOF, appendfsync {fsync}" if fsync else "AOF"
            status: Literal["ok", "warning"] = "ok" if fsync in SAFE_FSYNC else "warning"
            return Check("persistence", status, f"{mode}. If Redis is killed, it {loss}")
        if aof is None or "save" not in self._settings:
            return Check("persistence", "warning", "unknown, because CONFIG GET is not allowed")
        if self._settings["save"]:
            return Check(
                "persistence",
                "warning",
                "only snapshots (RDB). If Redis is killed, it loses everything since the last "
                "snapshot, often minutes. Set: appendonly yes",
            )
        return Check(
            "persistence",
            "failed",
            "off. If Redis is restarted, it loses everything, including tasks that were accepted. "
            "Set: appendonly yes",
        )

    def _check_eviction(self) -> Check:
        policy = self._settings.get("maxmemory-policy") or self._info.get("maxmemory_policy")
        if policy is None:
            return Check("eviction", "warning", "unknown, because INFO is not allowed")
        if policy != "noeviction":
            return Check(
                "eviction",
                "failed",
                f"{policy}. If its memory is full, Redis deletes tasks, logins and sessions. Set: "
                "maxmemory-policy noeviction",
            )
        return Check("eviction", "ok", "noeviction")

    def check_replicas(self, wait: int) -> Check:
        """Check how many replicas there are, compared to the `wait=` of the URL."""
        found = self._info.get("connected_slaves")
        if self._info.get("role") == "slave":
            return Check("replicas", "failed", "this Redis is a replica. Name its master")
        if found is None or not found.isdigit():
            return Check("replicas", "warning", "unknown, because INFO is not allowed")
        if int(found) < wait:
            return Check(
                "replicas",
                "failed",
                f"{found}, but ?wait={wait} makes important writes wait for {wait}. They will fail",
            )
        if wait:
            return Check(
                "replicas", "ok", f"{found}. Important writes wait for {wait} (?wait={wait})"
            )
        if found == "0":
            return Check("replicas", "ok", "none")
        return Check(
            "replicas",
            "warning",
            f"{found}. A failover may lose the last writes. Add ?wait=1 to the URL to prevent this",
        )


async def read_facts(client: RedisClient) -> RedisFacts:
    """Ask Redis about itself.

    Raises:
        BackendAway: Redis does not answer.
    """
    info, *replies = await client.try_commands(
        ("INFO",), *(("CONFIG", "GET", name) for name in SETTINGS)
    )
    pairs = [reply for reply in replies if isinstance(reply, list) and len(reply) == 2]
    settings = {_text(name): _text(value) for name, value in pairs}
    return RedisFacts(_text(info), settings)


async def warn_about_settings(client: RedisClient) -> None:
    """Log the settings of Redis that a server should not have, as soon as Redis answers."""
    while True:
        try:
            facts = await read_facts(client)
            break
        except BackendAway as away:
            await asyncio.sleep(away.data["retryAfter"])
    for check in facts.check_settings():
        if check.status == "failed":
            log.warning("Redis at %s: %s: %s", client.address, check.name, check.text)


async def check_redis(
    address: RedisAddress, timeout: float, prefix: str | None = None
) -> list[Check]:
    """Check everything.

    Args:
        address: Where Redis is.
        timeout: How long a command may take, in seconds.
        prefix: What the keys of the server begin with. With it, the access to these keys is
            checked, too.
    """
    client = RedisClient(address, timeout)
    try:
        if not await client.connect(patience=timeout):
            return [Check("reachable", "failed", f"no: {client.problem}"), check_keys()]
        facts, checks = await read_facts(client), [await _check_speed(client)]
        checks += facts.check_settings()
        checks += await _check_scripts(client)
        checks.append(facts.check_replicas(address.wait))
        if prefix is not None:
            checks.append(await _check_access(client, prefix))
        return [*checks, check_keys()]
    except BackendAway:
        return [Check("reachable", "failed", f"no: {client.problem or 'connection lost'}")]
    finally:
        await client.close()


async def _check_speed(client: RedisClient) -> Check:
    seconds = []
    for _ in range(PINGS):
        started = time.perf_counter()
        await client.run("PING")
        seconds.append(time.perf_counter() - started)
    shown = f"yes, in {min(seconds) * 1000:.2f} ms"
    if min(seconds) > client.timeout * SLOW_SHARE:
        text = f"{shown}, which is slow. Run Redis in the same network as the servers"
        return Check("reachable", "warning", text)
    return Check("reachable", "ok", shown)


async def _check_scripts(client: RedisClient) -> list[Check]:
    """Run a script that reads the clock of Redis."""
    started = time.time()
    [found] = await client.try_commands(("EVAL", "return redis.call('TIME')", 0))
    middle = (started + time.time()) / 2
    if not isinstance(found, list):
        text = f"not allowed: {found}"
        return [
            Check("clock", "warning", "unknown, because scripts are not allowed"),
            Check("scripts", "failed", text),
        ]
    ahead = int(found[0]) + int(found[1]) / 1e6 - middle
    direction = "ahead of" if ahead > 0 else "behind"
    text = f"{abs(ahead):.3f} s {direction} this machine"
    if abs(ahead) > MAX_CLOCK_SECONDS:
        clock = Check("clock", "warning", f"{text}. Synchronise both clocks (NTP)")
    else:
        clock = Check("clock", "ok", text)
    return [clock, Check("scripts", "ok", "allowed")]


async def _check_access(client: RedisClient, prefix: str) -> Check:
    """Use each kind of command that a server uses, on a key that is deleted again."""
    key = f"{prefix}check:{token_hex(8)}"
    commands: list[tuple[Any, ...]] = [
        ("SET", key, b"1", "PX", 10_000),
        ("GET", key),
        ("EVAL", CHANGE_ROW.source, 1, key, b"1", b"2", 10_000),
        ("UNLINK", key),
        ("EVAL", HEARTBEAT.source, 1, key, "check", 1000),
        ("ZREM", key, "check"),
        ("HSET", key, "field", b"1"),
        ("UNLINK", key),
        ("XADD", key, "*", "field", b"1"),
        ("XGROUP", "CREATE", key, "group", "0"),
        ("XREADGROUP", "GROUP", "group", "check", "COUNT", 1, "STREAMS", key, ">"),
        ("PEXPIRE", key, 10_000),
        ("UNLINK", key),
        ("PUBLISH", key, b""),
    ]
    if client.address.wait:
        commands.append(("WAIT", 0, 1))
    commands.append(("SUBSCRIBE", key))  # the last one, as it changes the connection
    replies = await client.try_commands(*commands)
    for command, reply in zip(commands, replies, strict=True):
        if isinstance(reply, Exception):
            return Check("access", "failed", f"{command[0]} to {prefix}*: {reply}")
    return Check("access", "ok", f"to {prefix}*")


def check_keys() -> Check:
    """Check whether this process has the keys that seal what it stores."""
    try:
        is_set = key_ring().origin != "process"
    except ConfigError as error:
        return Check("keys", "failed", str(error))
    if is_set:
        return Check("keys", "ok", f"{KEYS_VARIABLE} is set. It must be the same everywhere")
    return Check(
        "keys",
        "failed",
        f"{KEYS_VARIABLE} is not set. A server needs it to use a backend. {GENERATE_KEY}",
    )


def _text(reply: Any) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else ""
