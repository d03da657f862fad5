-- Token bucket. HASH: t = tokens in units of 1/s, l = last refill.
local STRIDE, WIDTH = 5, 2
local function step(KEYS, k, item, n, cap, num, den, bound, write)
  local key = KEYS[k + 1]
  local full = cap * den
  local tokens, last = full, now
  local v = redis.call('HMGET', key, 't', 's', 'l')
  if v[1] or v[2] or v[3] then
    local scale
    tokens, scale, last = tonumber(v[1] or ''), tonumber(v[2] or ''), tonumber(v[3] or '')
    if not (tokens and scale and last and scale > 0) then return BROKEN end
    if scale ~= den then tokens = min(floor(tokens / scale), cap) * den end
    tokens = min(tokens, full)
  end
  local ahead, rebased = 0, false
  local fill = ceil(full / num)
  if last <= now then
    tokens = min(full, tokens + min(now - last, fill) * num)
    last = now
  elseif last - now > fill then
    rebased = true
    last = now
  else
    ahead = last - now
  end
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
