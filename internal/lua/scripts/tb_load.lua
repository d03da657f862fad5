-- Token bucket. HASH: t = tokens in units of 1/s, l = last refill.
local function refilled(key, cap, num, den)
  local full = cap * den
  local tokens, last = full, now
  local v = redis.call('HMGET', key, 't', 's', 'l')
  if v[1] or v[2] or v[3] then
    local scale
    tokens, scale, last = tonumber(v[1] or ''), tonumber(v[2] or ''), tonumber(v[3] or '')
    if not (tokens and scale and last and scale > 0) then return nil end
    if scale ~= den then tokens = min(floor(tokens / scale), cap) * den end
    tokens = min(tokens, full)
  end
  local fill = ceil(full / num)
  if last <= now then return min(full, tokens + min(now - last, fill) * num), now, 0, false end
  if last - now > fill then return tokens, now, 0, true end
  return tokens, last, last - now, false
end
