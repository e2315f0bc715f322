"""Every Lua script that runs in Redis, except those of tasks (`task_scripts.py`).

Redis runs a script as one atomic step. A script is called by its digest, and sent in full when
Redis does not know it (`client.RedisClient`). Scripts read the clock of Redis (TIME), never an
argument, if they compare times. Each script is listed here with its keys, arguments and reply, and
has a test (`tests/backend/test_scripts.py`).

What a script reads may have been changed by anybody who can write to Redis. So a script decides
nothing that a sealed value has to decide, and converts what it reads to numbers. A value that is
not a number, or not finite, counts as missing.
"""

from collections.abc import Iterable
from hashlib import sha1
from math import ceil, inf
from typing import TypeAlias

Argument: TypeAlias = str | bytes | int
FOREVER = 0
"""The life of a value that does not expire, in milliseconds."""

NOW_MS = "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
NOW_US = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2]\n"

FINITE = """
local function finite(text)
  local number = tonumber(text)
  return number and number - number == 0 and number or nil
end
"""
"""A function that returns a number, or nil. Lua also reads "nan" and "inf" as numbers, and every
comparison with the first is false."""


class Script:
    """A Lua script."""

    __slots__ = ("digest", "name", "source")

    by_digest: "dict[str, Script]" = {}

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source
        self.digest = sha1(source.encode(), usedforsecurity=False).hexdigest()
        Script.by_digest[self.digest] = self

    def call(self, keys: Iterable[str], *arguments: Argument) -> tuple[Argument, ...]:
        """Return the command that runs the script."""
        keys = tuple(keys)
        return "EVALSHA", self.digest, len(keys), *keys, *arguments

    def __repr__(self) -> str:
        return f"Script({self.name!r})"


def milliseconds(seconds: float) -> int:
    """Return a time for Redis: at least 1, or `FOREVER` if it is infinite."""
    return FOREVER if seconds == inf else max(1, ceil(seconds * 1000))


# rows

CHANGE_ROW = Script(
    "change row",
    """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[3] == '0' then
  redis.call('SET', KEYS[1], ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
""",
)
"""Replace a value if it has not changed.

Keys: the row. Arguments: the old value, the new value, its life in milliseconds (0: forever).
Reply: 1, or 0 if the row has another value or does not exist.
"""

# locks

KEEP_LOCK = Script(
    "keep lock",
    """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then return redis.call('DEL', KEYS[1]) end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
""",
)
"""Renew or release a lock, unless another process has it.

Keys: the lock. Arguments: the token of its holder, its life in milliseconds (0: release it). Reply:
1, or 0 if the lock was lost.
"""

# the rows of the authorization server
#
# A row `…:provider:KIND:DIGEST` is a hash with the fields `data` and `parent`, which expires. Two
# sorted sets hold the keys of rows by the time at which they expire: `…:provider-children:KIND:
# DIGEST` those of its children, `…:provider-index:KIND` those of all rows of a kind. Both expire
# with the last row that was added to them.

PROVIDER_ROWS = """
local function related(key, what)
  return (string.gsub(key, ':provider:', ':provider-' .. what .. ':', 1))
end
local function index_of(key)
  return string.match(related(key, 'index'), '^{.-}:[^:]*:[^:]*')
end
local function read(key)
  local row = redis.call('HMGET', key, 'data', 'parent')
  if row[2] and redis.call('EXISTS', row[2]) == 0 then return false end
  return row[1]
end
local function list(set, key, at)
  redis.call('ZADD', set, at, key)
  if redis.call('PEXPIRETIME', set) < at then redis.call('PEXPIREAT', set, at) end
end
local function delete(first)
  local waiting = {first}
  while #waiting > 0 do
    local key = table.remove(waiting)
    local children = related(key, 'children')
    for _, child in ipairs(redis.call('ZRANGE', children, 0, -1)) do
      if index_of(child) then waiting[#waiting + 1] = child end
    end
    local parent = redis.call('HGET', key, 'parent')
    if parent then redis.call('ZREM', related(parent, 'children'), key) end
    redis.call('ZREM', index_of(key), key)
    redis.call('UNLINK', key, children)
  end
end
"""
"""Functions of the scripts below. A row whose parent has expired does not exist, although Redis
still has it."""

GET_PROVIDER_ROW = Script("get provider row", PROVIDER_ROWS + "return read(KEYS[1])\n")
"""Read a row.

Keys: the row. Reply: its data, or nil if it does not exist.
"""

ADD_PROVIDER_ROW = Script(
    "add provider row",
    NOW_MS
    + PROVIDER_ROWS
    + """
local row, parent = KEYS[1], KEYS[2]
if read(row) or (parent and not read(parent)) then return 0 end
local index = index_of(row)
redis.call('ZREMRANGEBYSCORE', index, '-inf', now)
local excess = redis.call('ZCARD', index) + 1 - tonumber(ARGV[3])
if excess > 0 then
  if ARGV[4] == '0' then return -1 end
  for _, old in ipairs(redis.call('ZRANGE', index, 0, math.min(excess, 1000) - 1)) do
    delete(old)
  end
end
local at, children = now + tonumber(ARGV[2]), parent and related(parent, 'children')
if parent then redis.call('ZREMRANGEBYSCORE', children, '-inf', now) end
delete(row)
redis.call('HSET', row, 'data', ARGV[1])
redis.call('PEXPIREAT', row, at)
if parent then
  redis.call('HSET', row, 'parent', parent)
  list(children, row, at)
end
list(index, row, at)
return 1
""",
)
"""Add a row, unless it exists or its parent does not.

Keys: the row, and optionally its parent. Arguments: the data, the life in milliseconds, the maximum
number of rows of this kind, whether to delete the rows that expire first if there are too many (1
or 0). Reply: 1 if the row was added, 0 if not, -1 if there are too many.
"""

