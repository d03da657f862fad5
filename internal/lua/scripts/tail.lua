local function decide(blocked, keys, item, n, count, cap, num, den, bound, keep)
  local block = blocked and redis.call('GET', KEYS[keys + WIDTH])
  local until_ = block and tonumber(block) or 0
  if n < 0 then
    -- A debt: charge what there is room for, also while the key is blocked.
    local readable, left = step(KEYS, keys, item, 0, cap, num, den, 0, false)
    if readable == BROKEN then return BROKEN end
    return step(KEYS, keys, item, min(-n, left), cap, num, den, 0, left > 0)
  end
  if until_ > now then
    local readable, _, retry = step(KEYS, keys, item, n > 0 and n + keep or 0, cap, num, den, bound, false)
    if readable == BROKEN then return BROKEN end
    local _, remaining, _, reset = step(KEYS, keys, item, 0, cap, num, den, bound, false)
    return 0, remaining, max(retry, until_ - now), reset, 0
  end
  if n > 0 and (count > 1 or keep > 0) then
    -- Several callers of one cost: admit as many as fit, in one step. What must
    -- remain is asked for, but not charged.
    local readable, left = step(KEYS, keys, item, 0, cap, num, den, bound, false)
    if readable == BROKEN then return BROKEN end
    local fit = min(count, floor((left - keep) / n))
    if fit < 1 then return step(KEYS, keys, item, n + keep, cap, num, den, bound, true) end
    local allowed, remaining, retry, reset, delay = step(KEYS, keys, item, n * fit, cap, num, den, bound, true)
    if allowed == 1 and fit < count then retry = select(3, step(KEYS, keys, item, n + keep, cap, num, den, bound, false)) end
    return allowed * fit, remaining, retry, reset, delay
  end
  return step(KEYS, keys, item, n, cap, num, den, bound, n > 0)
end

local reply = {now}
if #KEYS == WIDTH then -- alone: nobody to be harmed, and no detours
  local bound = STRIDE > 5 and tonumber(ARGV[8]) or 0
  local allowed, remaining, retry, reset, delay = decide(true, 0, 0, tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), bound, tonumber(ARGV[3 + STRIDE] or 0))
  if allowed == BROKEN then return {now, BROKEN, 0, 0, 0, 0} end
  return {now, allowed, remaining, retry, reset, delay}
end
-- That none of them is blocked takes one look, and so does what they hold.
local states, blocks = {}, {}
for k = WIDTH, #KEYS, WIDTH do
  states[#states + 1], blocks[#blocks + 1] = KEYS[k - 1], KEYS[k]
end
local blocked = redis.call('EXISTS', unpack(blocks)) > 0
if STRINGS and tonumber(ARGV[3]) ~= 0 then
  local values = redis.call('MGET', unpack(states))
  for i = 1, #states do strings[states[i]] = values[i] end
end
local keys, item = 0, 0
local span = (#ARGV - 2) / #states
for a = 3, #ARGV, span do
  local bound = STRIDE > 5 and tonumber(ARGV[a + 5]) or 0
  local keep = span > STRIDE and tonumber(ARGV[a + STRIDE]) or 0
  local ok, allowed, remaining, retry, reset, delay = pcall(decide, blocked, keys, item, tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4]), bound, keep)
  if not ok then
    -- What one key holds must not fail the others; what fails all of them must.
    local why = type(allowed) == 'table' and allowed.err or tostring(allowed)
    if not string.find(why, 'WRONGTYPE', 1, true) then error(allowed, 0) end
    allowed = BROKEN
  end
  if allowed == BROKEN then remaining, retry, reset, delay = 0, 0, 0, 0 end
  local r = item * 5 + 1
  reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], reply[r + 5] = allowed, remaining, retry, reset, delay
  keys = keys + WIDTH
  item = item + 1
end
return reply
