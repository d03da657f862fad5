-- All that is kept of a key is one SORTED SET: it is evicted, expires and moves to
-- another node as a whole. Its members are a letter and a caller, from the lowest score:
--   q: its place in the queue, critical callers before all others
--   h: until when it holds a permit
--   w: until when its place in the queue lasts, plus LIFE
-- A caller that waits has both q and w. The first places are not round numbers, because the
-- Lua of miniredis does not read "-1e+12".
local CRITICAL, OTHERS, LIFE = -2500000000000, -1500000000000, 4000000000000000

-- Removes the permits that have ended, and returns how many. A permit that ends later than its
-- time to live allows, because the clock has stepped back, ends sooner from now on. Other
-- callers may have a longer time to live than this one: their names have it after a slash.
local function ended(key, ttl)
  local far = redis.call('ZRANGEBYSCORE', key, '(' .. int(now + ttl), '(' .. int(LIFE), 'WITHSCORES', 'LIMIT', '0', '1000')
  for i = 1, #far, 2 do
    local latest = now + math.max(ttl, tonumber(string.match(far[i], '/(%d+)$')) or 0)
    if tonumber(far[i + 1]) > latest then redis.call('ZADD', key, int(latest), far[i]) end
  end
  return redis.call('ZREMRANGEBYSCORE', key, '0', int(now))
end

-- Keeps the key for us µs and up to a second more, unless it lives longer already for another caller. A
-- key that is new has no time to live.
local function keepFor(key, us, new)
  local ms = math.max(1000, math.ceil(us / 1000))
  if new or redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, int(ms + 1000)) end
end
