package guarantee

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Rate is in bits a second.
type Rate int64

// Bytes is a number of bytes on the wire, with preamble and gap.
type Bytes int64

// Limits of a guarantee. Values beyond them are mistaken units far more often than wishes.
const (
	MinRate  Rate  = 1_000_000
	MaxRate  Rate  = 1_000_000_000_000
	MaxBurst Bytes = 1_000_000_000
	// MinFrame is the longest Ethernet frame with 1,500 bytes of IP, on the wire.
	MinFrame Bytes = 1_538
)

// In returns the bytes that a link of this rate sends in a time, rounded up.
func (r Rate) In(time time.Duration) Bytes {
	const byteNanos = 8_000_000_000
	// A rate has at most 40 bits and a time below 250 ms 28, so nothing overflows.
	return Bytes((int64(r)*int64(time) + byteNanos - 1) / byteNanos)
}

// Time returns the time that the rate needs for a number of bytes, rounded up.
func (b Bytes) Time(r Rate) time.Duration {
	const byteNanos = 8_000_000_000
	whole, rest := int64(b)/int64(r), int64(b)%int64(r)
	return time.Duration(whole*byteNanos + (rest*byteNanos+int64(r)-1)/int64(r))
}

// String returns the rate as tailbound reads it: "2Gbit/s".
func (r Rate) String() string {
	return inUnits(int64(r), "bit/s", "kbit/s", "Mbit/s", "Gbit/s")
}

// String returns the number as tailbound reads it: "70KB".
func (b Bytes) String() string {
	return inUnits(int64(b), "B", "KB", "MB", "GB")
}

// inUnits prints a value exactly, in the largest unit that leaves a whole number.
func inUnits(value int64, units ...string) string {
	unit := 0
	for value != 0 && value%1000 == 0 && unit+1 < len(units) {
		value /= 1000
		unit++
	}
	return strconv.FormatInt(value, 10) + units[unit]
}

// whole returns the value of a quantity that counts whole units of something.
func whole(name, unit string, quantity resource.Quantity) (int64, error) {
	value, exact := quantity.AsInt64()
	if exact {
		return value, nil
	}
	text := quantity.String()
	if text != "" && text[len(text)-1] == 'm' {
		return 0, fmt.Errorf("%s %q is in thousandths of %s: write %q for millions", name, text, unit, text[:len(text)-1]+"M")
	}
	return 0, fmt.Errorf("%s %q is not a whole number of %ss", name, text, unit)
}

// meant proposes a text with a suffix for a number that has none.
func meant(text, suffix string) string {
	if value, err := strconv.ParseInt(text, 10, 64); err != nil || value <= 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", text+suffix)
}

// ParseRate reads a bandwidth: a quantity of bits a second with a decimal suffix, such as "2G".
func ParseRate(name string, quantity resource.Quantity) (Rate, error) {
	value, err := whole(name, "a bit a second", quantity)
	text := quantity.String()
	switch {
	case err != nil:
		return 0, err
	case value < int64(MinRate):
		return 0, fmt.Errorf("%s %q is %s, and the least is %s: it counts bits a second%s",
			name, text, Rate(value), MinRate, meant(text, "M"))
	case value > int64(MaxRate):
		return 0, fmt.Errorf("%s %q is more than %s: it counts bits a second, such as \"2G\"", name, text, MaxRate)
	case quantity.Format == resource.BinarySI && text[len(text)-1] == 'i':
		return 0, fmt.Errorf("%s %q counts in powers of 1,024, and links do not: write %q", name, text, text[:len(text)-1])
	}
	return Rate(value), nil
}

// ParseBurst reads a burst: a quantity of bytes, such as "70k" or "64Ki".
func ParseBurst(name string, quantity resource.Quantity) (Bytes, error) {
	value, err := whole(name, "a byte", quantity)
	text := quantity.String()
	switch {
	case err != nil:
		return 0, err
	case value < int64(MinFrame):
		return 0, fmt.Errorf("%s %q is %s, less than a frame of %s: it counts bytes%s",
			name, text, Bytes(value), MinFrame, meant(text, "k"))
	case value > int64(MaxBurst):
		return 0, fmt.Errorf("%s %q is more than %s: it counts bytes, such as \"70k\"", name, text, MaxBurst)
	}
	return Bytes(value), nil
}

// quantity returns a number as Kubernetes prints it: "2G".
func quantity(value int64) resource.Quantity {
	return *resource.NewQuantity(value, resource.DecimalSI)
}
