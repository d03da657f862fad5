local STRIDE, WIDTH, STRINGS = 5, 2, false
local function step(KEYS, k, item, n, cap, num, den, bound, write)
  local key = KEYS[k + 1]
  local full = cap * den
  local tokens, last, ahead, rebased = refilled(key, cap, num, den)
  if not tokens then return BROKEN end
  local cost = n * den
  local allowed, retry = 0, 0
  if cost <= tokens then
    tokens = tokens - cost
    allowed = 1
  else
    retry = ahead + ceil((cost - tokens) / num)
  end
  local reset = 0
  if tokens < full then reset = ahead + ceil((full - tokens) / num) end
  if write and (allowed == 1 or rebased) then
    redis.call('HSET', key, 't', int(tokens), 's', int(den), 'l', int(last))
    redis.call('PEXPIRE', key, ttl(reset))
  end
  return allowed, floor(tokens / den), retry, reset, 0
end
