local function back(KEYS, k, n, at, taken, cap, num, den)
  local key = KEYS[k + 1]
  local give = undrained(key, n, at, taken, cap, num, den)
  if give <= 0 then return 0 end
  local tokens, last = refilled(key, cap, num, den)
  if not tokens then return 0 end
  give = min(give, cap * den - tokens)
  redis.call('HSET', key, 't', int(tokens + give), 's', int(den), 'l', int(last))
  return floor(give / den)
end
