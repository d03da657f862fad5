-- Keeps permits for another time to live. KEYS: per item the permits of an id. ARGV: now,
-- the time to live in µs, then per item how many callers, and these. Replies with 1
-- for each caller whose permit had ended, 0 for the others.
local ttl = tonumber(ARGV[2])
local reply, a = {}, 3
for k = 1, #KEYS do
  redis.call('ZREMRANGEBYSCORE', KEYS[k], '0', int(now))
  for i = a + 1, a + tonumber(ARGV[a]) do
    reply[#reply + 1] = redis.call('ZADD', KEYS[k], int(now + ttl), 'h' .. ARGV[i])
  end
  a = a + 1 + tonumber(ARGV[a])
  keepFor(KEYS[k], ttl)
end
return reply
