local WIDTH = 1
local function back(KEYS, k, n, at, taken, cap, num, w)
  return takeout(KEYS[k + 1], w, w, n, at)
end
