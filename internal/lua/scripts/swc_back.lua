local WIDTH = 2
local function back(KEYS, k, n, taken, cap, num, w)
  return takeout(KEYS[k + 1 + floor(taken / w) % 2], w, 2 * w, n, taken)
end
