-- ARGV: now in µs (0: the server's clock), a nonce, then per item its cost, how
-- many ask for that, cap, num, den (and the largest delay, for shaping). KEYS: per item its state, and
-- the key that blocks it. Numbers stay below 2^53, where doubles are exact; they
-- are written with %.0f because tostring keeps only 14 digits.
local now = tonumber(ARGV[1])
if now == 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

local function int(x) return string.format('%.0f', x) end

-- The time to live in ms: until the key is as if never used, at least 1 s.
local function ttl(us) return int(max(1000, ceil(us / 1000))) end

-- A state that is not ours is reported, not guessed at.
local BROKEN = -1
