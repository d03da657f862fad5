// Package cooldown is what outbound clients share: the time until which no request may be
// sent to a key, because its server asked for that ([Gates]), how long one call may wait
// ([Allowance]), and a bounded map whose used entries a flood of keys cannot remove
// ([Table]).
package cooldown
