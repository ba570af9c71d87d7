-- Notes in Redis. One script, so that each step is atomic: called with KEYS = the notes, their fences, and ARGV[1] = the step's name.
--
--   notes         hash   values, by name
--   note-fences   hash   the highest fence that has claimed a name; no field for a name that none has claimed

local notes, fences = KEYS[1], KEYS[2]
local call = redis.call

local steps = {}

function steps.write(name, value, fence)
  if fence ~= '' and tonumber(fence) < tonumber(call('HGET', fences, name) or '0') then
    return 0
  end
  call('HSET', notes, name, value)
  return 1
end

function steps.claim(name, fence)
  local highest = math.max(tonumber(fence), tonumber(call('HGET', fences, name) or '0'))
  call('HSET', fences, name, highest)
  return {highest, call('HGET', notes, name)}
end

return steps[ARGV[1]](unpack(ARGV, 2))
