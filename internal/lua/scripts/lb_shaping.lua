local STRIDE, WIDTH, STRINGS = 6, 2, false
local function step(KEYS, k, item, n, cap, num, den, bound, write)
  return leaky(KEYS[k + 1], n, cap, num, den, bound, true, write)
end
