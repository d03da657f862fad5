-- Each item has one key, which holds all that its decision needs. What was read of it
-- stands in these, and is written by save() when it changed: see algo.State.
local at, value, other, birth, till, length, changed

local floor, ceil, max, min, match = math.floor, math.ceil, math.max, math.min, string.match

-- now as a text, made once.
local stamp
local function today()
  stamp = stamp or int(now)
  return stamp
end

-- A state that is not ours is reported, not guessed at.
local BROKEN = -1
