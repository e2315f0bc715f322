"""The Lua scripts of the task store and its queue. See `scripts.py`.

All of them have one key, the base from which the keys below are made. A task is named by the digest
of its id, because the id alone grants access to the task of an anonymous caller.

- `task:DIGEST`: a hash. `record` and `result` are sealed. `token` is the fencing token. `stream`
  and `entry` say where the task is in a stream; `entry` is empty if it is released or `over`.
  `unstarted` is 1 until a process has taken the task from the queue. `size` is that of the sealed
  values, `messages` the number of the last message, `refusals` how often processes
  could not run the task, `refusers` which ones. `number` and `anonymous` do not change.
- `messages:DIGEST`: a stream of sealed messages.
- `expiry`: a sorted set of all tasks, by the time at which they expire.
- `info`: a hash with what is needed when a task has expired: its indexes (`t:DIGEST`) and its size
  (`s:DIGEST`), the number of tasks of each caller (`p:PAYER`), and the size of all tasks (`bytes`).
- `owner:DIGEST`, `session:DIGEST`: sorted sets of tasks, by number, for lists.
- `finished`: a sorted set of the finished tasks of anonymous callers, by number.
- `queue`: a stream of tasks that wait for a process. Those that were read from it run.
- `running`: a stream of tasks that run in the process that added or claimed them.

A lease is an entry in the list of pending entries of the group of `queue` or `running`. Its owner
is the consumer, a process. The idle time of the entry says when the lease ends. Nothing is read
from `running`: entries become pending when they are added.

All keys expire with their last task, so nothing is left even if all processes are killed.

Redis does not undo what a script did before an error. So a script first reads the keys that it will
change (`open_group`, ZCARD, XLEN): if somebody gave one of them another type, nothing has changed.
"""

from .scripts import Script

GROUP = "dovetail"
"""The name of the consumer group of both streams."""
QUEUE_LIFE_MS = 60_000
"""How long an empty queue exists after the last process has read from it."""
ABANDONED_MS = 86_400_000
"""The idle time of an entry that was given back, beyond any lease."""
ALIVE_MS = 30_000
"""How long a process without tasks may be silent until it counts as dead. It reads the queue much
more often."""
IDLE_CONSUMER_MS = 600_000
"""How long a process without tasks may be silent until it is forgotten."""

