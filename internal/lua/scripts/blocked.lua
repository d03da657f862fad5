-- The decision on a key that is blocked. A block that ends later than it was long after
-- now, since the clock stepped back, is brought back by any request with a cost.
local function blocked(n, cap, num, den, bound, keep)
  local left = min(s.till - now, s.length)
  local _, _, retry = step(n > 0 and n + keep or 0, false, cap, num, den, bound)
  local _, _, _, reset = step(0, false, cap, num, den, bound)
  if n > 0 and s.till - now > left then s.till, s.changed = now + left, true end
  return 0, 0, max(retry, left), max(reset, left), 0
end
