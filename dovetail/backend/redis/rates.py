"""Rate limits that all processes share: one number for each bucket, changed by one script."""

from collections.abc import Sequence

from ..protocols import Admitted, Bucket, Counters
from .client import RedisClient
from .scripts import TAKE_TOKENS, Argument


class RedisCounters(Counters):
    """Buckets in Redis. See `scripts.TAKE_TOKENS`.

    Args:
        client: The connections.
        prefix: What the key of each bucket begins with.
    """

    def __init__(self, client: RedisClient, prefix: str) -> None:
        self._client, self._prefix = client, prefix

    async def take(self, buckets: Sequence[Bucket], cost: int = 1) -> Admitted:
        keys = [self._prefix + bucket.key for bucket in buckets]
        times: list[Argument] = []
        for bucket in buckets:
            times += _microseconds(bucket.token_seconds), _microseconds(bucket.bucket_seconds)
        granted, wait, refused = await self._client.run_script(TAKE_TOKENS, keys, cost, *times)
        return Admitted(granted, wait / 1e6, refused - 1)


def _microseconds(seconds: float) -> str:
    return repr(seconds * 1e6)
