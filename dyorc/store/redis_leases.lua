-- Leases in Redis. One script, so that each step is atomic: called with KEYS = the lease, its fence, and ARGV[1] = the step's name.
--
--   lease:NAME   hash     `owner`, `fence`, `record`; expires unless it is renewed
--   fence:NAME   string   the highest fence there was; never expires, so that the next one is higher

local lease, counter = KEYS[1], KEYS[2]
local call = redis.call
local fence = tonumber(call('GET', counter) or '0')
local owner = call('HGET', lease, 'owner')

local function hold(by, number, record, lease_ms)
  call('SET', counter, number)
  call('HSET', lease, 'owner', by, 'fence', number, 'record', record)
  call('PEXPIRE', lease, lease_ms)
end

local steps = {}

function steps.acquire(by, lease_ms, above)
  if owner then
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
