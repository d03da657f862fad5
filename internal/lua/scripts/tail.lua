
local reply = {now}
local keys, item = 0, 0
for a = 3, #ARGV, STRIDE do
  local n, cap, num, den = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
  local bound = STRIDE > 4 and tonumber(ARGV[a + 4]) or 0
  local block = redis.call('GET', KEYS[keys + WIDTH])
  local until_ = block and tonumber(block) or 0
  if n < 0 then
    -- A debt: charge what there is room for, also while the key is blocked.
    local readable, left = step(KEYS, keys, item, 0, cap, num, den, 0, false)
    n = readable == BROKEN and 0 or min(-n, left)
    bound, until_ = 0, 0
  end
  local allowed, remaining, retry, reset, delay
  if until_ > now then
    allowed, remaining, retry = step(KEYS, keys, item, n, cap, num, den, bound, false)
    if allowed ~= BROKEN then
      local wait = max(retry, until_ - now)
      allowed, remaining, retry, reset = step(KEYS, keys, item, 0, cap, num, den, bound, false)
      allowed, retry, delay = 0, wait, 0
    end
  else
    allowed, remaining, retry, reset, delay = step(KEYS, keys, item, n, cap, num, den, bound, n > 0)
  end
  if allowed == BROKEN then
    remaining, retry, reset, delay = 0, 0, 0, 0
  end
  local r = item * 5 + 1
  reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], reply[r + 5] = allowed, remaining, retry, reset, delay
  keys = keys + WIDTH
  item = item + 1
end
return reply
