-- Takes a process out of the sums that does not report any more, or that leaves. KEYS as
-- for the report, the last one that of the process. ARGV: now, its number, 0 if it leaves
-- and 1 if it is dead, and the most fields to take out. Replies with 0 if it
-- lives, 1 when it is out, and 2 when there is more of it, and the number of another one that is dead, or 0.
local sums, processes, mine, number = KEYS[1], KEYS[2], KEYS[3], ARGV[2]
local lives = redis.call('ZSCORE', processes, number)
if ARGV[3] == '1' and (not lives or tonumber(lives) >= now) then return {0, 0} end

local era, begun = redis.call('HGET', sums, ''), redis.call('HGET', mine, '')
if begun and begun == era then
  local some, at = {}, '0'
  repeat
    local page = redis.call('HSCAN', mine, at, 'COUNT', ARGV[4])
    at = page[1]
    for _, v in ipairs(page[2]) do some[#some + 1] = v end
  until at == '0' or #some >= 2 * ARGV[4]
  for i = 1, #some, 2 do
    if some[i] ~= '' then
      local left = (tonumber(redis.call('HGET', sums, some[i]) or 0) or 0) - (tonumber(some[i + 1]) or 0)
      if left > 0 then
        redis.call('HSET', sums, some[i], int(left))
      else
        redis.call('HDEL', sums, some[i])
      end
      redis.call('HDEL', mine, some[i])
    end
  end
  if redis.call('HLEN', mine) > 1 then
    -- If this process stops, another one that finds it dead continues.
    if lives then redis.call('ZADD', processes, 0, number) end
    return {2, 0}
  end
end
redis.call('DEL', mine)
redis.call('ZREM', processes, number)
-- Where Redis has lost what this one had in the sums, a new era begins with the next report.
if lives and not begun or redis.call('EXISTS', processes) == 0 then redis.call('DEL', sums) end
local dead = redis.call('ZRANGEBYSCORE', processes, '-inf', '(' .. int(now), 'LIMIT', '0', '1')
return {1, tonumber(dead[1] or 0)}
