-- Gives back what was taken and not used. ARGV: now, a nonce, then per item its units, when
-- they were taken (0: just now, by whoever), how many were, cap, num, den, and for the log how its members are named and
-- the number of the first one. Replies with the units given back per item.
local reply, keys = {}, 0
for a = 3, #ARGV, 8 do
  local n = tonumber(ARGV[a])
  local ok, given = pcall(back, KEYS, keys, n, tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4]), tonumber(ARGV[a + 5]), ARGV[a + 6], tonumber(ARGV[a + 7]))
  if not ok then
    local why = type(given) == 'table' and given.err or tostring(given)
    if not string.find(why, 'WRONGTYPE', 1, true) then error(given, 0) end
    given = 0
  end
  reply[#reply + 1] = given
  keys = keys + WIDTH
end
return reply
