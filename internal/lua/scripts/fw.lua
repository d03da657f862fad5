-- Fixed window: time is when the window ends, and y the units counted in it. A window of
-- another length goes on in the one in which it ends. The windows of a calendar come as a list of
-- where they begin, after the limit as it stands in a state: those around the client's time. A
-- decision by a clock for which there is none in the list is not made: 5.
local w, list = string.match(tail, '^:1:(%d+):0:(.*)$')
w = w + 0
local start, rebased = now - now % w, false
local usual, ended = start + w, c - c % w + w -- of the windows of now and of c
if list ~= '' then
  start, usual, ended = nil, nil, nil
  for at in string.gmatch(list, '%d+') do
    at = at + 0
    if at <= now then
      start = at
    elseif start and not usual then
      usual = at
    end
    if at > c and not ended then ended = at end
  end
  if not usual then
    if op == 'decide' then return -1, 5, 1 end
    start, usual, ended = 0, max(t, now), ended or now
  end
end
local ends, count = usual, y
if t <= start then
  count = 0
elseif t > ends and t - now <= 2 * w then
  ends = t -- The clock stepped back a little: this window has begun already.
elseif t > ends then
  rebased = true
end
local reset = count > 0 and ends - now or 0
local ahead = ends ~= usual and ends - now or nil

local function store(new)
  count, t, p, q, x, y = new, ends, 1, w, 0, new
  save(ends - now)
end

if op == 'block' then
  return block(a, reset)
elseif op == 'back' then
  if c < min(birth, now) or now >= ended or t ~= ended then return 0 end
  a = min(a, y)
  if a > 0 then
    y = y - a
    save()
  end
  return a
elseif a < 0 then
  -- A debt: what there is room for is charged, also while the key is blocked.
  local units = min(-a, full - count)
  if units > 0 then store(count + units) end
  return count, nil, nil, ahead
elseif left > 0 then
  -- The block ends further ahead than its length: the clock stepped back.
  if a > 0 and till - now > left then block(0, reset) end
  return -1 - count, 1, left, ahead
elseif count > b then
  if a > 0 and rebased then store(count) end
  return -1 - count, nil, nil, ahead
elseif a > 0 then
  local fit = min(c, floor((b - count) / a) + 1)
  store(count + fit * a)
  if fit < c then return count, 2, fit, ahead end
end
return count, nil, nil, ahead

-- step
local start, used, old = now - now % num, 0, false
rare = rare or num == 0 -- a calendar
if v and not rare then
  old = find(v, tail, 34, true) == 34 and number(sub(v, 1, 16))
  if old == start + num then
    used = number(sub(v, 34 + #tail))
    rare = not used
  else
    rare = not old or old > start
    old = false
  end
end
if rare then
elseif used > most then
  r = -1 - used
elseif cost == 0 then
  r = used
else
  r = used + cost
  if count > 1 then
    value = math.min(count, floor((most - used) / cost) + 1)
    r = used + value * cost
    if value < count then kind = 2 end
  end
  if old and used > 0 then
    text, from = r, 33 + #tail
  else
    local same, ends = v and sub(v, 17, 33) or format(':%010d%06d', floor(now / 1000000), now % 1000000), start + num
    text, ms = format('%010d%06d%s%s%.0f', floor(ends / 1000000), ends % 1000000, same, tail, r), floor((ends - now) / 1000) + 2000
  end
end
