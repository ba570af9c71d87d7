-- What a Redis store does. One script, so that each step is atomic: called with KEYS[1] = the prefix of all keys and
-- ARGV[1] = the step's name. The prefix holds a hash tag, so that in a cluster all keys are on one node.
--
--   job:ID                    hash    all that is known of a job; `queue` and `entry` say where it waits
--   request:ID, result:ID     hash    `data`, `json_bytes`
--   key:TENANT:HASH           string  the job that an idempotency key stands for
--   jobs:TENANT[:STATE]       zset    a tenant's jobs, by id
--   queue:BAND:TENANT:MODEL   stream  what waits and what runs, read by the group `servers`; band 1 is urgent
--   models:BAND:TENANT        set     models that the tenant has such a stream of
--   turns:BAND                zset    tenants with such streams
--   delayed                   zset    released jobs, by when they may wait in a queue again
--   ended                     zset    ended jobs, by when they are forgotten
--   webhooks                  zset    ended jobs whose webhook is not delivered, by when it is due
--   bytes                     hash    what the jobs of each tenant take; a job says itself what it takes, in `num_bytes`
--   all_bytes                 string  what all jobs take
--   wake                      stream  gets an entry when there is something to claim
--
-- An entry stays in its stream until the job has ended, or waits elsewhere. A lease is the time that an entry is idle in the group:
-- renewing claims it again, and who finds one that was idle for too long takes it over.

local p = KEYS[1]
local call = redis.call
local GROUP = 'servers'
local time = call('TIME')
local MAX_DELAY_S = 3600 -- as in base.py
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6

local function text(seconds)
  return string.format('%.6f', seconds)
end

local function job_key(id)
  return p .. 'job:' .. id
end

local function wake()
  call('XADD', p .. 'wake', 'MAXLEN', 1, '*', 'w', '1')
end

local function set_state(id, new)
  local found = call('HMGET', job_key(id), 'tenant_key', 'state')
  local list = p .. 'jobs:' .. found[1]
  if found[2] then
    call('ZREM', list .. ':' .. found[2], id)
  end
  call('ZADD', list .. ':' .. new, 0, id)
  call('HSET', job_key(id), 'state', new)
end

