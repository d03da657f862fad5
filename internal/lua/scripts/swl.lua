-- Sliding window log. SORTED SET: a member per admitted unit, score = its time.
local STRIDE, WIDTH, STRINGS = 5, 2, false
local nonce = ARGV[2]
local function step(KEYS, k, item, n, cap, num, w, bound, write)
  local key = KEYS[k + 1]
  local from = '(' .. int(now - w)
  local count = redis.call('ZCOUNT', key, from, '+inf')
  local newest, rebased = 0, false
  if count > 0 then
    newest = tonumber(redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2])
    if newest - now > w then
      rebased = true
      newest = now
    end
  end
  local allowed, retry = 0, 0
  if count + n <= cap then
    allowed = 1
  else
    local oldest = redis.call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', int(count + n - cap - 1), '1')
    local t = tonumber(oldest[2])
    if rebased then t = min(t, now) end
    retry = t + w - now
  end
  if write and (allowed == 1 or rebased) then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', int(now - w))
    if rebased then
      local members = redis.call('ZRANGEBYSCORE', key, '(' .. int(now), '+inf')
      for i = 1, #members do redis.call('ZADD', key, 'XX', int(now), members[i]) end
    end
  end
  if allowed == 1 and n > 0 then
    count = count + n
    newest = max(newest, now)
    if write then
      -- A call with many units adds them in pieces: unpack is bounded.
      for first = 1, n, 1000 do
        local members = {}
        for i = first, min(n, first + 999) do
          members[#members + 1] = int(now)
          members[#members + 1] = nonce .. ':' .. int(item) .. ':' .. int(i)
        end
        redis.call('ZADD', key, unpack(members))
      end
    end
  end
  local reset = 0
  if count > 0 then reset = newest + w - now end
  if write and (allowed == 1 or rebased) then redis.call('PEXPIRE', key, ttl(reset)) end
  return allowed, max(0, cap - count), retry, reset, 0
end
