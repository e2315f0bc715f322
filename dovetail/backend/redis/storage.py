"""The rows of the authorization server (`auth.provider.storage.Storage`) in Redis.

The scripts keep what the rows promise: a row is added, changed or taken once, and goes with its
parent. The clock of Redis decides when a row expires. A row is sealed for its key, so a value that
somebody moves, changes or makes up does not open, and counts as missing.
"""

import re
import time
from collections.abc import Callable
from functools import partial
from math import ceil

from ...auth.provider.storage import MAX_ROWS_PER_KIND, PUBLIC_KINDS, Storage
from ...errors import ConfigError, Overloaded
from ...logs import get_logger
from ...sealing import KeyRing
from .client import RedisClient
from .scripts import (
    ADD_PROVIDER_ROW,
    CHANGE_PROVIDER_ROW,
    GET_PROVIDER_ROW,
    TAKE_PROVIDER_ROW,
)
from .sealed import SealedValues

MAX_LIFE_SECONDS = 100 * 365 * 86400.0
"""The longest life of a row; Redis refuses times that are too far away."""

log = get_logger("backend")


class RedisStorage(Storage):
    """Stores the rows of a provider.

    Args:
        client: The connections.
        ring: The keys that seal the rows.
        prefix: What the key of each row begins with; it ends with `:provider:`.
        rows: The maximum number of rows of one kind (default: 100,000). Adding more raises
            Overloaded, or deletes the rows that expire first if anyone can add rows of this kind.
        now: The clock of the provider (default: `time.time`). Only differences matter.
    """

    def __init__(
        self,
        client: RedisClient,
        ring: KeyRing,
        prefix: str,
        *,
        rows: int = MAX_ROWS_PER_KIND,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._prefix, self._max_rows, self._now = client, prefix, rows, now
        self._values = SealedValues(ring, "provider row")
        self._checked = False

    async def get(self, key: str) -> bytes | None:
        full = await self._key(key)
        return self._values.open(full, await self._client.run_script(GET_PROVIDER_ROW, [full]))

    async def add(self, key: str, data: bytes, expires: float, parent: str | None = None) -> bool:
        full = await self._key(key)
        reply: int = await self._client.run_script(
            ADD_PROVIDER_ROW,
            [full] if parent is None else [full, self._prefix + parent],
            self._values.seal(full, data),
            self._life(expires),
            self._max_rows,
            int(key.partition(":")[0] in PUBLIC_KINDS),
            durable=True,
        )
        if reply < 0:
            raise Overloaded("Too many requests are pending. Try again later.")
        return reply == 1

    async def change(self, key: str, old: bytes, new: bytes, expires: float) -> bool:
        full = await self._key(key)

        async def replace(found: bytes, sealed: bytes) -> bool:
            arguments = found, sealed, self._life(expires)
            reply: int = await self._client.run_script(
                CHANGE_PROVIDER_ROW, [full], *arguments, durable=True
            )
            return reply == 1

        read = partial(self._client.run_script, GET_PROVIDER_ROW, [full])
        return await self._values.change(full, old, new, read, replace)

    async def take(self, key: str) -> bytes | None:
        full = await self._key(key)
        return self._values.open(
            full, await self._client.run_script(TAKE_PROVIDER_ROW, [full], durable=True)
        )

    async def delete(self, key: str) -> None:
        full = await self._key(key)
        await self._client.run_script(TAKE_PROVIDER_ROW, [full], durable=True)

    async def check(self) -> None:
        """Check that Redis does not lose rows that were taken.

        Raises:
            BackendAway: Redis cannot be reached.
            ConfigError: Redis has replicas that may be behind when one of them becomes the master,
                or does not say whether it has. Then codes and refresh tokens could be used a second
                time.
        """
        if self._client.address.wait:
            self._checked = True
            return
        [info] = await self._client.try_commands(("INFO", "replication"))
        if not isinstance(info, bytes):
            raise ConfigError(
                f"The user of Redis at {self._client.address} may not run INFO, so it is not known "
                "whether Redis has replicas. Allow the command (+info), or add ?wait=1 to the URL "
                "of the backend."
            )
        found = re.search(rb"connected_slaves:(\d+)", info)
        replicas = int(found[1]) if found else 0
        if replicas > 1:
            raise ConfigError(
                f"Redis at {self._client.address} has {replicas} replicas. After a failover, codes "
                "and refresh tokens that were used could be used again. Add ?wait=1 to the URL of "
                "the backend, or pass Provider(storage=…)."
            )
        if replicas == 1:
            log.warning(
                "Redis at %s has a replica. After a failover to it, codes and refresh tokens that "
                "were used could be used again. Add ?wait=1 to the URL of the backend",
                self._client.address,
            )
        self._checked = True

    async def _key(self, key: str) -> str:
        """Return the full key of a row. Redis is checked before the first use."""
        if not self._checked:
            await self.check()
        return self._prefix + key

    def _life(self, expires: float) -> int:
        """Return the milliseconds until a time of the provider's clock."""
        return ceil(min(expires - self._now(), MAX_LIFE_SECONDS) * 1000)