TASKS = f"""
local base, group = KEYS[1], '{GROUP}'
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
local expiry, info, finished = base .. 'expiry', base .. 'info', base .. 'finished'

local function row_of(task) return base .. 'task:' .. task end

local function messages_of(task) return base .. 'messages:' .. task end

local function keep(key, at)
  if redis.call('PEXPIREAT', key, at, 'NX') == 0 then redis.call('PEXPIREAT', key, at, 'GT') end
end

local function leave(stream, entry)
  if not entry or entry == '' then return end
  local key = base .. stream
  redis.call('XACK', key, group, entry)
  redis.call('XDEL', key, entry)
  if redis.call('XLEN', key) == 0 then
    if stream == 'running' then redis.call('UNLINK', key)
    else redis.call('PEXPIRE', key, {QUEUE_LIFE_MS}) end
  end
end

local function open_group(key)
  if redis.call('EXISTS', key) == 0 or #redis.call('XINFO', 'GROUPS', key) == 0 then
    redis.call('XGROUP', 'CREATE', key, group, '0', 'MKSTREAM')
  end
end

local function consumers_of(key)
  local consumers = {{}}
  if redis.call('EXISTS', key) == 0 then return consumers end
  open_group(key)
  for i, found in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
    consumers[i] = {{}}
    for j = 1, #found, 2 do consumers[i][found[j]] = found[j + 1] end
  end
  return consumers
end

local function append(task, stream, consumer, at)
  local key = base .. stream
  open_group(key)
  local entry = redis.call('XADD', key, '*', 'task', task)
  if stream == 'running' then
    redis.call('XCLAIM', key, group, consumer, 0, entry, 'FORCE', 'JUSTID')
  end
  keep(key, at)
  redis.call('HSET', row_of(task), 'stream', stream, 'entry', entry,
    'unstarted', stream == 'queue' and 1 or 0)
end

local function bytes() return tonumber(redis.call('HGET', info, 'bytes')) or 0 end

local function resize(task, growth)
  if growth ~= 0 then
    redis.call('HINCRBY', info, 's:' .. task, growth)
    redis.call('HINCRBY', info, 'bytes', growth)
  end
end

local function forget(task)
  local row = row_of(task)
  local place = redis.call('HMGET', row, 'stream', 'entry')
  if place[1] then leave(place[1], place[2]) end
  redis.call('UNLINK', row, messages_of(task))
  redis.call('ZREM', expiry, task)
  redis.call('ZREM', finished, task)
  local known = redis.call('HMGET', info, 't:' .. task, 's:' .. task)
  redis.call('HDEL', info, 't:' .. task, 's:' .. task)
  local payer, owner, session = string.match(known[1] or '', '^(.-)|(.-)|(.-)$')
  if not payer then return end
  redis.call('ZREM', base .. 'owner:' .. owner, task)
  if session ~= '' then redis.call('ZREM', base .. 'session:' .. session, task) end
  if redis.call('ZCARD', expiry) == 0 then
    redis.call('UNLINK', info)
  else
    redis.call('HINCRBY', info, 'bytes', -(tonumber(known[2]) or 0))
    if payer ~= '' and redis.call('HINCRBY', info, 'p:' .. payer, -1) <= 0 then
      redis.call('HDEL', info, 'p:' .. payer)
    end
  end
end

local function forget_expired(count, spared)
  local deleted = 0
  for _, task in ipairs(redis.call('ZRANGEBYSCORE', expiry, '-inf', now, 'LIMIT', 0, count)) do
    if task ~= spared then
      forget(task)
      deleted = deleted + 1
    end
  end
  return deleted
end

local function forget_finished()
  local oldest = redis.call('ZRANGE', finished, 0, 0)[1]
  if oldest then forget(oldest) end
  return oldest
end

local function make_room(task, growth, size, limit)
  while bytes() + growth > limit do
    if forget_expired(100, task) == 0 and not (size <= limit and forget_finished()) then
      return false
    end
  end
  return true
end

local function is_everybody(names)
  local alive = {{}}
  for _, stream in ipairs({{'running', 'queue'}}) do
    for _, one in ipairs(consumers_of(base .. stream)) do
      alive[one.name] = alive[one.name] or one.pending > 0 or one.idle < {ALIVE_MS}
      local is_known = stream == 'running' or string.find(names, one.name, 1, true)
      if alive[one.name] and not is_known then return false end
    end
  end
  return true
end

local function take(task, stream, entry)
  local row = row_of(task)
  local found = redis.call('HMGET', row, 'record', 'over', 'entry', 'refusals', 'refusers')
  if not found[1] or found[2] == '1' or found[3] ~= entry then
    leave(stream, entry)
    return nil
  end
  local token, life = redis.call('HINCRBY', row, 'token', 1), redis.call('PTTL', row)
  local refusals = found[5] and is_everybody(found[5]) and tonumber(found[4]) or 0
  return {{task, token, found[1], refusals, life}}
end

local function queue_again(task, entry)
  local row = row_of(task)
  local found = redis.call('HMGET', row, 'entry', 'over', 'unstarted', 'stream')
  if found[1] ~= entry or found[2] == '1' or found[3] ~= '1' then return false end
  open_group(base .. 'queue')
  leave(found[4], entry)
  append(task, 'queue', '', now + redis.call('PTTL', row))
  return true
end

local function held(task, token)
  local row = row_of(task)
  local found = redis.call('HMGET', row, 'token', 'over', 'stream', 'entry')
  if found[1] ~= token or found[2] == '1' or not found[4] or found[4] == '' then return nil end
  return row, found[3], found[4]
end
"""
"""Functions of the scripts below.

`keep` lets a key expire no earlier than a time; a key that was just created has no expiry. `leave`
removes an entry from its stream. `is_everybody` returns whether a list names all processes that
take tasks from the queue and are alive. `take` makes a pending entry the lease of its consumer; an
entry without an unfinished task is removed. `queue_again` puts a task back into the queue that a
process has read or given back, but not started. `held` returns the row and the entry of a task if a
token is the newest, and nothing else otherwise.
"""

