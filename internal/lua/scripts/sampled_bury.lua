-- Takes a process that is not heard of any more out of the sums. KEYS as for the
-- report, the last one that of the dead. ARGV: now, its number, the time to live in
-- µs. Replies with 1 if it was dead.
local heard = redis.call('ZSCORE', KEYS[2], ARGV[2])
if not heard or tonumber(heard) >= now - tonumber(ARGV[3]) then return {0} end
local all = redis.call('HGETALL', KEYS[3])
for i = 1, #all, 2 do
  local left = (tonumber(redis.call('HGET', KEYS[1], all[i]) or 0) or 0) - (tonumber(all[i + 1]) or 0)
  if left > 0 then
    redis.call('HSET', KEYS[1], all[i], int(left))
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
redis.call('DEL', KEYS[3])
redis.call('ZREM', KEYS[2], ARGV[2])
return {1}
