-- Decides on KEYS. ARGV: now in µs, or 0 for the server's clock, read once; a nonce;
-- then five numbers, once for all keys or for each: what is charged (0: a peek; below 0:
-- a debt of so many units), up to which level a request is admitted (of a debt: how many µs
-- ago it was used), the level that is full, the limit as it stands in a state, and Num or the window. Then for each key how
-- many callers ask for that, where any are several; and one more where a key is there
-- more than once.
-- Replies with now, and per key the level that is left, or -1 - level when all callers
-- were denied: of a counter and a log with more numbers. Then what is special, three
-- numbers each: the key, and 1: is blocked for so long; 2: so many callers were
-- admitted; 3: holds no state of ours; 4: its window ends after so long.
-- The function general decides what is rare. It uses only its arguments, because a function
-- that is made in each run costs time for each local of the script that it uses.
local find, sub, format, number, floor, ceil = string.find, string.sub, string.format, tonumber, math.floor, math.ceil
local now, call, n = ARGV[1] + 0, redis.call, #KEYS
if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local cost, most, full, tail, num = ARGV[3] + 0, ARGV[4] + 0, ARGV[5], ARGV[6], ARGV[7] + 0
local own, each, counts, v, values = false, false, #ARGV > 7 and 7
if n > 1 then
  own = #ARGV > 8 + n
  counts = own and 5 * n + 2 or 7
  each = cost == 0 or #ARGV > counts + n
  if #ARGV == counts then counts = false end
end
if LOG then
  v = false
elseif n == 1 then
  v = call('GET', KEYS[1])
elseif not each then
  values = call('MGET', unpack(KEYS)) -- a key of another type is nil: see below
end
local reply, more = {now}, nil
for i = 1, n do
  local key, count = KEYS[i], 1
  if values then
    v = values[i]
  elseif n > 1 and not LOG then
    v = redis.pcall('GET', key)
    if type(v) == 'table' then v = '' end -- no state of ours
  end
  if own then
    local a = 5 * i - 2
    cost, most, full, tail, num = ARGV[a] + 0, ARGV[a + 1] + 0, ARGV[a + 2], ARGV[a + 3], ARGV[a + 4] + 0
  end
  if counts then count = ARGV[counts + i] + 0 end
  -- What a step decides: whether it is rare, or the reply and what to write. A text is a part of
  -- the state from a place on, or a whole one, with a time to live or with that which it has.
  local rare, kind, value, ahead, r, r2, r3, text, ms, from = cost < 0
  -- step
  if rare and values and not v then
    v = redis.pcall('GET', key)
    if type(v) == 'table' then v = '' end
  end
  if rare then
    r, kind, value, ahead, r2, r3 = general('decide', key, v, now, cost, most, full + 0, tail, count, i)
  elseif from then
    call('SETRANGE', key, from, text)
  elseif text and not ms then
    call('SET', key, text, 'KEEPTTL')
  elseif text and (v or n == 1) then
    call('SET', key, text, 'PX', ms)
  elseif text then
    -- The key does not exist or, where MGET read it, is of another type, which stays as it is.
    if not call('SET', key, text, 'PX', ms, 'NX') then r, kind, value = 0, 3, 0 end
  end
  if WIDTH == 1 then
    reply[i + 1] = r
  else
    reply[#reply + 1] = r
    reply[#reply + 1] = r2 or 0
    if WIDTH == 3 then reply[#reply + 1] = r3 or 0 end
  end
  if kind or ahead then
    more = more or {}
    if kind then more[#more + 1] = {i, kind, value} end
    if ahead then more[#more + 1] = {i, 4, ahead} end
  end
end
if more then
  for _, m in ipairs(more) do
    for k = 1, 3 do reply[#reply + 1] = m[k] end
  end
end
return reply
