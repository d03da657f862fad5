-- Takes a process out of the sums that does not report any more, or that leaves. KEYS as
-- for the report, the last one that of the process. ARGV: now, its number, the time to
-- live in µs (0: it leaves), and the most fields to take out. Replies with 0 if it
-- lives, 1 when it is out, and 2 when there is more of it.
local sums, processes, mine, number = KEYS[1], KEYS[2], KEYS[3], ARGV[2]
local life = tonumber(ARGV[3])
local heard = redis.call('ZSCORE', processes, number)
if life > 0 and (not heard or tonumber(heard) >= now - life) then return {0} end

local some = redis.call('HRANDFIELD', mine, ARGV[4], 'WITHVALUES')
for i = 1, #some, 2 do
  local left = (tonumber(redis.call('HGET', sums, some[i]) or 0) or 0) - (tonumber(some[i + 1]) or 0)
  if left > 0 then
    redis.call('HSET', sums, some[i], int(left))
  else
    redis.call('HDEL', sums, some[i])
  end
  redis.call('HDEL', mine, some[i])
end
if redis.call('EXISTS', mine) == 1 then
  -- If this process stops, another one that finds it dead continues.
  if heard then redis.call('ZADD', processes, 0, number) end
  return {2}
end
redis.call('ZREM', processes, number)
return {1}
