-- Several limits for one request, all or nothing. ARGV: now, a nonce, then per key its
-- algorithm, and what that takes. First every limit is asked without a charge. When all
-- of them have room, each is charged. Replies with now, 1 when all had room, and per key
-- how many numbers follow, and the reply of its algorithm.
local replies, all = {}, 1
for i = 1, #KEYS do
  local a = 6 * i - 3
  local r = kinds[ARGV[a]]({KEYS[i]}, {int(now), ARGV[2], '0', ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5]})
  if r.err then return r end
  if r[2] < 0 or r[#r - 1] == 3 and #r > 4 then all = 0 end
  replies[i] = r
end
local reply = {now, all}
for i = 1, #KEYS do
  local a, r = 6 * i - 3, replies[i]
  if all == 1 and ARGV[a + 1] ~= '0' then
    r = kinds[ARGV[a]]({KEYS[i]}, {int(now), ARGV[2], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5]})
  end
  reply[#reply + 1] = #r - 1
  for k = 2, #r do reply[#reply + 1] = r[k] end
end
return reply
