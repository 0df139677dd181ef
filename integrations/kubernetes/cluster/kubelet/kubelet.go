// Package kubelet connects the driver of package driver to kubelet and to the API server.
package kubelet

import (
	"context"
	"errors"
	"fmt"

	"github.com/tailbound/tailbound/integrations/kubernetes/driver"
	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// Status changes the status of claims at the API server.
type Status struct {
	Client kubernetes.Interface
}

// SetDevice implements [driver.ClaimStatus].
func (s Status) SetDevice(ctx context.Context, ref driver.ClaimRef, device resourceapi.AllocatedDeviceStatus) error {
	claims := s.Client.ResourceV1().ResourceClaims(ref.Namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		claim, err := claims.Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		// A deallocated claim may have no device status.
		if claim.UID != ref.UID || claim.Status.Allocation == nil {
			return nil
		}
		claim.Status.Devices = withDevice(claim.Status.Devices, device)
		_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// withDevice replaces the entry of a device, or adds it. Entries of other drivers stay.
func withDevice(devices []resourceapi.AllocatedDeviceStatus, device resourceapi.AllocatedDeviceStatus) []resourceapi.AllocatedDeviceStatus {
	share := func(id *string) string {
		if id == nil {
			return ""
		}
		return *id
	}
	for i := range devices {
		if devices[i].Driver == device.Driver && devices[i].Pool == device.Pool && devices[i].Device == device.Device && share(devices[i].ShareID) == share(device.ShareID) {
			devices[i].Conditions = device.Conditions
			return devices
		}
	}
	return append(devices, device)
}

// Plugin is the driver as kubelet calls it.
type Plugin struct {
	Driver *driver.Driver
	// Fatal is called with an error after which the process cannot go on.
	Fatal func(error)
}

var _ kubeletplugin.DRAPlugin = (*Plugin)(nil)

// PrepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (p *Plugin) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, claim := range claims {
		if err := p.Driver.Prepare(ctx, claim); err != nil {
			results[claim.UID] = kubeletplugin.PrepareResult{Err: err}
			continue
		}
		var devices []kubeletplugin.Device
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.Driver == guarantee.Driver {
				devices = append(devices, kubeletplugin.Device{
					Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device, ShareID: result.ShareID,
				})
			}
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices}
	}
	return results, nil
}

// UnprepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (p *Plugin) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		results[claim.UID] = p.Driver.Unprepare(ctx, driver.ClaimRef{NamespacedName: claim.NamespacedName, UID: claim.UID})
	}
	return results, nil
}

// HandleError implements [kubeletplugin.DRAPlugin].
func (p *Plugin) HandleError(ctx context.Context, err error, message string) {
	runtime.HandleErrorWithContext(ctx, err, message)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		p.Fatal(fmt.Errorf("%s: %w", message, err))
	}
}

// WatchHealthStatus implements [kubeletplugin.DRAPlugin]: the conditions of claims have more.
func (p *Plugin) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// Resources are the slices of a node: its uplink as the only device of a pool.
func Resources(node string, uplink guarantee.Uplink, admission guarantee.Admission) resourceslice.DriverResources {
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		node: {Slices: []resourceslice.Slice{{Devices: []resourceapi.Device{uplink.Device(guarantee.NodeLevel, admission)}}}},
	}}
}
