-- What is learnt of the quotas of one key. STRING: seven numbers of each, separated by colons:
-- name, limit, window, stretch, time of the last cut, taken, until when that counts. ARGV: now,
-- time to live in ms, and these numbers, with the age of the cut and what is left of the time;
-- a time to live of 0 only reads. Replies with the same numbers.
local life = tonumber(ARGV[2])
if life > 0 then
  local v = {}
  for i = 3, #ARGV do
    local x, field = tonumber(ARGV[i]), (i - 3) % 7
    if field == 4 then x = now - x elseif field == 6 then x = now + x end
    v[#v + 1] = int(x)
  end
  redis.call('SET', KEYS[1], table.concat(v, ':'), 'PX', int(life))
end
local out = {}
for x in string.gmatch(redis.call('GET', KEYS[1]) or '', '%-?%d+') do
  x = tonumber(x)
  local field = #out % 7
  if field == 4 then x = math.max(0, now - x) elseif field == 6 then x = math.max(0, x - now) end
  out[#out + 1] = x
end
return out
