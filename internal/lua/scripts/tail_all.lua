-- Several limits for one request, all or nothing. ARGV: now, a nonce, then per item
-- its algorithm, cost, cap, num, den, the largest delay, and how much must remain.
local items, blocks, texts, keys = {}, {}, {}, 0
for a = 3, #ARGV, 7 do
  local kind = steps[ARGV[a]]
  items[#items + 1] = {
    step = kind.step, keys = keys, n = tonumber(ARGV[a + 1]),
    cap = tonumber(ARGV[a + 2]), num = tonumber(ARGV[a + 3]), den = tonumber(ARGV[a + 4]),
    bound = tonumber(ARGV[a + 5]), keep = tonumber(ARGV[a + 6]),
  }
  keys = keys + kind.width
  blocks[#blocks + 1] = KEYS[keys]
  if kind.strings then texts[#texts + 1] = KEYS[keys - 1] end
end
local blocked = redis.call('EXISTS', unpack(blocks)) > 0
if #texts > 0 then
  local values = redis.call('MGET', unpack(texts))
  for i, key in ipairs(texts) do
    -- What is no STRING looks like nothing: GET says so.
    strings[key] = values[i] or redis.call('GET', key)
  end
end

local function run(it, item, n, write)
  return it.step(KEYS, it.keys, item, n, it.cap, it.num, it.den, it.bound, write)
end

local reply, all, broken = {now}, true, false
for i, it in ipairs(items) do
  local n, need = it.n, it.n
  if it.keep > 0 and n > 0 then
    local _, left = run(it, i - 1, 0, false)
    if left and left < n + it.keep then need = n + it.keep end
  end
  local allowed, remaining, retry, reset, delay = run(it, i - 1, need, need > 0 and need == n)
  if allowed == BROKEN then
    broken = true
    remaining, retry, reset, delay = 0, 0, 0, 0
  else
    local until_ = blocked and tonumber(redis.call('GET', blocks[i]) or 0) or 0
    if until_ > now then allowed, retry = 0, max(retry, until_ - now) end
    all = all and allowed == 1
  end
  local r = (i - 1) * 5 + 1
  reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], reply[r + 5] = allowed, remaining, retry, reset, delay
end
if all and not broken then
  for _, w in ipairs(writes) do server.call(unpack(w)) end
  return reply
end
strings = {} -- a step may have put there what is not written now
for i, it in ipairs(items) do
  local r = (i - 1) * 5 + 1
  if not broken then
    local _, remaining, _, reset = run(it, i - 1, 0, false)
    reply[r + 2], reply[r + 4], reply[r + 5] = remaining, reset, 0
  elseif reply[r + 1] ~= BROKEN then
    reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4], reply[r + 5] = 1, 0, 0, 0, 0
  end
end
return reply
