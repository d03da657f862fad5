-- Token bucket, leaky buckets and GCRA: value = the level at a time, or of a token
-- bucket what that leaves free, in units of 1/other.
local function filled(cap, num, den)
  if s.at == 0 then return 0, false end
  local full, level, scale = cap * den, s.value, s.other + 0
  if scale ~= den then
    level = TOKENS and floor(level / scale) or ceil(level / scale)
    level = min(level, cap) * den
  end
  level = min(level, full)
  if TOKENS then level = full - level end
  local fill = ceil(full / num)
  level = max(0, level - max(-fill, min(now - s.at, fill)) * num)
  if s.at - now > fill or level > full then return full, true end
  return level, false
end

local function fill(level, cap, den)
  if s.other + 0 ~= den then s.other = int(den) end
  s.at, s.value, s.changed = now, TOKENS and cap * den - level or level, true
end

local function step(n, write, cap, num, den, bound)
  local full, cost = cap * den, n * den
  local level, rebased = filled(cap, num, den)
  local allowed, retry, delay = 0, 0, 0
  local over = level + cost - full
  if over > 0 then retry = ceil(over / num) end
  if SHAPING then
    delay = ceil(level / num)
    if bound > 0 and delay > bound then retry = max(retry, delay - bound) end
  end
  if retry > 0 then
    delay = 0
  else
    if write and level == 0 then s.birth = today() end
    level = level + cost
    allowed = 1
  end
  if write and (allowed == 1 or rebased) then fill(level, cap, den) end
  return allowed, floor((full - level) / den), retry, ceil(level / num), delay
end

-- back
-- Of n units that were taken no more than is left of all that was taken with them, had
-- the bucket drained alone.
local function back(n, taken, of, cap, num, den)
  local level = filled(cap, num, den)
  local give = min(n * den, level, of * den - min(max(0, now - taken), ceil(cap * den / num)) * num)
  if give <= 0 then return 0 end
  fill(level - give, cap, den)
  return floor(give / den)
end
