-- Sliding window counter: time is when the window ends, y the units counted in it, and x
-- those of the window before. A window of another length goes on in the one in which it
-- ends.
local w = string.match(tail, '^:1:(%d+):') + 0
local start, rebased = now - now % w, false
local ends, cur, prev = start + w, y, x
if t <= start - w then
  cur, prev = 0, 0
elseif t <= start then
  prev = cur -- One by one: in the Lua of miniredis, prev would become the new cur.
  cur = 0
elseif t > ends and t - now <= 2 * w then
  ends = t -- The clock stepped back a little: this window has begun already.
elseif t > ends then
  -- The two windows become the next one and the current.
  rebased, ends = true, ends + w
end
prev = min(prev, floor(9007199254740991 / w))
local over = prev * min(w, ends - now)
local room = full - cur - ceil(over / w)
local reset = cur > 0 and ends - now + w or prev > 0 and ends - now or 0
local ahead = ends ~= start + w and ends - now or nil

local function store(new)
  cur, t, p, q, x, y = new, ends, 1, w, prev, new
  save(ends - now + w)
end

if op == 'block' then
  return block(a, reset)
elseif op == 'back' then
  local of = c - c % w + w
  if c < min(birth, now) or now >= of + w then return 0 end
  if t == of then
    a = min(a, y)
    y = y - a
  elseif t == of + w then
    a = min(a, x)
    x = x - a
  else
    return 0
  end
  if a > 0 then save() end
  return a
elseif a < 0 then
  -- A debt: what there is room for is charged, also while the key is blocked.
  -- It was used b µs ago, maybe in the window before.
  local units, before = 0, 0
  if now - b >= ends - w then
    units = max(0, min(-a, room))
  elseif now - b >= ends - 2 * w then
    before = max(0, min(-a, full - prev, floor((full - cur) * w / min(w, ends - now)) - prev))
  end
  prev = prev + before
  if units + before > 0 then store(cur + units) end
  return cur, nil, nil, ahead, prev
elseif left > 0 then
  -- The block ends further ahead than its length: the clock stepped back.
  if a > 0 and till - now > left then block(0, reset) end
  return -1 - cur, 1, left, ahead, prev
elseif cur > b or over > (b - cur) * w then
  if a > 0 and rebased then store(cur) end
  return -1 - cur, nil, nil, ahead, prev
elseif a > 0 then
  local fit = min(c, floor((room - full + b) / a) + 1)
  store(cur + fit * a)
  if fit < c then return cur, 2, fit, ahead, prev end
end
return cur, nil, nil, ahead, prev

-- step
local start, cur, prev, place, old = now - now % num, 0, 0, nil, false
if v and not rare then
  old = find(v, tail, 34, true) == 34 and number(sub(v, 1, 16))
  if old then
    prev, cur = string.match(v, '^(%d+):(%d+)$', 34 + #tail)
    place = cur and #v - #cur
    prev, cur = number(prev), number(cur)
  end
  if not cur or not old or old > start + num or old > start and old < start + num then
    rare = true
  elseif old <= start - num then
    old, cur, prev = false, 0, 0
  elseif old <= start then
    prev = cur
    old, cur = false, 0
  end
end
local over = not rare and prev * (start + num - now)
if rare then
elseif prev > 9007199254740991 / num then
  rare = true
elseif cur > most or over > (most - cur) * num then
  r, r2 = -1 - cur, prev
elseif cost == 0 then
  r, r2 = cur, prev
else
  r, r2 = cur + cost, prev
  if count > 1 then
    value = math.min(count, floor((most - cur - ceil(over / num)) / cost) + 1)
    r = cur + value * cost
    if value < count then kind = 2 end
  end
  if old and cur > 0 then
    text, from = r, place
  else
    local same, ends = v and sub(v, 17, 33) or format(':%010d%06d', floor(now / 1000000), now % 1000000), start + num
    text = format('%010d%06d%s%s%.0f:%.0f', floor(ends / 1000000), ends % 1000000, same, tail, prev, r)
    ms = floor((ends + num - now) / 1000) + 2000
  end
end
