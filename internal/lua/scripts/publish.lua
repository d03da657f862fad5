-- What each process publishes of itself. KEYS[1], HASH: when, a space and a text, by process; KEYS[2], SORTED
-- SET: the processes, score = until when that is kept. ARGV: now, process, for how long in µs it is kept, and the
-- text; a time of 0 removes it. Processes may have different times, at most LONGEST. Removes a few of those
-- that were not renewed, and replies with how many there are.
local texts, times, life, LONGEST = KEYS[1], KEYS[2], tonumber(ARGV[3]), 1800000000
if life == 0 then
  redis.call('HDEL', texts, ARGV[2])
  redis.call('ZREM', times, ARGV[2])
  return {redis.call('ZCARD', times)}
end
redis.call('HSET', texts, ARGV[2], int(now) .. ' ' .. ARGV[4])
redis.call('ZADD', times, int(now + life), ARGV[2])
-- A time further ahead than any is kept means that the clock has stepped back.
for _, other in ipairs(redis.call('ZRANGEBYSCORE', times, '(' .. int(now + LONGEST), '+inf', 'LIMIT', '0', '1000')) do
  redis.call('ZADD', times, int(now + life), other)
end
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', times, '-inf', '(' .. int(now), 'LIMIT', '0', '100')) do
  redis.call('HDEL', texts, dead)
  redis.call('ZREM', times, dead)
end
local last = redis.call('ZREVRANGE', times, '0', '0', 'WITHSCORES')
local ms = int(math.max(1000, math.ceil((last[2] - now) / 1000)))
redis.call('PEXPIRE', texts, ms)
redis.call('PEXPIRE', times, ms)
return {redis.call('ZCARD', times)}
