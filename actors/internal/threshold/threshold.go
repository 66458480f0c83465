// Package threshold reads eviction thresholds as the kubelet's configuration has them.
package threshold

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// TurnedOff reports whether a threshold turns its signal off: 0% and 100%, as in the kubelet.
func TurnedOff(text string) bool { return text == "0%" || text == "100%" }

// Quantity returns a threshold as a quantity, with percentages as parts of the capacity. It is zero for an absent or invalid
// threshold; the configuration was validated.
func Quantity(text string, capacity int64) resource.Quantity {
	if text == "" || TurnedOff(text) {
		return resource.Quantity{}
	}
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		// float32 as in the kubelet: schedulers get the result, and it is compared with a kubelet's.
		part, err := strconv.ParseFloat(percent, 32)
		if err != nil {
			return resource.Quantity{}
		}
		return *resource.NewQuantity(int64(float64(capacity)*float64(float32(part)/100)), resource.BinarySI)
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}
	}
	return q
}
