-- Several limits for one request, all or nothing. ARGV: now, a nonce, then per item
-- its algorithm, cost, cap, num, den, the largest delay, and how much must remain.
-- Nothing is written before everything was decided: what would be waits in a queue.
local items, strings = {}, {}
for i = 1, #KEYS do
  local a = 7 * i - 4
  local kind = kinds[ARGV[a]]
  items[i] = {kind = kind, n = ARGV[a + 1] + 0, cap = ARGV[a + 2] + 0, num = ARGV[a + 3] + 0, den = ARGV[a + 4] + 0, bound = ARGV[a + 5] + 0, keep = ARGV[a + 6] + 0}
  if kind.strings then strings[#strings + 1] = KEYS[i] end
end
if #strings > 0 then
  local values = redis.call('MGET', unpack(strings))
  -- MGET returns nothing for a key of another type; GET returns the error.
  for i, key in ipairs(strings) do texts[key] = values[i] or redis.call('GET', key) end
end

local reply, all, broken = {now}, true, false
for i, it in ipairs(items) do
  local n, cap, num, den, bound, keep, step = it.n, it.cap, it.num, it.den, it.bound, it.keep, it.kind.step
  local allowed, remaining, retry, reset, delay = BROKEN, 0, 0, 0, 0
  if not it.kind.load(KEYS[i], den) then
    broken = true
  elseif s.till > now then
    allowed, remaining, retry, reset, delay = it.kind.blocked(n, cap, num, den, bound, keep)
  else
    local need = n
    if keep > 0 and n > 0 and select(2, step(0, false, cap, num, den, bound)) < n + keep then need = n + keep end
    allowed, remaining, retry, reset, delay = step(need, need > 0 and need == n, cap, num, den, bound)
  end
  if s.changed then it.kind.save(KEYS[i], reset, i - 1) end
  all = all and allowed == 1
  local r = i * 5 - 4
  reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], reply[r + 5] = allowed, remaining, retry, reset, delay
end
if all then
  for _, w in ipairs(writes) do redis.call(unpack(w)) end
  return reply
end
texts = {} -- what save() left there is not written now
for i, it in ipairs(items) do
  local r = i * 5 - 4
  if not broken then
    it.kind.load(KEYS[i], it.den)
    local _, remaining, _, reset
    if s.till > now then
      _, remaining, _, reset = it.kind.blocked(0, it.cap, it.num, it.den, it.bound, it.keep)
    else
      _, remaining, _, reset = it.kind.step(0, false, it.cap, it.num, it.den, it.bound)
    end
    reply[r + 2], reply[r + 4], reply[r + 5] = remaining, reset, 0
  elseif reply[r + 1] ~= BROKEN then
    reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], reply[r + 5] = 1, 0, 0, 0, 0
  end
end
return reply
