-- Ends the block of KEYS[1], whatever its algorithm, and keeps what was counted and the time to live.
-- Replies with 1 if there was a block that had not ended, 0 if there was none, and -1 if the
-- key holds no state of ours.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return {0} end
if kind == 'zset' then
  local block = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(0', 'WITHSCORES')
  if not block[1] then return {0} end
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(0')
  return {-block[2] > now and 1 or 0}
end
local v = kind == 'string' and redis.call('GET', KEYS[1]) or ''
local used, till, rest = string.match(v, '^(%d+:%d+):(%d+):%d+(:%d+:%d+:%d+:%d+)$')
if used then
  if tonumber(string.sub(used, 1, 16)) == 0 then
    redis.call('DEL', KEYS[1])
  else
    redis.call('SET', KEYS[1], used .. rest, 'KEEPTTL')
  end
  return {till + 0 > now and 1 or 0}
end
return {string.find(v, '^%d+:%d+:%d+:%d+:%d+:%d+$') and 0 or -1}
