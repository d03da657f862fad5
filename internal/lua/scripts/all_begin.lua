-- The steps of all algorithms, by their names in ARGV.
local steps = {}
