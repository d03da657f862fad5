-- Gives back what was taken and not used. ARGV: now, a nonce, then per key its units, how
-- many were taken with them, when (0: just now, by any caller), the level that is full,
-- and the limit as it stands in a state. Units that were charged before the birth of the state
-- were charged to one that is lost: they are not given back. Replies with the units given back
-- per key.
local reply = {}
for i = 1, #KEYS do
  local a, key, v = 5 * i - 2, KEYS[i], nil
  if not LOG then v = redis.pcall('GET', key) end
  if type(v) == 'table' then
    if not string.find(v.err, 'WRONGTYPE', 1, true) then return v end
    reply[i] = 0
  else
    local units, of, taken = ARGV[a] + 0, ARGV[a + 1] + 0, ARGV[a + 2] + 0
    if taken == 0 and not LOG then of, taken = units, now end
    reply[i] = general('back', key, v, now, units, of, ARGV[a + 3] + 0, ARGV[a + 4], taken)
  end
end
return reply
