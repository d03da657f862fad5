local WIDTH = 1

-- What is left of n units since they were taken, had the bucket drained alone; 0
-- for a key that is as if never used.
local function undrained(key, n, taken, cap, num, den)
  if redis.call('EXISTS', key) == 0 then return 0 end
  return n * den - min(max(0, now - taken), ceil(cap * den / num)) * num
end