ADD_TASK = Script(
    "add task",
    TASKS
    + """
local task, record, result, life = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local payer, owner, session = ARGV[5], ARGV[6], ARGV[7]
local over, anonymous, consumer = ARGV[8], ARGV[9], ARGV[10]
local tasks, each, limit = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
local size, at = #record + #result, now + life
if redis.call('EXISTS', row_of(task)) == 1 then
  redis.call('PEXPIREAT', row_of(task), redis.call('PEXPIRETIME', row_of(task)))
  return 'added'
end
forget_expired(10)
while true do
  local why
  if payer ~= '' and (tonumber(redis.call('HGET', info, 'p:' .. payer)) or 0) >= each then
    why = 'each'
  elseif redis.call('ZCARD', expiry) >= tasks then
    why = 'tasks'
  end
  if not why then break end
  if forget_expired(100) == 0 and not (why == 'tasks' and forget_finished()) then return why end
end
if not make_room(task, size, size, limit) then return 'bytes' end
if life <= 0 then return 'added' end
local stream = consumer == '' and 'queue' or 'running'
redis.call('ZCARD', base .. 'owner:' .. owner)
redis.call('ZCARD', base .. 'session:' .. session)
if over == '0' then open_group(base .. stream) else redis.call('ZCARD', finished) end
redis.call('HINCRBY', info, 'bytes', size)
if payer ~= '' then redis.call('HINCRBY', info, 'p:' .. payer, 1) end
local row, number = row_of(task), string.format('%.0f', now_us)
redis.call('HSET', row, 'record', record, 'token', consumer == '' and 0 or 1, 'over', over,
  'size', size, 'number', number, 'anonymous', anonymous, 'entry', '')
if result ~= '' then redis.call('HSET', row, 'result', result) end
redis.call('PEXPIREAT', row, at)
redis.call('ZADD', expiry, at, task)
redis.call('HSET', info, 't:' .. task, payer .. '|' .. owner .. '|' .. session, 's:' .. task, size)
keep(expiry, at)
keep(info, at)
redis.call('ZADD', base .. 'owner:' .. owner, number, task)
keep(base .. 'owner:' .. owner, at)
if session ~= '' then
  redis.call('ZADD', base .. 'session:' .. session, number, task)
  keep(base .. 'session:' .. session, at)
end
if over == '0' then
  append(task, stream, consumer, at)
elseif anonymous == '1' then
  redis.call('ZADD', finished, number, task)
  keep(finished, at)
end
return 'added'
""",
)
"""Add a task, and append it to a stream: to `running`, pending for a consumer, or to `queue`. If it
exists, it was added before, and the reply was lost. Then its expiry is written again, because WAIT
confirms only what was written over the same connection.

Arguments: the task, the sealed record and result (may be empty), the life in milliseconds, the
digests of the payer (may be empty), the owner and the session (may be empty), whether it is over
and whether its caller is anonymous (1 or 0), the consumer (empty: the task waits in the queue), and
the limits: tasks, tasks of each payer, bytes. Reply: "added", or the limit that refused the task:
"tasks", "each" or "bytes".
"""

