-- Permits of what may be in flight at once. KEYS: the permits of an id, for each caller that
-- leaves, and then for each that asks. ARGV: now, a nonce, how many leave, and for each of these its
-- name and 1 or 0: whether it may also have a place in the queue. Then for each that asks how many callers,
-- and these. Before that stand "-" and seven numbers, where they are not those of the one before:
-- how many permits, how many of them are kept for critical
-- callers, time to live of a permit and of a place in the queue in µs, then 1 or 0:
-- whether those who are denied wait, whether they are critical, and whether they may
-- have asked before.
-- Replies with now, and for each that asks how many are held, how many callers are ahead of the first one
-- that has to wait, the time until the next permit ends, and 1 or 0 for each caller. A key
-- that holds something else has -1 permits. Those who leave come first: what they write lets Redis
-- take what follows also when it is out of memory.
local call, try = redis.call, redis.pcall
local reply, size, a, gone = {now}, 1, 4, ARGV[3] + 0
local most, keep, ttl, patience, wait, critical, again, ends, stays

-- An error, unless it is that of a key which holds something else.
local function failed(v) return type(v) == 'table' and string.sub(v.err, 1, 9) ~= 'WRONGTYPE' end

for k = 1, gone do
  local caller, v = ARGV[a]
  if ARGV[a + 1] == '1' then
    v = try('ZREM', KEYS[k], 'h' .. caller, 'q' .. caller, 'w' .. caller)
  else
    v = try('ZREM', KEYS[k], 'h' .. caller)
  end
  if failed(v) then return v end
  a = a + 2
end

-- How many critical callers wait.
local function before(key) return call('ZCOUNT', key, '-inf', '(' .. int(OTHERS)) end

-- The next place in the queue: a number and not a time, because clocks step back.
local function place(key, waiting)
  local base, n = OTHERS, waiting
  if critical then base, n = CRITICAL, before(key) end
  local last = n > 0 and call('ZRANGE', key, n - 1, n - 1, 'WITHSCORES')
  return last and math.max(base, tonumber(last[2]) + 1) or base
end

for k = gone + 1, #KEYS do
  local key = KEYS[k]
  if ARGV[a] == '-' then
    most, keep, ttl, patience = ARGV[a + 1] + 0, ARGV[a + 2] + 0, ARGV[a + 3] + 0, ARGV[a + 4] + 0
    wait, critical, again = ARGV[a + 5] == '1', ARGV[a + 6] == '1', ARGV[a + 7] == '1'
    ends, stays = int(now + ttl), wait and int(LIFE + now + patience)
    a = a + 8
  end
  local callers, head = ARGV[a] + 0, size
  local count, waiting, ahead, longest = try('ZCARD', key), 0, nil, 0
  if failed(count) then return count end
  local broken, new = type(count) == 'table', count == 0
  if broken then
    count = -1
  elseif not new then
    waiting = call('ZCOUNT', key, '-inf', '(0')
    count = count - 2 * waiting
    -- Permits that have ended are removed before a caller is denied, or permits are counted.
    if count > 0 and (callers == 0 or waiting > 0 or count + callers > most - keep) then
      count = count - ended(key, ttl)
    end
  end
  if waiting > 0 then
    local latest = LIFE + now + patience
    local far = call('ZRANGEBYSCORE', key, '(' .. int(latest), '+inf', 'LIMIT', '0', '1000')
    for _, w in ipairs(far) do call('ZADD', key, int(latest), w) end
    local dead = call('ZRANGEBYSCORE', key, int(LIFE), int(LIFE + now), 'LIMIT', '0', '1000')
    for _, w in ipairs(dead) do call('ZREM', key, w, 'q' .. string.sub(w, 2)) end
    waiting = waiting - #dead
  end
  size = size + 3
  for i = a + 1, a + callers do
    local caller, got = ARGV[i], 0
    if not broken then
      local rank = waiting > 0 and call('ZRANK', key, 'q' .. caller)
      local ranked = rank or critical and waiting > 0 and before(key) or waiting
      local free = most - count
      if not critical then free = free - keep end
      local mine = again and call('ZSCORE', key, 'h' .. caller)
      if mine or ranked < free then
        call('ZADD', key, ends, 'h' .. caller)
        longest = math.max(longest, ttl)
        if not mine then count = count + 1 end
        if rank then
          call('ZREM', key, 'q' .. caller, 'w' .. caller)
          waiting = waiting - 1
        end
        got = 1
      else
        ahead = ahead or ranked - free
        if wait then
          if rank then
            call('ZADD', key, stays, 'w' .. caller)
          else
            call('ZADD', key, int(place(key, waiting)), 'q' .. caller, stays, 'w' .. caller)
            waiting = waiting + 1
          end
          longest = math.max(longest, patience)
        end
      end
    end
    size = size + 1
    reply[size] = got
  end
  if longest > 0 then keepFor(key, longest, new) end
  reply[head + 1], reply[head + 2], reply[head + 3] = count, ahead or 0, 0
  if ahead and count > 0 then
    reply[head + 3] = tonumber(call('ZRANGE', key, waiting, waiting, 'WITHSCORES')[2]) - now
  end
  a = a + 1 + callers
end
return reply
