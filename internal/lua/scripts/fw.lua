-- Fixed window. STRING: "start:count" of an epoch-aligned window.
local STRIDE, WIDTH, STRINGS = 5, 2, true
local function step(KEYS, k, item, n, cap, num, w, bound, write)
  local key = KEYS[k + 1]
  local at, count = 0, 0
  local v = get(key)
  if v then
    at, count = string.match(v, '^(%d+):(%d+)$')
    at, count = tonumber(at), tonumber(count)
    if not at then return BROKEN end
  end
  local start = now - now % w
  local rebased = false
  if at > now and at - now <= w then
    start = at
  elseif at > now then
    rebased = true
  elseif at < start then
    count = 0
  end
  local allowed, retry = 0, 0
  if count + n <= cap then
    count = count + n
    allowed = 1
  else
    retry = start + w - now
  end
  local reset = 0
  if count > 0 then reset = start + w - now end
  if write and (allowed == 1 or rebased) then
    put(key, window(start, count), 'PX', ttl(reset))
  end
  return allowed, max(0, cap - count), retry, reset, 0
end
