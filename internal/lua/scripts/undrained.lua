-- What is left of n units since they were taken, had the bucket drained alone.
local function undrained(n, taken, cap, num, den)
  return n * den - min(max(0, now - taken), ceil(cap * den / num)) * num
end
