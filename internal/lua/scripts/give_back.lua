-- Gives back what was taken and not used. ARGV: now, a nonce, then per item its units, when
-- they were taken (0: just now, by any caller), how many were, cap, num, den, and for the log
-- how its members are named and the number of the first one. Replies with the units given
-- back per item.
local function give(key, n, taken, of, cap, num, den, name, first)
  if not load(key, den) then return 0 end
  -- What was charged before the state was born is lost with that to which it was charged.
  if taken == 0 then
    of = n
    if STRINGS then taken = now else taken = nil end
  elseif taken < s.birth + 0 then
    return 0
  end
  local given = back(n, taken, of, cap, num, den, name, first)
  if s.changed then save(key) end
  return given
end

local reply, a = {}, 3
for i = 1, #KEYS do
  local ok, given = pcall(give, KEYS[i], ARGV[a] + 0, ARGV[a + 1] + 0, ARGV[a + 2] + 0, ARGV[a + 3] + 0, ARGV[a + 4] + 0, ARGV[a + 5] + 0, ARGV[a + 6], ARGV[a + 7] + 0)
  if not ok then
    local why = type(given) == 'table' and given.err or tostring(given)
    if not string.find(why, 'WRONGTYPE', 1, true) then error(given, 0) end
    given = 0
  end
  reply[i], a = given, a + 8
end
return reply
