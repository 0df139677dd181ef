package guarantee

import (
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
)

// Uplink is the link of a node, a rack or a pod to the next higher level, with its two queues.
type Uplink struct {
	Rate Rate
	// Up and Down are the buffers of the queues from and to the lower end.
	Up, Down Bytes
	// Frame is the longest frame on the wire.
	Frame Bytes
	// Packet is the longest packet of segmentation offload that leaves whole, of nodes only; 0 if
	// frames leave one by one.
	Packet Bytes
	// Lateness is J: the longest time that a frame leaves after its departure time; 0 if unknown.
	Lateness time.Duration
}

// Check returns an error that names the wrong part.
func (u Uplink) Check() error {
	frame := u.Frame + u.Rate.In(u.Lateness)
	switch {
	case u.Rate < MinRate || u.Rate > MaxRate:
		return fmt.Errorf("rate %s is not within %s and %s", u.Rate, MinRate, MaxRate)
	case u.Frame < MinFrame:
		return fmt.Errorf("frame %s is less than %s, a frame with 1,500 bytes of IP on the wire", u.Frame, MinFrame)
	case u.Lateness < 0 || u.Lateness > 250*time.Millisecond:
		return fmt.Errorf("lateness %s is not within 0 and 250ms", u.Lateness)
	case u.Packet != 0 && (u.Packet < u.Frame || u.Packet > MaxBurst):
		return fmt.Errorf("packet %s is not within a frame of %s and %s", u.Packet, u.Frame, MaxBurst)
	case u.Up <= frame:
		return fmt.Errorf("the buffer up, %s, has no room for a burst beside a frame and what leaves late, %s", u.Up, frame)
	case u.Packet != 0 && u.BurstRoom() < u.Frame+u.Packet:
		return fmt.Errorf("the buffer up, %s, has no room for a burst of a frame and a packet of %s beside a frame and what leaves late, %s: shorten the packet",
			u.Up, u.Packet, frame)
	case u.Down <= u.Frame:
		return fmt.Errorf("the buffer down, %s, has no room for a burst beside a frame of %s", u.Down, u.Frame)
	}
	return nil
}

// BurstRoom returns the bursts for which the queue up has room: its buffer without one frame of a
// lower class that is on the wire already, and without what the lateness adds to all bursts. If
// rates add up to at most the link's, that is at most the rate times the lateness.
func (u Uplink) BurstRoom() Bytes { return u.Up - u.Frame - u.Rate.In(u.Lateness) }

// BurstInRoom is the same for the queue down.
func (u Uplink) BurstInRoom() Bytes { return u.Down - u.Frame }

// Admission says who adds up the guarantees at an uplink.
type Admission int

const (
	// BySum is the stock scheduler's: rates and bursts of claims add up to at most the capacities.
	BySum Admission = iota
	// ByService is the placement service's: a capacity only limits each single claim.
	ByService
)

// Claims that a device can have without a limit of their sum.
const unlimitedClaims = 1_000

// Counted returns the part of a claim's burst that is no burst of its guarantee: a pod sends its burst
// and one packet beyond its bandwidth. The placement service counts the packet itself.
func (u Uplink) Counted(admission Admission) Bytes {
	if admission == ByService {
		return 0
	}
	return u.Packet
}

// Device returns the uplink of a node or a group of the level as a device. A claim that leaves a capacity out takes all of it, so that
// no claim is counted for less than it may send.
func (u Uplink) Device(level string, admission Admission) resourceapi.Device {
	shared := true
	device := resourceapi.Device{
		Name:                     DeviceName,
		AllowMultipleAllocations: &shared,
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			AttributeLevel: {StringValue: &level},
		},
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			CapacityBandwidth: capacity(int64(u.Rate), int64(MinRate), admission),
			CapacityBurst:     capacity(int64(u.BurstRoom()), int64(min(u.Frame+u.Counted(admission), u.BurstRoom())), admission),
			CapacityBurstIn:   capacity(int64(u.BurstInRoom()), 0, admission),
		},
	}
	if u.Lateness != 0 {
		nanos := u.Lateness.Nanoseconds()
		device.Attributes[AttributeLateness] = resourceapi.DeviceAttribute{IntValue: &nanos}
	}
	return device
}

func capacity(most, least int64, admission Admission) resourceapi.DeviceCapacity {
	value, low, high := quantity(most), quantity(least), quantity(most)
	if admission == ByService {
		value = quantity(most * unlimitedClaims)
	}
	return resourceapi.DeviceCapacity{
		Value: value,
		RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default:    &high,
			ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: &low, Max: &high},
		},
	}
}
