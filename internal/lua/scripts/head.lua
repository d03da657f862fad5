-- Each item has one key, which holds all that its decision needs. What was read of it
-- stands in these, and is written by save() when it changed: see algo.State.
-- In one table: a function that a script makes pays for each local it uses.
local s = {at = 0, value = 0, other = '0', birth = '0', till = 0, length = 0, changed = false}

local floor, ceil, max, min, match = math.floor, math.ceil, math.max, math.min, string.match

-- now as a text, made once.
local stamp
local function today()
  stamp = stamp or int(now)
  return stamp
end

-- A state that is not ours is reported, not guessed at.
local BROKEN = -1