PUT_TASK = Script(
    "put task",
    TASKS
    + """
local task, token, record, result, over = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local row, size, limit = row_of(task), #ARGV[3] + #ARGV[4], tonumber(ARGV[6])
local names = {'token', 'over', 'stream', 'entry', 'size', 'number', 'anonymous', 'refusals'}
local found = redis.call('HMGET', row, unpack(names))
if not found[1] or found[2] == '1' then return 0 end
if token ~= '' and (token ~= found[1] or found[4] == '') then return 0 end
local growth = size - (tonumber(found[5]) or 0)
if not make_room(task, growth, size, limit) then return -1 end
if over == '1' then
  redis.call('ZCARD', finished)
  if found[3] then redis.call('XLEN', base .. found[3]) end
end
resize(task, growth)
redis.call('HSET', row, 'record', record, 'size', size, 'over', over)
if result == '' then redis.call('HDEL', row, 'result')
else redis.call('HSET', row, 'result', result) end
if found[8] and token ~= '' then redis.call('HDEL', row, 'refusals', 'refusers') end
if over == '1' then
  leave(found[3], found[4])
  redis.call('HSET', row, 'entry', '')
  if found[7] == '1' then
    redis.call('ZADD', finished, found[6] or 0, task)
    keep(finished, math.max(now + redis.call('PTTL', row), now))
  end
end
return 1
""",
)
"""Replace the record of an unfinished task. If it is over, its lease ends.

Arguments: the task, the fencing token of its runner (empty: any process may write), the sealed
record and result (may be empty), whether the task is over now (1 or 0), the limit in bytes. Reply:
1, 0 if the task does not exist, is over or has a newer token, -1 if there is not enough room.
"""

REMOVE_TASK = Script("remove task", TASKS + "forget(ARGV[1])\n")
"""Delete a task.

Arguments: the task.
"""

LIST_TASKS = Script(
    "list tasks",
    TASKS
    + """
local page = {}
local found = redis.call(
  'ZRANGEBYSCORE', base .. ARGV[1], '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[3])
for i = 1, #found, 2 do
  page[#page + 1] = {found[i], found[i + 1], redis.call('HGET', row_of(found[i]), 'record')}
end
return page
""",
)
"""Read tasks of an index.

Arguments: the index, such as "owner:DIGEST", the number after which to begin, how many. Reply: for
each, the task, its number, and its sealed record or nil if it has expired.
"""

DELETE_EXPIRED_TASKS = Script(
    "delete expired tasks",
    TASKS
    + f"""
for _, stream in ipairs({{'queue', 'running'}}) do
  for _, consumer in ipairs(consumers_of(base .. stream)) do
    if consumer.pending == 0 and consumer.idle > {IDLE_CONSUMER_MS} then
      redis.call('XGROUP', 'DELCONSUMER', base .. stream, group, consumer.name)
    end
  end
end
return forget_expired(tonumber(ARGV[1]))
""",
)
"""Delete tasks that have expired from the indexes, and consumers that no longer exist.

Arguments: how many tasks. Reply: the number of deleted tasks.
"""

# the queue

OPEN_QUEUE = Script(
    "open queue",
    TASKS
    + f"""
open_group(base .. 'queue')
redis.call('XGROUP', 'CREATECONSUMER', base .. 'queue', group, ARGV[1])
keep(base .. 'queue', now + {QUEUE_LIFE_MS})
""",
)
"""Create the queue if it does not exist, and let it exist for another minute.

Arguments: the consumer.
"""

CLOSE_QUEUE = Script(
    "close queue",
    TASKS
    + """
local key, others = base .. 'queue', 0
for _, consumer in ipairs(consumers_of(key)) do
  if consumer.name == ARGV[1] and consumer.pending == 0 then
    redis.call('XGROUP', 'DELCONSUMER', key, group, ARGV[1])
  else
    others = others + 1
  end
end
if others == 0 and redis.call('XLEN', key) == 0 then redis.call('UNLINK', key) end
""",
)
"""Remove a process that has no tasks from the queue; the last one deletes the queue if it is empty.

Arguments: the consumer.
"""

