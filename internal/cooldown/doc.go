// Package cooldown is what outbound clients share: until when a key must be left
// alone because its server asked for that ([Gates]), how long one call may wait
// ([Allowance]), and a map that a flood of keys neither fills nor empties ([Table]).
package cooldown
