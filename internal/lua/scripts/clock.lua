-- ARGV[1] is now in µs, or 0 for the server's clock, read once. Numbers stay below 2^53,
-- where doubles are exact; they are written with %.0f because tostring keeps only 14
-- digits.
local now = tonumber(ARGV[1])
if now == 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local function int(x) return string.format('%.0f', x) end
