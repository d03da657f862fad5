-- Leaky bucket. HASH: v = level in units of 1/s, l = last leak.
local function leaky(key, n, cap, num, den, bound, shaping, write)
  local full = cap * den
  local level, last = 0, now
  local v = redis.call('HMGET', key, 'v', 's', 'l')
  if v[1] or v[2] or v[3] then
    local scale
    level, scale, last = tonumber(v[1] or ''), tonumber(v[2] or ''), tonumber(v[3] or '')
    if not (level and scale and last and scale > 0) then return BROKEN end
    if scale ~= den then level = min(ceil(level / scale), cap) * den end
    level = min(level, full)
  end
  local ahead, rebased = 0, false
  local fill = ceil(full / num)
  if last <= now then
    level = max(0, level - min(now - last, fill) * num)
    last = now
  elseif last - now > fill then
    rebased = true
    last = now
  else
    ahead = last - now
  end
  local allowed, retry, delay = 0, 0, 0
  local cost = n * den
  local over = level + cost - full
  if over > 0 then retry = ahead + ceil(over / num) end
  if shaping and level > 0 then
    delay = ahead + ceil(level / num)
    if bound > 0 and delay > bound then retry = max(retry, delay - bound) end
  end
  if retry > 0 then
    delay = 0
  else
    level = level + cost
    allowed = 1
  end
  local reset = 0
  if level > 0 then reset = ahead + ceil(level / num) end
  if write and (allowed == 1 or rebased) then
    redis.call('HSET', key, 'v', int(level), 's', int(den), 'l', int(last))
    redis.call('PEXPIRE', key, ttl(reset))
  end
  return allowed, floor((full - level) / den), retry, reset, delay
end
