-- Heartbeat of a process. KEYS[1], SORTED SET: its id, score = the time of its last heartbeat,
-- and later than that where it lives for longer than others, because its heartbeats are rare.
-- KEYS[2], SORTED SET, which may be missing: those that sent one since a process saw Redis fail and
-- reached it again, score = when that was, and 0 for those who do not decide by it yet. Only
-- one that saw an outage makes it, so that no heartbeat of before that is in it.
-- ARGV: now, id, time to live in µs (0 deregisters), how much longer it lives, at most 10
-- times as long, and for one that is back and waits for others the time since it saw Redis
-- fail (0 for others, -1 for one that is not back yet), and how long it waits at most: 0 for one
-- that saw no failure and follows those who did. That neither makes the second set nor lets it live
-- longer, or processes that come one after the other would follow one another without end. Replies
-- with the number of processes alive, of those in the second set since that failure, and the
-- age of the first and the last of these.
local id, life, since = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[5])
if life == 0 then
  redis.call('ZREM', KEYS[1], id)
  return {redis.call('ZCARD', KEYS[1]), 0, 0, 0}
end
if since == 0 or tonumber(redis.call('ZSCORE', KEYS[1], id) or 0) < now then
  redis.call('ZADD', KEYS[1], int(now + tonumber(ARGV[4])), id)
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. int(now - life))
-- A heartbeat much later than now means that the clock has stepped back. Processes that
-- are alive are still counted, and dead ones are not counted for longer than others.
for _, other in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. int(now + 10 * life), '+inf', 'LIMIT', '0', '1000')) do
  redis.call('ZADD', KEYS[1], int(now), other)
end
local longest = redis.call('ZREVRANGE', KEYS[1], '0', '0', 'WITHSCORES')
redis.call('PEXPIRE', KEYS[1], int(math.max(1000, math.ceil((longest[2] - now + life) / 1000))))
if not KEYS[2] then
  return {redis.call('ZCARD', KEYS[1]), 0, 0, 0}
end
local from = since > 0 and int(now - since) or '-inf'
local waits = since > 0 and tonumber(redis.call('ZSCORE', KEYS[2], id) or 0) < now - since
local patience = math.ceil(ARGV[6] / 1000)
local makes = waits and patience > 0 or since < 0
if (waits or since == 0) and (makes or redis.call('ZCARD', KEYS[2]) > 0) then
  redis.call('ZADD', KEYS[2], int(now), id)
elseif since < 0 then
  redis.call('ZADD', KEYS[2], 'NX', '0', id)
end
-- A set that lives for longer is one of before the clock stepped back.
if makes or patience > 0 and redis.call('PTTL', KEYS[2]) > patience then
  redis.call('PEXPIRE', KEYS[2], int(patience))
end
local first = redis.call('ZRANGEBYSCORE', KEYS[2], from, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
local last = redis.call('ZREVRANGE', KEYS[2], '0', '0', 'WITHSCORES')
return {redis.call('ZCARD', KEYS[1]), redis.call('ZCOUNT', KEYS[2], from, '+inf'),
  math.max(0, now - tonumber(first[2] or now)), math.max(0, now - tonumber(last[2] or now))}
