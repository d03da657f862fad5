-- Several limits for each request, all or nothing, for one request after the other. ARGV: now,
-- or 0 for the server's clock, a nonce, and how many limits a request has; then, once for all requests or
-- for each, five numbers per limit, as decide.lua takes them, and before these the name of what
-- decides on it.
-- A request is decided before anything is written for it. Replies with now, and per request 1
-- when all of its limits had room, and per limit what decide.lua replies; then what is special, as there.
local find, sub, format, number, floor, ceil = string.find, string.sub, string.format, tonumber, math.floor, math.ceil
local now, call, n = ARGV[1] + 0, redis.call, ARGV[3] + 0
if now == 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local reply, size, more, own = {now}, 1, nil, #ARGV > 3 + 6 * n
-- What is written when all have room. A table that has its size when it is made takes less time.
local texts, lives, places = {false, false, false, false}, {false, false, false, false}, {false, false, false, false}
for last = 0, #KEYS - 1, n do
  local args, head, all, rare, key, v, r, r2, a = own and 6 * last - 2 or -2, size + 1, 1, false
  local found = call('MGET', unpack(KEYS, last + 1, last + n))
  reply[head], size = 0, head
  for i = 1, n do
    a, v = args + 6 * i, found[i]
    local name, cost, most, full, tail, num = ARGV[a], ARGV[a + 1] + 0, ARGV[a + 2] + 0, ARGV[a + 3], ARGV[a + 4], ARGV[a + 5] + 0
    -- A log, or no state of ours, is rare.
    local count, kind, value, text, ms, from = 1
    r2, rare = nil, not v and redis.pcall('GET', KEYS[last + i])
    -- steps
    if rare then break end
    texts[i], lives[i], places[i] = text, ms, from
    if r < 0 then all = 0 end
    size = size + 1
    reply[size] = r
    if r2 then
      size = size + 1
      reply[size] = r2
    end
  end
  if rare then
    -- Each limit is asked without a charge, and charged when all had room.
    -- generals
    all = 1
    local denied = {}
    for charges = 0, 1 do
      size = head
      for i = 1, n do
        a, key, v = args + 6 * i, KEYS[last + i], false
        local cost, width, kind, value, ahead, r3 = ARGV[a + 1] * charges, widths[ARGV[a]]
        if charges == 0 or cost > 0 and (all == 1 or denied[i]) then
          if width < 3 then v = redis.pcall('GET', key) end
          if type(v) == 'table' then v = '' end
          r, kind, value, ahead, r2, r3 =
            generals[ARGV[a]]('decide', key, v, now, cost, ARGV[a + 2] + 0, ARGV[a + 3] + 0, ARGV[a + 4], 1, last + i)
          if r < 0 or kind == 3 then all, denied[i] = 0, kind ~= 3 end
          reply[size + 1] = r
          if width > 1 then reply[size + 2] = r2 or 0 end
          if width > 2 then reply[size + 3] = r3 or 0 end
          if charges == 0 and (kind or ahead) then
            more = more or {}
            if kind then more[#more + 1] = {last + i, kind, value} end
            if ahead then more[#more + 1] = {last + i, 4, ahead} end
          end
        end
        size = size + width
      end
    end
  elseif all == 1 then
    for i = 1, n do
      key, v = KEYS[last + i], texts[i]
      if not v then -- a peek
      elseif places[i] then
        call('SETRANGE', key, places[i], v)
      elseif lives[i] then
        call('SET', key, v, 'PX', lives[i])
      else
        call('SET', key, v, 'KEEPTTL')
      end
    end
  else
    -- Those that had room are not charged.
    size = head
    for i = 1, n do
      a = args + 6 * i
      r = reply[size + 1]
      if r >= 0 then reply[size + 1] = r - ARGV[a + 1] end
      size = size + (ARGV[a] == 'swc' and 2 or 1) -- a log is rare
    end
  end
  reply[head] = all
end
if more then
  for _, m in ipairs(more) do
    for k = 1, 3 do
      size = size + 1
      reply[size] = m[k]
    end
  end
end
return reply
