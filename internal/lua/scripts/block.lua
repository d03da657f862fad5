-- Blocks KEYS[1] for ARGV[2] µs from now; a longer block stays. ARGV 3 and 4: the level
-- that is full, and the limit as it stands in a state. Replies with the time left, or -1
-- if the key holds no state of ours.
local left, broken = general('block', KEYS[1], not LOG and redis.call('GET', KEYS[1]), now, ARGV[2] + 0, 0, ARGV[3] + 0, ARGV[4], 0, 0)
return {broken and -1 or left}
