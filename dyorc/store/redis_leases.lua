-- Leases in Redis. One script, so that each step is atomic: called with KEYS = the lease, its fence, and ARGV[1] = the step's name.
--
--   lease:NAME   hash     `owner`, `fence`, `record`, `renewed_ms` (Unix time); expires unless it is renewed
--   fence:NAME   string   the highest fence there was; never expires, so that the next one is higher
--
-- The clock of Redis' machine may be set back, and what expires would last longer by that. So a lease that was renewed in the future
-- has ended: otherwise nobody could lead until that time.

local lease, counter = KEYS[1], KEYS[2]
local call = redis.call
local fence = tonumber(call('GET', counter) or '0')
local owner = call('HGET', lease, 'owner')
local time = call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local function hold(by, number, record, lease_ms)
  call('SET', counter, number)
  call('HSET', lease, 'owner', by, 'fence', number, 'record', record, 'renewed_ms', now_ms)
  call('PEXPIRE', lease, lease_ms)
end

local steps = {}

function steps.acquire(by, lease_ms, above)
  if owner and tonumber(call('HGET', lease, 'renewed_ms') or '0') <= now_ms then
    return owner == by and tonumber(call('HGET', lease, 'fence')) or false
  end
  local number = math.max(fence, tonumber(above)) + 1
  hold(by, number, '', lease_ms)
  return number
end

function steps.renew(by, lease_ms, number, record)
  number = tonumber(number)
  if fence > number or (fence == number and owner and owner ~= by) then
    return 0
  end
  hold(by, number, record, lease_ms)
  return 1
end

function steps.release(by, number)
  if owner == by and fence == tonumber(number) then
    call('DEL', lease)
  end
  return 1
end

function steps.read()
  return {fence, owner and call('HGET', lease, 'record') or ''}
end

return steps[ARGV[1]](unpack(ARGV, 2))
