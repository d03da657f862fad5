-- Leaky bucket. HASH: v = level in units of 1/s, l = last leak.
local function drained(key, cap, num, den)
  local full = cap * den
  local level, last = 0, now
  local v = redis.call('HMGET', key, 'v', 's', 'l')
  if v[1] or v[2] or v[3] then
    local scale
    level, scale, last = tonumber(v[1] or ''), tonumber(v[2] or ''), tonumber(v[3] or '')
    if not (level and scale and last and scale > 0) then return nil end
    if scale ~= den then level = min(ceil(level / scale), cap) * den end
    level = min(level, full)
  end
  local fill = ceil(full / num)
  if last <= now then return max(0, level - min(now - last, fill) * num), now, 0, false end
  if last - now > fill then return level, now, 0, true end
  return level, last, last - now, false
end
