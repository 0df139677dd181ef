package guarantee

import (
	"fmt"
	"math/big"
	"strings"
)

// Units of the texts that tailbound prints, longest names first.
var (
	rateUnits = []unit{{"Gbit/s", 1_000_000_000}, {"Mbit/s", 1_000_000}, {"kbit/s", 1_000}, {"bit/s", 1}}
	byteUnits = []unit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1_000_000_000}, {"MB", 1_000_000}, {"KB", 1_000}, {"B", 1}}
)

type unit struct {
	name  string
	value int64
}

// RateFromText reads a rate as tailbound prints it: "1.5Gbit/s".
func RateFromText(text string) (Rate, error) {
	value, err := fromText(text, rateUnits)
	return Rate(value), err
}

// BytesFromText reads a number of bytes as tailbound prints it: "62.5KB".
func BytesFromText(text string) (Bytes, error) {
	value, err := fromText(text, byteUnits)
	return Bytes(value), err
}

func fromText(text string, units []unit) (int64, error) {
	for _, unit := range units {
		number, found := strings.CutSuffix(text, unit.name)
		if !found {
			continue
		}
		// The numbers of big.Rat may have signs, exponents and divisions.
		if number == "" || strings.Trim(number, "0123456789.") != "" {
			break
		}
		value, ok := new(big.Rat).SetString(number)
		if !ok {
			break
		}
		value.Mul(value, new(big.Rat).SetInt64(unit.value))
		if !value.IsInt() || !value.Num().IsInt64() {
			return 0, fmt.Errorf("%q is not a whole number of the smallest unit", text)
		}
		return value.Num().Int64(), nil
	}
	return 0, fmt.Errorf("%q is no quantity: write for example 1%s", text, units[0].name)
}
