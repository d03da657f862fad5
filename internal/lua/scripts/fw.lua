-- Fixed window: value = units counted in the window in which at is.
local function step(n, write, cap, num, w)
  local start, begun, count = now - now % w, s.at - s.at % w, s.value
  local rebased = false
  if begun > now and begun - now <= w then
    start = begun
  elseif begun > now then
    rebased = true
  elseif begun < start then
    count = 0
  end
  local unused = count == 0
  local allowed, retry = 0, 0
  if count + n <= cap then
    count = count + n
    allowed = 1
  else
    retry = start + w - now
  end
  if write and (allowed == 1 or rebased) then
    if unused then s.birth = today() end
    s.at, s.value, s.other, s.changed = max(now, start), count, '0', true
  end
  return allowed, max(0, cap - count), retry, count > 0 and start + w - now or 0, 0
end

-- back
local function back(n, taken, of, cap, num, w)
  local start = taken - taken % w
  if now >= start + w or s.at - s.at % w ~= start then return 0 end
  n = min(n, s.value)
  s.value, s.changed = s.value - n, n > 0
  return n
end
