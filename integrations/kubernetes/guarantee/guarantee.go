package guarantee

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/place"
)

// Names of Kubernetes objects and fields that are tailbound's.
const (
	// Driver is the name of the DRA driver, and the prefix of its attributes.
	Driver = "tailbound.dev"
	// NodeLevel is the level of nodes' uplinks. Higher levels have names of the topology: rack, pod.
	NodeLevel = "node"
	// NodeClass is the DeviceClass of nodes' uplinks: a request of it is a guarantee.
	NodeClass = NodeLevel + "." + Driver
	// DeviceName is the name of each uplink within its pool. A node's pool has the node's name.
	DeviceName = "uplink"
	// TenantLabel names the tenant of a pod that is in no PodGroup.
	TenantLabel = "tailbound.dev/tenant"

	// AttributeLevel is the level of an uplink.
	AttributeLevel = "level"
	// AttributeLateness is J of a node in nanoseconds, if it is known.
	AttributeLateness = "latenessNanoseconds"

	// CapacityBandwidth is B, in bits a second.
	CapacityBandwidth = "bandwidth"
	// CapacityBurst is S on the way from the node, in bytes.
	CapacityBurst = "burst"
	// CapacityBurstIn is the sum of bursts of all senders to a machine, in bytes.
	CapacityBurstIn = "burstIn"
)

// Guarantee is Silo's {B, S, d, Bmax} of a pod, K, and S_in.
type Guarantee struct {
	Bandwidth Rate
	Burst     Bytes
	// Delay is the longest wait in queues between two pods of the tenant; 0 if none is promised.
	Delay time.Duration
	// BurstRate limits the rate of a burst; 0 if nothing does.
	BurstRate Rate
	// Bursts is the number of bursts without a pause; 0 for the service's default.
	Bursts int
	// BurstIn is the most that all other pods together may send to one beyond its bandwidth; 0 if
	// nothing limits it.
	BurstIn Bytes
}

// String returns the guarantee as the flag --guarantee of tailbound adopt reads it.
func (g Guarantee) String() string {
	return g.Bandwidth.String() + "," + g.Burst.String()
}

// Request returns the request to the placement service for one machine.
func (g Guarantee) Request() *place.Request {
	wanted := &place.Guarantee{Bandwidth: g.Bandwidth.String(), Burst: g.Burst.String()}
	if g.Delay != 0 {
		wanted.Delay = strconv.FormatInt(g.Delay.Nanoseconds(), 10) + "ns"
	}
	if g.BurstRate != 0 {
		wanted.BurstRate = g.BurstRate.String()
	}
	if g.Bursts != 0 {
		wanted.Bursts = json.RawMessage(strconv.Itoa(g.Bursts))
	}
	if g.BurstIn != 0 {
		wanted.BurstIn = g.BurstIn.String()
	}
	return &place.Request{Guarantee: wanted}
}

// Check returns an error if the parts of the guarantee contradict each other.
func (g Guarantee) Check() error {
	switch {
	case g.BurstRate != 0 && g.BurstRate < g.Bandwidth:
		return fmt.Errorf("burstRate %s is below the bandwidth of %s: leave it out, or raise it", g.BurstRate, g.Bandwidth)
	case g.Delay < 0 || g.Delay > 250*time.Millisecond:
		return fmt.Errorf("delay %s is not within 0 and 250ms", g.Delay)
	case g.BurstIn != 0 && g.BurstIn < g.Burst:
		return fmt.Errorf("burstIn %s is below the burst of %s: leave it out, or raise it", g.BurstIn, g.Burst)
	case g.Bursts < 0:
		return fmt.Errorf("bursts %d is negative: write a number from 1", g.Bursts)
	}
	return nil
}
