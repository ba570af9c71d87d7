-- Fenced notes in Redis. One script, so that each step is atomic: called with KEYS[1] = the hash of all notes and ARGV = the name of
-- a fence, its number, and, to note something, a name and a value. Gives the highest number that the fence has had; if that is not
-- ARGV[2], nothing was noted.

local notes = KEYS[1]
local highest = math.max(tonumber(redis.call('HGET', notes, ARGV[1]) or '0'), tonumber(ARGV[2]))
redis.call('HSET', notes, ARGV[1], string.format('%d', highest))
if ARGV[3] and highest == tonumber(ARGV[2]) then
  redis.call('HSET', notes, ARGV[3], ARGV[4])
end
return highest
