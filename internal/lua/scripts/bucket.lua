-- Token bucket, leaky buckets and GCRA: time is when the bucket is empty (when all tokens
-- are there), and y what it lacks then, in units of 1/den, of which num drain per µs. x
-- is the burst.
local num, den, burst = string.match(tail, '^:(%d+):(%d+):(%d+):')
num, den, burst = num + 0, den + 0, burst + 0
local level, own, rebased = 0, x * q, false
local function store(new)
  -- What was charged at another rate has drained at that one: it is not given back.
  if p ~= num or q ~= den then birth = now end
  t, p, q, x = now + ceil(new / num), num, den, burst
  y = (t - now) * num - new
end

if t > now then
  local drains = (t - now) * p
  level = drains - y
  if drains > 9007199254740991 or level > own then level, rebased = own, true end
end
if op == 'back' then
  -- The state keeps its burst: that of the units may be an earlier one. At most what has not drained yet of all the
  -- units that were taken together.
  if c < min(birth, now) or level <= 0 or p ~= num or q ~= den then return 0 end
  local give = min(a * den, level, b * den - min(max(0, now - c), ceil(full / num)) * num)
  if give <= 0 then return 0 end
  burst = x
  store(level - give)
  save()
  return floor(give / den)
end

local has, other, faster = level, level > 0 and (p ~= num or q ~= den), false
if other then
  -- Whole units carry over. They may be more than full: see algo.Params.level.
  level, faster = min(ceil(level / q), floor(9007199254740991 / den)) * den, num * q > p * den
  -- For a slower limit: see algo.Params.seen.
  local most = a < 0 and full or b
  if op == 'decide' and level > most and not faster then
    level = min(level, most + ceil((has - floor(most / den) * q) / p) * num)
  end
end

if op == 'block' then
  return block(a, ceil(level / num))
elseif a < 0 then
  -- A debt: what there is room for is charged, also while the key is blocked.
  local units = min(-a, floor((full - level) / den))
  if units > 0 then
    level = level + units * den
    store(level)
    save(t - now)
  end
  return level
elseif left > 0 then
  -- The block ends further ahead than its length: the clock stepped back.
  if a > 0 and till - now > left then block(0, ceil(level / num)) end
  return -1 - level, 1, left
elseif level > b then
  local reply = -1 - level
  if a > 0 and (faster or rebased) then
    if faster then
      burst = max(burst, ceil(level / den))
    else
      level, num, den, burst = own, p, q, x
    end
    store(level)
    save(t - now)
  end
  return reply
end
if a > 0 then
  local fit = min(c, floor((b - level) / a) + 1)
  level = level + fit * a
  store(level)
  save(t - now)
  if fit < c then return level, 2, fit end
end
return level

-- step
local level, empty = 0, false
if v and not rare then
  empty = find(v, tail, 34, true) == 34 and number(sub(v, 1, 16))
  if not empty then
    rare = true
  elseif empty > now then
    level = (empty - now) * num
    if num > 1 then level = level - (number(sub(v, 34 + #tail)) or 0) end
    rare = level > most and level > full + 0
  end
end
if rare then
elseif level > most then
  r = -1 - level
elseif cost == 0 then
  r = level
else
  r = level + cost
  if count > 1 then
    value = math.min(count, floor((most - level) / cost) + 1)
    r = level + value * cost
    if value < count then kind = 2 end
  end
  local new = now + (num > 1 and ceil(r / num) or r)
  -- While the second stays the same, so do the first ten digits and the time to live. Redis takes longer for the texts
  -- of numbers that it makes itself, and for those of floating-point numbers.
  local second = floor(new / 1000000)
  if not empty or second ~= floor(empty / 1000000) then
    ms = floor((new - now) / 1000) + 2000
  end
  if ms or num > 1 then
    local same = empty and sub(v, 17, 33) or format(':%010d%06d', floor(now / 1000000), now % 1000000)
    local lacks = num > 1 and format('%.0f', (new - now) * num - r) or '0'
    text = format('%010d%06d%s%s%s', second, new - second * 1000000, same, tail, lacks)
  else
    text, from = format('%06d', new - second * 1000000), '10'
  end
end
