-- Decides. ARGV: now, a nonce, then per item its cost, how many ask for that, cap, num,
-- den, for shaping the largest delay, and, where some must, how much must remain. Replies
-- with now, and per item how many were admitted, how much remains, the waits until there
-- is room and until all is as if never used, and the delay.
local function decide(key, item, n, count, cap, num, den, bound, keep)
  if not load(key, den) then return BROKEN, 0, 0, 0, 0 end
  local allowed, remaining, retry, reset, delay
  if n < 0 then
    -- A debt: charge what there is room for, also while the key is blocked.
    local _, left = step(0, false, cap, num, den, 0)
    allowed, remaining, retry, reset, delay = step(min(-n, left), left > 0, cap, num, den, 0)
  elseif s.till > now then
    allowed, remaining, retry, reset, delay = blocked(n, cap, num, den, bound, keep)
  elseif n > 0 and (count > 1 or keep > 0) then
    -- Several callers of one cost: admit as many as fit, in one step. What must
    -- remain is asked for, but not charged.
    local _, left = step(0, false, cap, num, den, bound)
    local fit = min(count, floor((left - keep) / n))
    if fit < 1 then
      allowed, remaining, retry, reset, delay = step(n + keep, true, cap, num, den, bound)
    else
      allowed, remaining, retry, reset, delay = step(n * fit, true, cap, num, den, bound)
      if allowed == 1 and fit < count then retry = select(3, step(n + keep, false, cap, num, den, bound)) end
      allowed = allowed * fit
    end
  else
    allowed, remaining, retry, reset, delay = step(n, n > 0, cap, num, den, bound)
  end
  if s.changed then save(key, reset, item) end
  return allowed, remaining, retry, reset, delay
end

if #KEYS == 1 then -- alone: no other caller is affected, so no pcall is needed
  local bound, keep = 0, ARGV[8]
  if SHAPING then bound, keep = ARGV[8] + 0, ARGV[9] end
  return {now, decide(KEYS[1], 0, ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0, ARGV[6] + 0, ARGV[7] + 0, bound, keep and keep + 0 or 0)}
end
if STRINGS and ARGV[3] ~= '0' then
  local values = redis.call('MGET', unpack(KEYS))
  for i = 1, #KEYS do texts[KEYS[i]] = values[i] end
end
local reply, r = {now}, 1
local span, first = (#ARGV - 2) / #KEYS, SHAPING and 6 or 5
local a = 3
for item = 1, #KEYS do
  local bound = SHAPING and ARGV[a + 5] + 0 or 0
  local keep = span > first and ARGV[a + first] + 0 or 0
  local ok, allowed, remaining, retry, reset, delay = pcall(decide, KEYS[item], item - 1, ARGV[a] + 0, ARGV[a + 1] + 0, ARGV[a + 2] + 0, ARGV[a + 3] + 0, ARGV[a + 4] + 0, bound, keep)
  if not ok then
    -- What one key holds must not fail the others; what fails all of them must.
    local why = type(allowed) == 'table' and allowed.err or tostring(allowed)
    if not string.find(why, 'WRONGTYPE', 1, true) then error(allowed, 0) end
    allowed, remaining, retry, reset, delay = BROKEN, 0, 0, 0, 0
  end
  reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], reply[r + 5] = allowed, remaining, retry, reset, delay
  r, a = r + 5, a + span
end
return reply
