-- Sliding window counter: value = units counted in the window in which at is, other =
-- those of the window before.
local function step(n, write, cap, num, w)
  local start, begun = now - now % w, s.at - s.at % w
  local cur, old = s.value, s.other
  local rebased = false
  if begun > now and begun - now <= w then
    start = begun
  elseif begun > now then
    rebased = true
    start = start + w
  elseif begun == start - w then
    old = int(cur) -- in two steps: miniredis's Lua evaluates the second after the first
    cur = 0
  elseif begun < start then
    cur, old = 0, '0'
  end
  local when = max(now, start)
  local left, ahead = w - (when - start), when - now
  local most = floor(9007199254740991 / w)
  local prev = old + 0
  if prev > most then prev, old = most, int(most) end
  local room = cap - n - cur
  local unused = cur == 0 and prev == 0

  local allowed, retry = 0, 0
  if room >= 0 and prev * left <= room * w then
    allowed = 1
    cur = cur + n
  elseif room >= 0 then
    retry = ahead + left - floor(room * w / prev)
  else
    retry = ahead + left + w - floor(max(0, cap - n) * w / min(cur, most))
  end
  local reset = 0
  if cur > 0 then
    reset = ahead + left + w
  elseif prev > 0 then
    reset = ahead + left
  end
  if write and (allowed == 1 or rebased) then
    if unused then s.birth = today() end
    s.at, s.value, s.other, s.changed = when, cur, old, true
  end
  return allowed, max(0, cap - cur - ceil(prev * left / w)), retry, reset, 0
end

-- back
local function back(n, taken, of, cap, num, w)
  local start, begun = taken - taken % w, s.at - s.at % w
  if now >= start + 2 * w then return 0 end
  if begun == start then
    n = min(n, s.value)
    s.value = s.value - n
  elseif begun == start + w then
    n = min(n, s.other + 0)
    s.other = int(s.other - n)
  else
    return 0
  end
  s.changed = n > 0
  return n
end
