// Package threshold reads eviction thresholds as the kubelet's configuration has them.
package threshold

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// TurnedOff says whether a threshold is none: 0% and 100% turn a signal off, for the kubelet too.
func TurnedOff(text string) bool { return text == "0%" || text == "100%" }

// Quantity is a threshold as a quantity: what it says, or a part of the capacity where it is given as a percentage. It is zero
// where there is none, or where it cannot be read (the configuration was validated).
func Quantity(text string, capacity int64) resource.Quantity {
	if text == "" || TurnedOff(text) {
		return resource.Quantity{}
	}
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		// In 32 bits, as with the kubelet: what comes of it is told to schedulers, and compared with what a kubelet told.
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
