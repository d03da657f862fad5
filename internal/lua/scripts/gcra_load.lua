-- GCRA. STRING "tat:f:s": theoretical arrival time in µs and f/s of one.
local function queued(key, cap, num, den)
  local v = redis.call('GET', key)
  if not v then return 0, false end
  local tat, frac, scale = string.match(v, '^(%d+):(%d+):(%d+)$')
  tat, frac, scale = tonumber(tat), tonumber(frac), tonumber(scale)
  if not tat then return nil end
  if scale ~= num and frac > 0 then tat, frac = tat + 1, 0 end
  if tat < now then return 0, false end
  local full = cap * den
  if tat - now > ceil(full / num) then return full, true end
  local level = (tat - now) * num + frac
  if level > full then return full, true end
  return level, false
end

local function store(key, level, num, ...)
  redis.call('SET', key, int(now + floor(level / num)) .. ':' .. int(level % num) .. ':' .. int(num), ...)
end
