local STRIDE, WIDTH, STRINGS = 5, 2, true
local function step(KEYS, k, item, n, cap, num, den, bound, write)
  local key = KEYS[k + 1]
  local full = cap * den
  local level, rebased = queued(key, cap, num, den)
  if not level then return BROKEN end
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
    put(key, tat(level, num), 'PX', ttl(reset))
  end
  return allowed, floor((full - level) / den), retry, reset, 0
end
