-- Heartbeat of a process. SORTED SET: its id, score = the time of its last heartbeat.
-- ARGV: now, id, time to live in µs; a time to live of 0 deregisters it. Replies
-- with the number of processes alive.
local life = tonumber(ARGV[3])
if life == 0 then
  redis.call('ZREM', KEYS[1], ARGV[2])
else
  redis.call('ZADD', KEYS[1], int(now), ARGV[2])
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. int(now - life))
  -- A heartbeat later than now means that the clock has stepped back. The living are
  -- still counted, and the dead no longer than others.
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. int(now), '+inf', 'LIMIT', '0', '1000')) do
    redis.call('ZADD', KEYS[1], int(now), id)
  end
  redis.call('PEXPIRE', KEYS[1], int(math.max(1000, math.ceil(life / 1000))))
end
return {redis.call('ZCARD', KEYS[1])}
