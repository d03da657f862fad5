local WIDTH = 1
local function back(KEYS, k, n, at, taken, cap, num, w, name, first)
  if at == 0 then
    n = min(n, redis.call('ZCOUNT', KEYS[k + 1], '(' .. int(now - w), '+inf'))
    if n < 1 then return 0 end
    return redis.call('ZREMRANGEBYRANK', KEYS[k + 1], int(-n), -1)
  end
  if at <= now - w then return 0 end
  local gone = 0
  for from = first, first + n - 1, 1000 do
    local members = {}
    for i = from, min(first + n - 1, from + 999) do members[#members + 1] = name .. ':' .. int(i) end
    gone = gone + redis.call('ZREM', KEYS[k + 1], unpack(members))
  end
  return gone
end
