local function back(KEYS, k, n, at, taken, cap, num, den)
  local key = KEYS[k + 1]
  local give = undrained(key, n, at, taken, cap, num, den)
  if give <= 0 then return 0 end
  local level, last = drained(key, cap, num, den)
  if not level then return 0 end
  give = min(give, level)
  redis.call('HSET', key, 'v', int(level - give), 's', int(den), 'l', int(last))
  return floor(give / den)
end
