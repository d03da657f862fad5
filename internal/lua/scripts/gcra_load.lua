-- GCRA. STRING "tat" or "tat:f:s": theoretical arrival time in µs, and f/s of one.
local function queued(key, cap, num, den)
  local v = get(key)
  if not v then return 0, false end
  local at, frac = tonumber(v), 0
  if not at then
    local scale
    at, frac, scale = string.match(v, '^(%d+):(%d+):(%d+)$')
    at, frac, scale = tonumber(at), tonumber(frac), tonumber(scale)
    if not at then return nil end
    if scale ~= num and frac > 0 then at, frac = at + 1, 0 end
  end
  if at < now then return 0, false end
  local full = cap * den
  if at - now > ceil(full / num) then return full, true end
  local level = (at - now) * num + frac
  if level > full then return full, true end
  return level, false
end

local function tat(level, num)
  local frac = level % num
  if frac == 0 then return int(now + level / num) end
  return string.format('%.0f:%.0f:%.0f', now + floor(level / num), frac, num)
end