TAKE_READ_TASKS = Script(
    "take read tasks",
    TASKS
    + """
local key, taken = base .. 'queue', {}
if redis.call('EXISTS', key) == 0 then return taken end
for i = 2, #ARGV, 2 do
  local pending = redis.call('XPENDING', key, group, ARGV[i], ARGV[i], 1)[1]
  if pending and pending[2] == ARGV[1] then
    redis.call('XCLAIM', key, group, ARGV[1], 0, ARGV[i], 'JUSTID')
    local task = take(ARGV[i + 1], 'queue', ARGV[i])
    if task then redis.call('HSET', row_of(task[1]), 'unstarted', 0) end
    taken[#taken + 1] = task
  end
end
return taken
""",
)
"""Take the tasks that a process has read from the queue, unless another process took them over.
Their leases begin now, not when they were read.

Arguments: the consumer; for each task, its entry and the task. Reply: for each task that was taken,
the task, its new fencing token, its sealed record, how often it was refused (0 if some process has
not refused it), and the milliseconds until it expires.
"""

TAKE_OVER_TASKS = Script(
    "take over tasks",
    TASKS
    + """
local consumer, idle, room = ARGV[1], ARGV[2], tonumber(ARGV[3])
local taken, cursors, filled, streams = {}, {}, {}, {'queue', 'running'}
for i, stream in ipairs(streams) do
  filled[i] = redis.call('XLEN', base .. stream) > 0
  if filled[i] then open_group(base .. stream) end
end
for i, stream in ipairs(streams) do
  local key, cursor, rounds = base .. stream, filled[i] and ARGV[3 + i] or '0-0', 0
  while filled[i] and #taken < room and rounds < 10 do
    local found = redis.call(
      'XAUTOCLAIM', key, group, consumer, idle, cursor, 'COUNT', room - #taken)
    cursor, rounds = found[1], rounds + 1
    for _, entry in ipairs(found[2]) do
      local task = entry[2][2]
      if not queue_again(task, entry[1]) then taken[#taken + 1] = take(task, stream, entry[1]) end
    end
    filled[i] = cursor ~= '0-0' and redis.call('XLEN', key) > 0
  end
  cursors[i] = cursor
end
return {taken, cursors}
""",
)
"""Take over tasks whose leases have ended. Those that were not started wait in the queue again.

Arguments: the consumer, the length of a lease in milliseconds, how many tasks, and where to begin
to search in `queue` and `running`. Reply: the tasks as for "take read tasks", and where to continue
in both streams.
"""

CLAIM_TASK = Script(
    "claim task",
    TASKS
    + """
local task, row = ARGV[1], row_of(ARGV[1])
local found = redis.call('HMGET', row, 'record', 'over', 'stream', 'entry')
if not found[1] or found[2] == '1' then return {} end
local waits = false
if found[4] and found[4] ~= '' then
  waits = found[3] == 'queue' and redis.call('EXISTS', base .. 'queue') == 1
    and #redis.call('XPENDING', base .. 'queue', group, found[4], found[4], 1) == 0
  if not waits then return {} end
end
open_group(base .. 'running')
if waits then leave('queue', found[4]) end
append(task, 'running', ARGV[2], now + redis.call('PTTL', row))
return {take(task, 'running', redis.call('HGET', row, 'entry'))}
""",
)
"""Take a task that is released or waits in the queue.

Arguments: the task, the consumer. Reply: a list of this task, as for "take read tasks"; empty if
there is no such task.
"""

RENEW_TASKS = Script(
    "renew tasks",
    TASKS
    + """
local renewed = {}
for i = 2, #ARGV, 2 do
  local row, stream, entry = held(ARGV[i], ARGV[i + 1])
  local ok = row and redis.call('EXISTS', base .. stream) == 1 and
    #redis.call('XCLAIM', base .. stream, group, ARGV[1], 0, entry, 'JUSTID') == 1
  renewed[#renewed + 1] = ok and 1 or 0
end
return renewed
""",
)
"""Extend leases to their full length.

Arguments: the consumer; for each lease, the task and the fencing token. Reply: for each lease, 1,
or 0 if it was lost.
"""

