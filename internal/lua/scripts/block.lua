-- Blocks KEYS[1] for ARGV[2] µs from now; a longer block stays. ARGV 3 to 5: cap, num,
-- den. Replies with the time left.
local cap, num, den = ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0
if not load(KEYS[1], den) then return {BROKEN} end
local left, new = max(0, min(s.till - now, s.length)), ARGV[2] + 0
if new > left then
  left, s.till, s.length = new, now + new, new
elseif s.till - now > left then
  s.till = now + left
else
  return {left}
end
local _, _, _, reset = step(0, false, cap, num, den, 0)
save(KEYS[1], reset, 0)
return {left}