local function enqueue(id)
  local found = call('HMGET', job_key(id), 'band', 'tenant_key', 'model_name')
  local stream = p .. 'queue:' .. table.concat(found, ':')
  if call('EXISTS', stream) == 0 then
    call('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
  end
  local entry = call('XADD', stream, '*', 'id', id)
  call('HSET', job_key(id), 'queue', stream, 'entry', entry)
  call('SADD', p .. 'models:' .. found[1] .. ':' .. found[2], found[3])
  call('ZADD', p .. 'turns:' .. found[1], 0, found[2])
  wake()
end

local function dequeue(id)
  call('ZREM', p .. 'delayed', id)
  local found = call('HMGET', job_key(id), 'queue', 'entry', 'band', 'tenant_key', 'model_name')
  local stream, entry, band, tenant, model = unpack(found)
  if not stream or stream == '' then
    return
  end
  call('XACK', stream, GROUP, entry)
  call('XDEL', stream, entry)
  call('HDEL', job_key(id), 'queue', 'entry')
  if call('XLEN', stream) == 0 then
    local models = p .. 'models:' .. band .. ':' .. tenant
    call('DEL', stream)
    call('SREM', models, model)
    if call('EXISTS', models) == 0 then
      call('ZREM', p .. 'turns:' .. band, tenant)
    end
  end
end

-- Notes what a job takes from now on.
local function account(id, num_bytes)
  local found = call('HMGET', job_key(id), 'tenant_key', 'num_bytes')
  local more = num_bytes - tonumber(found[2] or 0)
  if call('HINCRBY', p .. 'bytes', found[1], more) <= 0 then
    call('HDEL', p .. 'bytes', found[1])
  end
  call('INCRBY', p .. 'all_bytes', more)
  call('HSET', job_key(id), 'num_bytes', num_bytes)
end

-- What the jobs of a tenant take, and what all do, but for some bytes; and whether there is room for so many in their place.
local function usage(tenant, but, num_bytes, max_tenant_bytes, max_bytes)
  local own = tonumber(call('HGET', p .. 'bytes', tenant) or 0) - but
  local all = tonumber(call('GET', p .. 'all_bytes') or 0) - but
  return own, all, own + num_bytes <= tonumber(max_tenant_bytes) and all + num_bytes <= tonumber(max_bytes)
end

local function finish(id, state, num_bytes)
  dequeue(id)
  set_state(id, state)
  local found = call('HMGET', job_key(id), 'ttl_s', 'webhook')
  local expires = text(now + tonumber(found[1]))
  call('HSET', job_key(id), 'finished_s', text(now), 'expires_s', expires)
  call('ZADD', p .. 'ended', expires, id)
  call('DEL', p .. 'request:' .. id)
  account(id, num_bytes)
  if found[2] ~= '' then
    call('ZADD', p .. 'webhooks', text(now), id)
  end
end

local function forget(id)
  dequeue(id)
  local found = call('HMGET', job_key(id), 'tenant_key', 'state', 'key_key')
  if found[1] then
    account(id, 0)
    call('ZREM', p .. 'jobs:' .. found[1], id)
    call('ZREM', p .. 'jobs:' .. found[1] .. ':' .. found[2], id)
    if found[3] ~= '' and call('GET', p .. 'key:' .. found[3]) == id then
      call('DEL', p .. 'key:' .. found[3])
    end
  end
  call('ZREM', p .. 'ended', id)
  call('ZREM', p .. 'webhooks', id)
  call('DEL', job_key(id), p .. 'request:' .. id, p .. 'result:' .. id)
end

local function is_there(tenant, id)
  local found = call('HMGET', job_key(id), 'tenant_key', 'expires_s')
  return found[1] == tenant and not (found[2] and tonumber(found[2]) <= now)
end

local function is_held(id, token)
  local found = call('HMGET', job_key(id), 'state', 'token')
  return found[1] == 'running' and found[2] == token
end

local steps = {}

-- id, tenant, idempotency key or '', digest, what the job takes, limits, request, its json_bytes or '', then names and values of the job's fields
function steps.submit(id, tenant, key, digest, num_bytes, max_queued, max_tenant_bytes, max_bytes, data, json_bytes, ...)
  local known = id
  if key ~= '' then
    known = call('GET', p .. 'key:' .. key) or id
  end
  if call('EXISTS', job_key(known)) == 1 and is_there(tenant, known) then
    if call('HGET', job_key(known), 'digest') ~= digest then
      return {'conflict', known}
    end
    return {'taken', call('HGETALL', job_key(known))}
  end
  if known ~= id then
    forget(known)
  end
  if call('ZCARD', p .. 'jobs:' .. tenant .. ':queued') >= tonumber(max_queued) then
    return {'many'}
  end
  num_bytes = tonumber(num_bytes)
  local own, all, has_room = usage(tenant, 0, num_bytes, max_tenant_bytes, max_bytes)
  if not has_room then
    return {'full', own, all}
  end
  call('HSET', p .. 'request:' .. id, 'data', data, 'json_bytes', json_bytes)
  call('HSET', job_key(id), 'id', id, 'tenant_key', tenant, 'key_key', key, 'digest', digest, 'created_s', text(now),
    'num_attempts', 0, 'token', 0, ...)
  if key ~= '' then
    call('SET', p .. 'key:' .. key, id)
  end
  call('ZADD', p .. 'jobs:' .. tenant, 0, id)
  account(id, num_bytes)
  set_state(id, 'queued')
  enqueue(id)
  return {'taken', call('HGETALL', job_key(id))}
end

local function take(entry, owner)
  local id = entry[2][2]
  call('HINCRBY', job_key(id), 'token', 1)
  call('HINCRBY', job_key(id), 'num_attempts', 1)
  call('HSETNX', job_key(id), 'started_s', text(now))
  call('HSET', job_key(id), 'owner', owner)
  set_state(id, 'running')
  return {call('HGETALL', job_key(id)), call('HMGET', p .. 'request:' .. id, 'data', 'json_bytes')}
end

local function stream_of(band, tenant, model)
  return p .. 'queue:' .. table.concat({band, tenant, model}, ':')
end

-- Returns up to so many ids whose time has come, or was written before the clock was set back (`MAX_DELAY_S`).
local function due(set, limit)
  local ids = call('ZRANGEBYSCORE', set, '-inf', text(now), 'LIMIT', 0, limit)
  for _, id in ipairs(call('ZRANGEBYSCORE', set, text(now + MAX_DELAY_S), '+inf', 'LIMIT', 0, limit - #ids)) do
    ids[#ids + 1] = id
  end
  return ids
end

-- Whether an entry was never read, or its lease has ended.
local function has_work(stream, lease_ms)
  return call('XLEN', stream) > call('XPENDING', stream, GROUP)[1]
    or #call('XPENDING', stream, GROUP, 'IDLE', lease_ms, '-', '+', 1) > 0
end

-- lease in ms, then the models
function steps.lanes(lease_ms, ...)
  for _, id in ipairs(due(p .. 'delayed', 1000)) do
    call('ZREM', p .. 'delayed', id)
    enqueue(id)
  end
  local served, found = {}, {}
  for _, model in ipairs({...}) do
    served[model] = true
  end
  for _, band in ipairs({'1', '0'}) do
    for _, tenant in ipairs(call('ZRANGE', p .. 'turns:' .. band, 0, -1)) do
      for _, model in ipairs(call('SMEMBERS', p .. 'models:' .. band .. ':' .. tenant)) do
        if served[model] and has_work(stream_of(band, tenant, model), lease_ms) then
          found[#found + 1] = {band, tenant, model}
        end
      end
    end
  end
  local last = call('XREVRANGE', p .. 'wake', '+', '-', 'COUNT', 1)
  return {last[1] and last[1][1] or '0-0', found}
end

local function take_lapsed(stream, owner, lease_ms)
  local cursor = '0-0'
  repeat
    local found = call('XAUTOCLAIM', stream, GROUP, owner, lease_ms, cursor, 'COUNT', 1)
    cursor = found[1]
    if found[2][1] then
      return take(found[2][1], owner)
    end
  until cursor == '0-0'
end

local function take_next(stream, owner)
  local found = call('XREADGROUP', 'GROUP', GROUP, owner, 'COUNT', 1, 'STREAMS', stream, '>')
  return found and take(found[1][2][1], owner)
end

-- owner, lease in ms, then a band, a tenant and a model for each job
function steps.claim(owner, lease_ms, ...)
  local lanes, claims = {...}, {}
  for at = 1, #lanes, 3 do
    local stream = stream_of(lanes[at], lanes[at + 1], lanes[at + 2])
    if call('EXISTS', stream) == 1 then
      claims[#claims + 1] = take_lapsed(stream, owner, lease_ms) or take_next(stream, owner) or nil
    end
  end
  return claims
end

-- pairs of ids and tokens; gives the ids that are lost
function steps.renew(...)
  local held, lost = {...}, {}
  for at = 1, #held, 2 do
    local id = held[at]
    if is_held(id, held[at + 1]) then
      local place = call('HMGET', job_key(id), 'queue', 'owner', 'entry')
      call('XCLAIM', place[1], GROUP, place[2], 0, place[3], 'JUSTID')
    else
      lost[#lost + 1] = id
    end
  end
  return lost
end

-- without a result, there is no `data`
function steps.finish(id, token, state, num_attempts, fault, num_bytes, max_tenant_bytes, max_bytes, data, json_bytes)
  if not is_held(id, token) then
    return {'lost'}
  end
  num_bytes = tonumber(num_bytes)
  if data then
    local found = call('HMGET', job_key(id), 'tenant_key', 'num_bytes')
    local own, all, has_room = usage(found[1], tonumber(found[2] or 0), num_bytes, max_tenant_bytes, max_bytes)
    if not has_room then
      return {'full', own, all}
    end
  end
  call('HSET', job_key(id), 'num_attempts', num_attempts, 'error', fault)
  if data then
    call('HSET', p .. 'result:' .. id, 'data', data, 'json_bytes', json_bytes)
  end
  finish(id, state, num_bytes)
  return {'ended'}
end

function steps.release(id, token, delay_s, is_counted)
  if not is_held(id, token) then
    return 0
  end
  if is_counted ~= '1' then
    call('HINCRBY', job_key(id), 'num_attempts', -1)
  end
  dequeue(id)
  set_state(id, 'queued')
  if tonumber(delay_s) > 0 then
    call('ZADD', p .. 'delayed', text(now + math.min(tonumber(delay_s), MAX_DELAY_S)), id)
  else
    enqueue(id)
  end
  return 1
end

function steps.cancel(tenant, id, num_bytes)
  if not is_there(tenant, id) then
    return {}
  end
  local state = call('HGET', job_key(id), 'state')
  if state == 'queued' or state == 'running' then
    finish(id, 'cancelled', tonumber(num_bytes))
  end
  return call('HGETALL', job_key(id))
end

function steps.get(tenant, id)
  return is_there(tenant, id) and call('HGETALL', job_key(id)) or {}
end

function steps.result(tenant, id)
  if not is_there(tenant, id) then
    return {0}
  end
  return {1, call('HMGET', p .. 'result:' .. id, 'data', 'json_bytes')}
end

function steps.page(tenant, state, limit, after)
  local list = p .. 'jobs:' .. tenant .. (state ~= '' and ':' .. state or '')
  local found, last = {}, after ~= '' and '(' .. after or '+'
  limit = tonumber(limit)
  while #found < limit do
    local ids = call('ZREVRANGEBYLEX', list, last, '-', 'LIMIT', 0, limit)
    for _, id in ipairs(ids) do
      if #found < limit and is_there(tenant, id) then
        found[#found + 1] = call('HGETALL', job_key(id))
      end
    end
    if #ids < limit then
      break
    end
    last = '(' .. ids[#ids]
  end
  return found
end

function steps.delete(tenant, id)
  if not is_there(tenant, id) then
    return 0
  end
  forget(id)
  return 1
end

function steps.expire(limit)
  local ids = call('ZRANGEBYSCORE', p .. 'ended', '-inf', text(now), 'LIMIT', 0, limit)
  for _, id in ipairs(ids) do
    forget(id)
  end
  return #ids
end

function steps.num_bytes()
  return call('GET', p .. 'all_bytes') or 0
end

function steps.num_queued()
  local number = 0
  for _, tenant in ipairs(call('HKEYS', p .. 'bytes')) do
    number = number + call('ZCARD', p .. 'jobs:' .. tenant .. ':queued')
  end
  return number
end

function steps.due_webhooks(limit, lease_s)
  local found = {}
  for _, id in ipairs(due(p .. 'webhooks', tonumber(limit))) do
    call('ZADD', p .. 'webhooks', text(now + tonumber(lease_s)), id)
    found[#found + 1] = call('HGETALL', job_key(id))
  end
  return found
end

function steps.webhook_done(id)
  call('ZREM', p .. 'webhooks', id)
  return 1
end

function steps.webhook_failed(id, delay_s)
  if call('ZADD', p .. 'webhooks', 'XX', 'CH', text(now + tonumber(delay_s)), id) == 1 then
    call('HINCRBY', job_key(id), 'num_webhook_attempts', 1)
  end
  return 1
end

return steps[ARGV[1]](unpack(ARGV, 2))
