local function leaky(key, n, cap, num, den, bound, shaping, write)
  local full = cap * den
  local level, last, ahead, rebased = drained(key, cap, num, den)
  if not level then return BROKEN end
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
