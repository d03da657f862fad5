-- Permits of what may be in flight at once. KEYS: the permits of one id.
-- ARGV: now, a nonce, how many permits, how many of them are kept for critical
-- callers, time to live of a permit and of a place in the queue in µs, then 1 or 0:
-- whether those who are denied wait, whether they are critical, and whether they may
-- have asked before; and the callers.
-- Replies with now, how many are held, how many callers are ahead of the first one
-- that has to wait, the time until the next permit ends, and 1 or 0 for each caller.
local key = KEYS[1]
local most, keep, ttl, patience = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local wait, critical, again = ARGV[7] == '1', ARGV[8] == '1', ARGV[9] == '1'
local first = 10

local count, waiting = redis.call('ZCARD', key), 0
if count > 0 then
  waiting = redis.call('ZCOUNT', key, '-inf', '(0')
  count = count - 2 * waiting
end
-- Permits that have ended are removed before a caller is denied, or permits are counted.
if count > 0 and (#ARGV < first or waiting > 0 or count + #ARGV - first + 1 > most - keep) then
  count = count - ended(key, ttl)
end
if waiting > 0 then
  local latest = LIFE + now + patience
  local far = redis.call('ZRANGEBYSCORE', key, '(' .. int(latest), '+inf', 'LIMIT', '0', '1000')
  for _, w in ipairs(far) do redis.call('ZADD', key, int(latest), w) end
  local dead = redis.call('ZRANGEBYSCORE', key, int(LIFE), int(LIFE + now), 'LIMIT', '0', '1000')
  for _, w in ipairs(dead) do redis.call('ZREM', key, w, 'q' .. string.sub(w, 2)) end
  waiting = waiting - #dead
end

-- How many critical callers wait.
local function before() return redis.call('ZCOUNT', key, '-inf', '(' .. int(OTHERS)) end

-- The next place in the queue: a number and not a time, because clocks step back.
local function place()
  local base, n = OTHERS, waiting
  if critical then base, n = CRITICAL, before() end
  local last = n > 0 and redis.call('ZRANGE', key, n - 1, n - 1, 'WITHSCORES')
  return last and math.max(base, tonumber(last[2]) + 1) or base
end

local reply, ahead, longest = {now, 0, 0, 0}, nil, 0
for a = first, #ARGV do
  local caller = ARGV[a]
  local rank = waiting > 0 and redis.call('ZRANK', key, 'q' .. caller)
  local ranked = rank or critical and waiting > 0 and before() or waiting
  local free = most - count
  if not critical then free = free - keep end
  local mine = again and redis.call('ZSCORE', key, 'h' .. caller)
  if mine or ranked < free then
    redis.call('ZADD', key, int(now + ttl), 'h' .. caller)
    longest = math.max(longest, ttl)
    if not mine then count = count + 1 end
    if rank then
      redis.call('ZREM', key, 'q' .. caller, 'w' .. caller)
      waiting = waiting - 1
    end
    reply[#reply + 1] = 1
  else
    ahead = ahead or ranked - free
    if wait then
      local life = int(LIFE + now + patience)
      if rank then
        redis.call('ZADD', key, life, 'w' .. caller)
      else
        redis.call('ZADD', key, int(place()), 'q' .. caller, life, 'w' .. caller)
        waiting = waiting + 1
      end
      longest = math.max(longest, patience)
    end
    reply[#reply + 1] = 0
  end
end
if longest > 0 then keepFor(key, longest) end
reply[2], reply[3] = count, ahead or 0
if ahead and count > 0 then
  reply[4] = tonumber(redis.call('ZRANGE', key, waiting, waiting, 'WITHSCORES')[2]) - now
end
return reply
