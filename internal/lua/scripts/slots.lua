-- Slots of what may be in flight at once. KEYS: who holds one and until when, who
-- waits since when, and until when those are believed to wait (SORTED SETs).
-- ARGV: now, a nonce, how many slots, how many of them are kept for critical
-- callers, time to live of a slot and of a place in the queue in µs (0: don't
-- wait), 1 for critical callers, 1 when they may have asked before, and the callers.
-- Replies with now, how many are held, how many callers are ahead of the first one
-- that has to wait, the time until the next slot ends, and 1 or 0 for each caller.
local held, queue, alive = KEYS[1], KEYS[2], KEYS[3]
local most, keep, ttl, patience = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local critical, again = ARGV[7] == '1', ARGV[8] == '1'
-- Critical callers wait before all others.
local front = critical and 4000000000000000 or 0

local count, waiting = redis.call('ZCARD', held), redis.call('ZCARD', queue)
-- Slots that have ended are taken out before anybody is refused, or counted.
if count > 0 and (#ARGV < 9 or waiting > 0 or count + #ARGV - 8 > most - keep) then
  redis.call('ZREMRANGEBYSCORE', held, '-inf', int(now))
  count = redis.call('ZCARD', held)
end
if waiting > 0 then
  local dead = redis.call('ZRANGEBYSCORE', alive, '-inf', int(now), 'LIMIT', '0', '1000')
  if #dead > 0 then
    redis.call('ZREM', queue, unpack(dead))
    redis.call('ZREM', alive, unpack(dead))
    waiting = redis.call('ZCARD', queue)
  end
end

local reply, ahead, queued, granted = {now, 0, 0, 0}, nil, false, false
for a = 9, #ARGV do
  local caller = ARGV[a]
  local rank = waiting > 0 and redis.call('ZRANK', queue, caller)
  local place = rank or critical and waiting > 0 and redis.call('ZCOUNT', queue, '-inf', '(0') or waiting
  local free = most - count
  if not critical then free = free - keep end
  local mine = again and redis.call('ZSCORE', held, caller)
  if mine or place < free then
    redis.call('ZADD', held, int(now + ttl), caller)
    granted = true
    if not mine then count = count + 1 end
    if rank then
      redis.call('ZREM', queue, caller)
      redis.call('ZREM', alive, caller)
      waiting = waiting - 1
    end
    reply[#reply + 1] = 1
  else
    ahead = ahead or place - free
    if patience > 0 then
      if not rank then
        redis.call('ZADD', queue, int(now - front), caller)
        waiting = waiting + 1
      end
      redis.call('ZADD', alive, int(now + patience), caller)
      queued = true
    end
    reply[#reply + 1] = 0
  end
end
if granted then redis.call('PEXPIRE', held, int(math.max(1000, math.ceil(ttl / 1000)))) end
if queued then
  redis.call('PEXPIRE', queue, int(math.max(1000, math.ceil(patience / 1000))))
  redis.call('PEXPIRE', alive, int(math.max(1000, math.ceil(patience / 1000))))
end
reply[2], reply[3] = count, ahead or 0
if ahead then
  local first = redis.call('ZRANGE', held, 0, 0, 'WITHSCORES')
  if first[2] then reply[4] = tonumber(first[2]) - now end
end
return reply