GIVE_BACK_TASK = Script(
    "give back task",
    TASKS
    + f"""
local row, stream, entry = held(ARGV[1], ARGV[2])
if not row then return 0 end
redis.call('XCLAIM', base .. stream, group, ARGV[3], 0, entry, 'IDLE', {ABANDONED_MS}, 'JUSTID')
redis.call('HINCRBY', row, 'token', 1)
if ARGV[4] == '1' then
  local refusers = redis.call('HGET', row, 'refusers') or ''
  if not string.find(refusers, ARGV[3], 1, true) then
    redis.call('HSET', row, 'refusers', refusers .. ARGV[3] .. ' ')
  end
  redis.call('HINCRBY', row, 'refusals', 1)
end
if ARGV[5] == '1' then redis.call('HSET', row, 'unstarted', 1) end
return 1
""",
)
"""End a lease, so that another process takes over the task at once.

Arguments: the task, the fencing token, the consumer, whether the process refuses the task because
it cannot run it (1 or 0), whether the task has not been started (1 or 0): then the process that
takes it over puts it back into the queue. Reply: 1, or 0 if the lease was lost.
"""

RELEASE_TASK = Script(
    "release task",
    TASKS
    + """
local row, stream, entry = held(ARGV[1], ARGV[2])
if not row then return 0 end
local queued = ARGV[3] == '1' or redis.call('EXISTS', messages_of(ARGV[1])) == 1
if queued then open_group(base .. 'queue') end
leave(stream, entry)
redis.call('HINCRBY', row, 'token', 1)
redis.call('HSET', row, 'entry', '')
if queued then
  append(ARGV[1], 'queue', '', now + redis.call('PTTL', row))
end
return 1
""",
)
"""End a lease, so that nobody runs the task until it is claimed or receives a message. If a message
is waiting already, the task waits in the queue.

Arguments: the task, the fencing token, whether it waits in the queue in any case (1 or 0). Reply:
1, or 0 if the lease was lost.
"""

COUNT_WAITING_TASKS = Script(
    "count waiting tasks",
    TASKS
    + f"""
local waiting = 0
for _, stream in ipairs({{'queue', 'running'}}) do
  local key = base .. stream
  local length = redis.call('XLEN', key)
  if length > 0 then
    open_group(key)
    local pending = redis.call('XPENDING', key, group)[1]
    local given_back = redis.call('XPENDING', key, group, 'IDLE', {ABANDONED_MS}, '-', '+', 1000)
    waiting = waiting + length - pending + #given_back
  end
end
return waiting
""",
)
"""Count the tasks that wait in the queue, and those that a process has given back (up to 1,000 of
each stream), for example because it could not run them.

Reply: the number.
"""

# messages

SEND_TASK_MESSAGE = Script(
    "send task message",
    TASKS
    + """
local task, data, limit = ARGV[1], ARGV[2], tonumber(ARGV[4])
local row, key = row_of(task), messages_of(task)
local found = redis.call('HMGET', row, 'record', 'over', 'entry')
if not found[1] or redis.call('XLEN', key) >= tonumber(ARGV[3]) then return 0 end
if not make_room(task, #data, #data, limit) then return -1 end
local released, at = found[2] ~= '1' and found[3] == '', now + redis.call('PTTL', row)
if released then open_group(base .. 'queue') end
local number = redis.call('HINCRBY', row, 'messages', 1)
resize(task, #data)
redis.call('XADD', key, '0-' .. number, 'data', data)
keep(key, at)
if released then append(task, 'queue', '', at) end
return 1
""",
)
"""Store a message to a task. A task that is released waits in the queue from now on.

Arguments: the task, the sealed message, the maximum number of messages, the limit in bytes. Reply:
1, 0 if the task does not exist or has too many messages, -1 if there is not enough room.
"""

DELETE_TASK_MESSAGE = Script(
    "delete task message",
    TASKS
    + """
local task, id, key = ARGV[1], '0-' .. ARGV[2], messages_of(ARGV[1])
local found = redis.call('XRANGE', key, id, id)[1]
if not found then return end
redis.call('XDEL', key, id)
if redis.call('XLEN', key) == 0 then redis.call('UNLINK', key) end
if redis.call('HEXISTS', info, 's:' .. task) == 1 then resize(task, -#found[2][2]) end
""",
)
"""Delete a message to a task.

Arguments: the task, the number of the message.
"""
