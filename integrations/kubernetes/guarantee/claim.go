package guarantee

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Parameters are the parts of a guarantee that are no capacities. They are the opaque
// configuration of a claim for the driver [Driver].
type Parameters struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Delay      string            `json:"delay,omitempty"`
	BurstRate  resource.Quantity `json:"burstRate,omitzero"`
	Bursts     int               `json:"bursts,omitempty"`
	BurstIn    resource.Quantity `json:"burstIn,omitzero"`
}

// The version and kind that [Parameters] must have.
const (
	ParametersVersion = "tailbound.dev/v1"
	ParametersKind    = "Guarantee"
)

// FromClaim returns the guarantee that a claim asks for, or nil if it asks for no node's uplink.
func FromClaim(spec *resourceapi.ResourceClaimSpec) (*Guarantee, error) {
	request, err := nodeRequest(spec)
	if request == nil || err != nil {
		return nil, err
	}
	found, err := fromRequest(request.Name, request.Exactly)
	if err != nil {
		return nil, fmt.Errorf("request %q: %w", request.Name, err)
	}
	for _, config := range spec.Devices.Config {
		if config.Opaque == nil || config.Opaque.Driver != Driver {
			continue
		}
		if len(config.Requests) != 0 && !slices.Contains(config.Requests, request.Name) {
			continue
		}
		if err := found.addParameters(config.Opaque.Parameters.Raw); err != nil {
			return nil, fmt.Errorf("config of %s: %w", Driver, err)
		}
	}
	if err := found.Check(); err != nil {
		return nil, err
	}
	return found, nil
}

// nodeRequest returns the request for a node's uplink; nil if there is none.
func nodeRequest(spec *resourceapi.ResourceClaimSpec) (*resourceapi.DeviceRequest, error) {
	var found *resourceapi.DeviceRequest
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		for _, alternative := range request.FirstAvailable {
			if alternative.DeviceClassName == NodeClass {
				return nil, fmt.Errorf("request %q: a guarantee has no alternatives: write it below \"exactly\"", request.Name)
			}
		}
		if request.Exactly == nil || request.Exactly.DeviceClassName != NodeClass {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("requests %q and %q are both of %s: a claim has one guarantee", found.Name, request.Name, NodeClass)
		}
		found = request
	}
	return found, nil
}

func fromRequest(name string, request *resourceapi.ExactDeviceRequest) (*Guarantee, error) {
	if request.AllocationMode == resourceapi.DeviceAllocationModeAll || request.Count > 1 {
		return nil, errors.New("a pod has one uplink: leave allocationMode and count out")
	}
	if request.Capacity == nil || len(request.Capacity.Requests) == 0 {
		return nil, errors.New("it has no capacities: write for example capacity: {requests: {bandwidth: 500M, burst: 15k}}")
	}
	found := &Guarantee{}
	var err error
	for capacity, value := range request.Capacity.Requests {
		switch capacity {
		case CapacityBandwidth:
			found.Bandwidth, err = ParseRate(CapacityBandwidth, value)
		case CapacityBurst:
			found.Burst, err = ParseBurst(CapacityBurst, value)
		case CapacityBurstIn:
			_, err = whole(CapacityBurstIn, "a byte", value)
		default:
			err = fmt.Errorf("capacity %q is unknown: the capacities are %s, %s and %s", capacity, CapacityBandwidth, CapacityBurst, CapacityBurstIn)
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case found.Bandwidth == 0:
		return nil, errors.New("the bandwidth is missing: write for example bandwidth: 500M")
	case found.Burst == 0:
		return nil, errors.New("the burst is missing: write for example burst: 15k")
	}
	return found, nil
}

func (g *Guarantee) addParameters(raw []byte) error {
	var parameters Parameters
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&parameters); err != nil {
		return fmt.Errorf("parameters: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("parameters: something follows the object")
	}
	if parameters.APIVersion != ParametersVersion || parameters.Kind != ParametersKind {
		return fmt.Errorf("parameters are of %q %q: this driver reads %q %q",
			parameters.APIVersion, parameters.Kind, ParametersVersion, ParametersKind)
	}
	if parameters.Delay != "" {
		delay, err := time.ParseDuration(parameters.Delay)
		if err != nil || delay <= 0 {
			return fmt.Errorf("delay %q is no time: write for example \"1ms\"", parameters.Delay)
		}
		g.Delay = delay
	}
	if !parameters.BurstRate.IsZero() {
		rate, err := ParseRate("burstRate", parameters.BurstRate)
		if err != nil {
			return err
		}
		g.BurstRate = rate
	}
	if !parameters.BurstIn.IsZero() {
		burst, err := ParseBurst("burstIn", parameters.BurstIn)
		if err != nil {
			return err
		}
		g.BurstIn = burst
	}
	g.Bursts = parameters.Bursts
	return nil
}

// Allocated returns the allocation of a node's uplink within a claim, and the guarantee for which the
// scheduler has counted `counted` bytes more ([Uplink.Counted]). It may be rounded up. It returns nil
// if the claim has none on this node.
func Allocated(claim *resourceapi.ResourceClaim, node string, counted Bytes) (*resourceapi.DeviceRequestAllocationResult, Guarantee, error) {
	if claim.Status.Allocation == nil {
		return nil, Guarantee{}, errors.New("the claim is not allocated")
	}
	for i := range claim.Status.Allocation.Devices.Results {
		result := &claim.Status.Allocation.Devices.Results[i]
		// Pools of groups have a slash, which names of nodes cannot have.
		if result.Driver != Driver || strings.Contains(result.Pool, "/") {
			continue
		}
		if result.Pool != node {
			return nil, Guarantee{}, fmt.Errorf("the claim is allocated on %s, and this is %s", result.Pool, node)
		}
		bandwidth, bandwidthThere := result.ConsumedCapacity[CapacityBandwidth]
		burst, burstThere := result.ConsumedCapacity[CapacityBurst]
		if !bandwidthThere || !burstThere {
			return nil, Guarantee{}, errors.New("the allocation has no consumed capacity: the cluster needs the feature DRAConsumableCapacity (on since Kubernetes 1.36)")
		}
		found := Guarantee{Bandwidth: Rate(bandwidth.Value()), Burst: Bytes(burst.Value()) - counted}
		if found.Burst < MinFrame {
			return nil, Guarantee{}, fmt.Errorf("the burst of %s has no room for a frame of %s beside a packet of %s, which leaves whole: write at least %s, or shorten tree.node.packet",
				Bytes(burst.Value()), MinFrame, counted, MinFrame+counted)
		}
		return result, found, nil
	}
	return nil, Guarantee{}, nil
}

// IsName reports whether a text can be the name of a tenant or an owner.
func IsName(text string) bool {
	inner := func(r rune) bool { return (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9') || r == '-' }
	return len(text) >= 1 && len(text) <= 63 && strings.IndexFunc(text, func(r rune) bool { return !inner(r) }) < 0 &&
		text[0] != '-' && text[len(text)-1] != '-'
}
