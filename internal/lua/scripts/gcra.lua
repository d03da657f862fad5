-- GCRA. STRING "tat:f:s": theoretical arrival time in µs and f/s of one.
local STRIDE, WIDTH = 5, 2
local function step(KEYS, k, item, n, cap, num, den, bound, write)
  local key = KEYS[k + 1]
  local full = cap * den
  local level, rebased = 0, false
  local v = redis.call('GET', key)
  if v then
    local tat, frac, scale = string.match(v, '^(%d+):(%d+):(%d+)$')
    tat, frac, scale = tonumber(tat), tonumber(frac), tonumber(scale)
    if not tat then return BROKEN end
    if scale ~= num and frac > 0 then tat, frac = tat + 1, 0 end
    if tat >= now then
      if tat - now > ceil(full / num) then
        level, rebased = full, true
      else
        level = (tat - now) * num + frac
        if level > full then level, rebased = full, true end
      end
    end
  end
  local cost = n * den
  local allowed, retry = 0, 0
  if level + cost <= full then
    level = level + cost
    allowed = 1
  else
    retry = ceil((level + cost - full) / num)
  end
  local reset = ceil(level / num)
  if write and (allowed == 1 or rebased) then
    redis.call('SET', key, int(now + floor(level / num)) .. ':' .. int(level % num) .. ':' .. int(num), 'PX', ttl(reset))
  end
  return allowed, floor((full - level) / den), retry, reset, 0
end
