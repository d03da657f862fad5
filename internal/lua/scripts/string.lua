-- A STRING "at:value:other:birth", and while blocked ":till:length". Other and birth
-- stay texts, since they are mostly copied.

-- STRINGs that were read in one go; false is one that does not exist, or is no
-- STRING: with GET, SET fails for that instead of replacing it.
local texts = {}

local function load(key)
  local v = texts[key]
  if v == nil then v = redis.call('GET', key) end
  at, value, other, birth, till, length, changed = 0, 0, '0', '0', 0, 0, false
  if not v then return true end
  local rest
  at, value, other, birth, rest = match(v, '^(%d+):(%d+):(%d+):(%d+)(.*)$')
  if not at then return false end
  at, value = at + 0, value + 0
  if rest ~= '' then
    till, length = match(rest, '^:(%d+):(%d+)$')
    if not till then return false end
    till, length = till + 0, length + 0
  end
  -- The clock stepped back.
  if at > now and birth + 0 > now then birth = today() end
  return true
end

-- The time to live is until the key is as if never used, and not blocked, at least 1 s:
-- as a number, which Redis prints whole. Without a reset it stays as it is.
local function save(key, reset)
  local v = (at == now and today() or int(at)) .. ':' .. int(value) .. ':' .. other .. ':' .. birth
  if till > now then v = v .. ':' .. int(till) .. ':' .. int(length) end
  if not reset then
    write('SET', key, v, 'KEEPTTL')
  elseif texts[key] == false then
    write('SET', key, v, 'PX', max(1000, ceil(max(reset, till - now) / 1000)), 'GET')
  else
    write('SET', key, v, 'PX', max(1000, ceil(max(reset, till - now) / 1000)))
  end
  if texts[key] ~= nil then texts[key] = v end
end
