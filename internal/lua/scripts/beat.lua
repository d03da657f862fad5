-- Heartbeat of a process. SORTED SET: its id, score = the time of its last heartbeat, and
-- later than that where it lives for longer than others, because its heartbeats are rare.
-- ARGV: now, id, time to live in µs, the time since it saw Redis fail, how much longer it
-- lives, at most 10 times as long; a time to live of 0 deregisters it. Replies with the number
-- of processes alive, of those whose heartbeat is newer than that failure, and the age of the
-- first and the last of these. After a failure the first heartbeat of a process counts.
local life, from = tonumber(ARGV[3]), now - tonumber(ARGV[4])
if life == 0 then
  redis.call('ZREM', KEYS[1], ARGV[2])
  return {redis.call('ZCARD', KEYS[1]), 0, 0, 0}
end
if from == now or tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2]) or 0) < from then
  redis.call('ZADD', KEYS[1], int(now + tonumber(ARGV[5])), ARGV[2])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. int(now - life))
-- A heartbeat much later than now means that the clock has stepped back. Processes that
-- are alive are still counted, and dead ones are not counted for longer than others.
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. int(now + 10 * life), '+inf', 'LIMIT', '0', '1000')) do
  redis.call('ZADD', KEYS[1], int(now), id)
end
local longest = redis.call('ZREVRANGE', KEYS[1], '0', '0', 'WITHSCORES')
redis.call('PEXPIRE', KEYS[1], int(math.max(1000, math.ceil((longest[2] - now + life) / 1000))))
local first = redis.call('ZRANGEBYSCORE', KEYS[1], int(from), '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
local all = redis.call('ZCARD', KEYS[1])
local later = all - redis.call('ZCOUNT', KEYS[1], '-inf', int(now))
local last = redis.call('ZREVRANGE', KEYS[1], int(later), int(later), 'WITHSCORES')
return {all, redis.call('ZCOUNT', KEYS[1], int(from), '+inf'),
  math.max(0, now - tonumber(first[2] or now)), math.max(0, now - tonumber(last[2] or now))}
