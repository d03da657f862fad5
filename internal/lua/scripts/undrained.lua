local WIDTH = 1

-- What can be given back of n units: no more than is left of all that was taken
-- at a time, had the bucket drained alone; 0 for a key that is as if never used.
local function undrained(key, n, at, taken, cap, num, den)
  if redis.call('EXISTS', key) == 0 then return 0 end
  if at == 0 then return n * den end
  return min(n * den, taken * den - min(max(0, now - at), ceil(cap * den / num)) * num)
end