CHANGE_PROVIDER_ROW = Script(
    "change provider row",
    NOW_MS
    + PROVIDER_ROWS
    + """
local row = KEYS[1]
if read(row) ~= ARGV[1] then return 0 end
local at = now + tonumber(ARGV[3])
redis.call('HSET', row, 'data', ARGV[2])
list(index_of(row), row, at)
local parent = redis.call('HGET', row, 'parent')
if parent then list(related(parent, 'children'), row, at) end
redis.call('PEXPIREAT', row, at)
return 1
""",
)
"""Replace the data of a row if it has not changed.

Keys: the row. Arguments: the old data, the new data, the life in milliseconds. Reply: 1, or 0 if
the row has other data or does not exist.
"""

TAKE_PROVIDER_ROW = Script(
    "take provider row",
    PROVIDER_ROWS
    + """
local data = read(KEYS[1])
delete(KEYS[1])
return data
""",
)
"""Delete a row and its children, and their children.

Keys: the row. Reply: its data, or nil if it did not exist.
"""

# rates

TAKE_TOKENS = Script(
    "take tokens",
    NOW_US
    + FINITE
    + """
local cost = tonumber(ARGV[1])
local granted, wait, refused = cost, 0, 0
local full_at = {}
for i, key in ipairs(KEYS) do
  local token, size = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  local at = finite(redis.call('GET', key)) or now
  at = math.min(math.max(at, now), now + size)
  full_at[i] = at
  local room = math.floor((now + size - at) / token + 0.000001)
  if room < granted then
    granted, wait, refused = room, at + (room + 1) * token - size - now, i
  end
end
if granted ~= 0 then
  for i, key in ipairs(KEYS) do
    local left = full_at[i] + granted * tonumber(ARGV[2 * i]) - now
    if left > 0 then
      redis.call('SET', key, string.format('%.0f', now + left), 'PX', math.ceil(left / 1000))
    else
      redis.call('DEL', key)
    end
  end
end
return {granted, math.ceil(wait), refused}
""",
)
"""Take tokens from buckets, or give them back (GCRA). The value of a bucket is the time at which it
is full again, in microseconds.

Keys: the buckets. Arguments: the number of tokens (negative to give back); for each bucket, the
microseconds to add one token and to fill it. Reply: the number of tokens that were taken from each
bucket, the microseconds until the next token, the number of the bucket that refused more (0: none).
"""

# the bus

HEARTBEAT = Script(
    "heartbeat",
    NOW_MS
    + """
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. (now - ARGV[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {now, redis.call('ZRANGE', KEYS[1], 0, -1)}
""",
)
"""Report that a member of the bus is alive, and remove members that have not done so for a while.

Keys: the members. Arguments: the id of the member, the life of a member in milliseconds. Reply: the
time in milliseconds, the ids of all members.
"""

# sessions

LOAD_SESSION = Script(
    "load session",
    NOW_MS
    + """
local idle, started = tonumber(ARGV[1]), tonumber(ARGV[2])
if redis.call('EXISTS', KEYS[1]) == 1 then return false end
if redis.call('EXISTS', KEYS[2]) == 0 and now - started > idle then return false end
redis.call('SET', KEYS[2], '', 'PX', idle)
redis.call('PEXPIRE', KEYS[3], idle)
return redis.call('HGETALL', KEYS[3])
""",
)
"""Read the settings of a session and mark it as used, unless it has ended.

Keys: the mark of its end, the mark of its use, its settings. Arguments: how long it may go unused
and when it began, in milliseconds. Reply: the names and values of its settings, or nil if it has
ended.
"""

CHANGE_SESSION = Script(
    "change session",
    """
for i = 2, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', KEYS[1], ARGV[i])
  else redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
""",
)
"""Change settings of a session.

Keys: its settings. Arguments: how long it may go unused, in milliseconds; the name and value of
each setting (empty: delete it). Reply: 1, or 0 if the session has no settings now.
"""

# event logs

APPEND_EVENTS = Script(
    "append events",
    FINITE
    + """
local bound = tonumber(ARGV[1])
local function number(entry) return tonumber(string.match(entry[1], '%-(%d+)$')) end
local function size(entry, field) return finite(entry[2][field]) or 0 end
local function edge(command, from, to)
  return redis.call(command, KEYS[1], from, to, 'COUNT', 1)[1]
end
local first, last = edge('XRANGE', '-', '+'), edge('XREVRANGE', '+', '-')
local top, total = last and number(last) or 0, last and size(last, 6) or 0
for i = 3, #ARGV, 3 do
  local n = tonumber(ARGV[i])
  if n > top then
    while first and total - size(first, 4) > bound do
      redis.call('XDEL', KEYS[1], first[1])
      first = edge('XRANGE', '-', '+')
    end
    local before = string.format('%.0f', total)
    top, total = n, total + tonumber(ARGV[i + 1])
    local id, after = string.format('0-%.0f', n), string.format('%.0f', total)
    redis.call('XADD', KEYS[1], id, 'data', ARGV[i + 2], 'before', before, 'after', after)
    first = first or edge('XRANGE', '-', '+')
  end
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
""",
)
"""Append messages to a log, and drop the oldest ones beyond its bound. The newest message does not
count, so that a long one does not drive out all others.

Each entry has the id `0-NUMBER`, its data, and the size of all messages before it and up to it.

Keys: the log. Arguments: its bound in bytes, its life in milliseconds; the number, size and data of
each message. The size is that of the message before it was sealed. Reply: 1, or 0 if the log does
not exist.
"""
