package tree

import (
	"fmt"
	"strconv"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Demand is the part of an uplink that one pod takes.
type Demand struct {
	// Level is [guarantee.NodeLevel] or a level of the topology.
	Level     string
	Bandwidth guarantee.Rate
	// Burst and BurstIn are the bursts in the queues from and to the pod. Both count the packet with
	// which a pod exceeds its guarantee.
	Burst, BurstIn guarantee.Bytes
}

// Anywhere permits the pods of a tenant below different groups of each level.
const Anywhere = ""

// Demand returns the parts of the uplinks that each of a tenant's pods takes. If `within` names a
// level, all pods are below one group of that level, for which the pods need an affinity
// ([Affinity]); then they do not use its uplink, or those above it.
//
// A burst grows in the queues before an uplink by what the bandwidth sends in the time of these
// queues. All other pods of a tenant may burst to one pod: its BurstIn has one burst of each.
func (t *Topology) Demand(wanted guarantee.Guarantee, pods int, within string) ([]Demand, error) {
	if pods < 2 {
		return nil, fmt.Errorf("a tenant of %d pods has nothing to send: the guarantee is among the pods of a tenant", pods)
	}
	used := []level{{name: guarantee.NodeLevel, uplinks: map[string]guarantee.Uplink{"": t.node}}}
	inside := within == Anywhere
	for _, level := range t.levels {
		if inside = inside || level.name == within; inside && within != Anywhere {
			break
		}
		used = append(used, level)
	}
	if !inside {
		return nil, fmt.Errorf("there is no level %q: %s", within, t.levelNames())
	}
	burst := max(wanted.Burst, t.node.Frame) + t.node.Packet
	var before, after time.Duration
	for _, level := range used {
		up, down := longest(level)
		before, after = before+up, after+down
	}
	all := make([]Demand, 0, len(used))
	var below time.Duration
	for _, level := range used {
		up, down := longest(level)
		after -= down
		all = append(all, Demand{
			Level:     level.name,
			Bandwidth: wanted.Bandwidth,
			Burst:     burst + wanted.Bandwidth.In(below),
			BurstIn:   guarantee.Bytes(pods-1)*burst + wanted.Bandwidth.In(before+after),
		})
		below += up
	}
	return all, nil
}

// longest returns the longest times that the queues of a level's uplinks hold, with the lateness of
// nodes.
func longest(level level) (up, down time.Duration) {
	for _, uplink := range level.uplinks {
		up = max(up, uplink.Up.Time(uplink.Rate)+uplink.Lateness)
		down = max(down, uplink.Down.Time(uplink.Rate))
	}
	return up, down
}

func (t *Topology) levelNames() string {
	if len(t.levels) == 0 {
		return "the topology has none above the nodes"
	}
	text := "the levels are"
	for i, level := range t.levels {
		if i > 0 {
			text += ","
		}
		text += " " + strconv.Quote(level.name)
	}
	return text
}

// Longest returns the longest wait in all queues between two pods within one group of a level.
func (t *Topology) Longest(within string) time.Duration {
	sum := t.node.Up.Time(t.node.Rate) + t.node.Lateness + t.node.Down.Time(t.node.Rate)
	for _, level := range t.levels {
		if level.name == within {
			break
		}
		up, down := longest(level)
		sum += up + down
	}
	return sum
}

// Claim returns the spec of a claim for these parts.
func Claim(demands []Demand) resourceapi.ResourceClaimSpec {
	var spec resourceapi.ResourceClaimSpec
	for _, demand := range demands {
		spec.Devices.Requests = append(spec.Devices.Requests, resourceapi.DeviceRequest{
			Name: demand.Level,
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: Class(demand.Level),
				AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
				Count:           1,
				Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
					guarantee.CapacityBandwidth: decimal(int64(demand.Bandwidth)),
					guarantee.CapacityBurst:     decimal(int64(demand.Burst)),
					guarantee.CapacityBurstIn:   decimal(int64(demand.BurstIn)),
				}},
			},
		})
	}
	return spec
}

func decimal(value int64) resource.Quantity {
	return *resource.NewQuantity(value, resource.DecimalSI)
}

// Affinity keeps all pods with a label value below one group of a level; nil for [Anywhere].
func (t *Topology) Affinity(within, tenant string) *v1.Affinity {
	for _, level := range t.levels {
		if level.name != within {
			continue
		}
		return &v1.Affinity{PodAffinity: &v1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{guarantee.TenantLabel: tenant}},
				TopologyKey:   level.label,
			}},
		}}
	}
	return nil
}
