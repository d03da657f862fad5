-- Keeps slots for another time to live. KEYS: per item who holds slots. ARGV: now,
-- the time to live in µs, then per item how many callers, and these. Replies with 1
-- for each caller whose slot had ended, 0 for the others.
local ttl = tonumber(ARGV[2])
local reply, a = {}, 3
for k = 1, #KEYS do
  redis.call('ZREMRANGEBYSCORE', KEYS[k], '-inf', int(now))
  for i = a + 1, a + tonumber(ARGV[a]) do
    reply[#reply + 1] = redis.call('ZADD', KEYS[k], int(now + ttl), ARGV[i])
  end
  a = a + 1 + tonumber(ARGV[a])
  -- It may be asked to keep many: the longest time to live is that of all.
  redis.call('PEXPIRE', KEYS[k], int(math.max(1000, math.ceil(ttl / 1000))))
end
return reply
