local WIDTH = 2
local function back(KEYS, k, n, at, taken, cap, num, w)
  return takeout(KEYS[k + 1 + floor((at > 0 and at or now) / w) % 2], w, 2 * w, n, at)
end
