package redislink

// Slot is the hash slot of an encoded id, which is the part of its keys that counts.
func Slot(id string) int { return int(crc16(id) % 16384) }

// crc16 is CRC-16/XMODEM, by which a cluster assigns keys to hash slots
// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
func crc16(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
