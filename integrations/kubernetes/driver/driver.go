package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ConditionReady is the condition in a claim's device status: the node enforces the guarantee.
const ConditionReady = "Ready"

// Reasons of [ConditionReady].
const (
	// ReasonEnforced: frames leave within the guarantee.
	ReasonEnforced = "Enforced"
	// ReasonPrepared: the pod has no network yet.
	ReasonPrepared = "Prepared"
	// ReasonNotEnforced: the pod runs, and its interface does not have this guarantee.
	ReasonNotEnforced = "NotEnforced"
	// ReasonUnknown: the node's tailbound does not answer.
	ReasonUnknown = "Unknown"
)

// ClaimRef names a claim for as long as it has this UID.
type ClaimRef struct {
	types.NamespacedName
	UID types.UID
}

// ClaimStatus changes the status of claims.
type ClaimStatus interface {
	// SetDevice sets the entry of a device in a claim's status. It does nothing if the claim is
	// gone, or another one has its name.
	SetDevice(ctx context.Context, claim ClaimRef, device resourceapi.AllocatedDeviceStatus) error
}

// Config is what a [Driver] needs.
type Config struct {
	// Node is the name of the node.
	Node string
	// Packet is the longest packet that leaves the node whole; 0 for that of the node's tailbound.
	Packet guarantee.Bytes
	// Counted is the part of a claim's burst that is this packet ([guarantee.Uplink.Counted]).
	Counted  guarantee.Bytes
	Store    *Store
	Enforcer Enforcer
	Status   ClaimStatus
	// Now is the clock, time.Now if nil.
	Now func() time.Time
	// Patience is the time after which a prepared pod without a guarantee in force is reported as
	// such, 30 s if zero.
	Patience time.Duration
}

// Driver prepares the guarantees of a node's pods. It is safe for concurrent use.
type Driver struct {
	config Config
	// mutex keeps calls apart that change records, and protects the maps.
	mutex sync.Mutex
	// since has the time at which a record was first seen, by claim.
	since map[types.UID]time.Time
	// reported has the last condition of each claim, so that equal ones are not sent again.
	reported map[types.UID]metav1.Condition
}

// New returns a driver.
func New(config Config) *Driver {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Patience == 0 {
		config.Patience = 30 * time.Second
	}
	return &Driver{config: config, since: map[types.UID]time.Time{}, reported: map[types.UID]metav1.Condition{}}
}

// Prepare records the guarantee of a claim for the pod that it is reserved for. A second call with
// the same claim does nothing.
func (d *Driver) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	record, err := d.recordOf(claim)
	if err != nil {
		return fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	if record == nil {
		return nil
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	records, err := d.config.Store.All()
	if err != nil {
		return err
	}
	for _, other := range records {
		switch {
		case other == *record:
			return nil
		case other.Version < recordVersion && other.ClaimUID == record.ClaimUID && other.Pod == record.Pod && other.BandwidthBit == record.BandwidthBit:
			// A driver before this one prepared it, and counted no packet.
		case other.ClaimUID == record.ClaimUID:
			return fmt.Errorf("claim %s/%s was prepared with %s for pod %s, and has %s for pod %s now: it has to be unprepared first",
				claim.Namespace, claim.Name, other.Guarantee, other.Pod, record.Guarantee, record.Pod)
		case other.Pod == record.Pod:
			return fmt.Errorf("pod %s has two guarantees, of the claims %s and %s: a pod has one", record.Pod, other.Claim, record.Claim)
		}
	}
	if err := d.config.Store.Put(*record); err != nil {
		return err
	}
	d.since[claim.UID] = d.config.Now()
	// A report that fails does not stop the pod: Observe sends it again.
	_ = d.report(ctx, *record, d.prepared())
	return nil
}

func (d *Driver) prepared() metav1.Condition {
	return d.condition(metav1.ConditionFalse, ReasonPrepared, "The guarantee waits for the pod's interface.")
}

// Unprepare removes the record of a claim, and the pod's rules if it has some. It is no error if
// there is none.
func (d *Driver) Unprepare(ctx context.Context, claim ClaimRef) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	records, err := d.config.Store.All()
	if err != nil {
		return err
	}
	for _, record := range records {
		if record.ClaimUID != string(claim.UID) {
			continue
		}
		if err := d.release(ctx, record.Pod); err != nil {
			return err
		}
		if err := d.config.Store.Remove(record.Pod); err != nil {
			return err
		}
	}
	delete(d.since, claim.UID)
	delete(d.reported, claim.UID)
	return nil
}

// release undoes the rules of a pod, unless the CNI plugin has done so.
func (d *Driver) release(ctx context.Context, pod string) error {
	enforced, err := d.config.Enforcer.Enforced(ctx)
	if err != nil {
		return err
	}
	if _, adopted := enforced[pod]; !adopted {
		return nil
	}
	return d.config.Enforcer.Release(ctx, pod)
}

// Observe enforces the guarantees that are not in force, and reports of each claim whether it is.
func (d *Driver) Observe(ctx context.Context) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	records, err := d.config.Store.All()
	if err != nil || len(records) == 0 {
		return err
	}
	var failures []error
	enforced, err := d.config.Enforcer.Enforced(ctx)
	refusals := map[string]error{}
	if err == nil {
		refusals = d.enforce(ctx, records, enforced)
		if len(refusals) > 0 {
			enforced, err = d.config.Enforcer.Enforced(ctx)
		}
	}
	failures = append(failures, err)
	for _, record := range records {
		condition := d.condition(metav1.ConditionUnknown, ReasonUnknown, "The node's tailbound does not answer.")
		if err == nil {
			condition = d.judge(record, enforced, refusals[record.Pod])
		}
		failures = append(failures, d.report(ctx, record, condition))
	}
	return errors.Join(failures...)
}

// enforce enforces what is not in force. It returns the outcome for each pod that it tried.
func (d *Driver) enforce(ctx context.Context, records []Record, enforced map[string]Enforcement) map[string]error {
	outcomes := map[string]error{}
	for _, record := range records {
		if actual := enforced[record.Pod]; !actual.is(record) {
			outcomes[record.Pod] = d.config.Enforcer.Enforce(ctx, record, actual.Rules)
		}
	}
	return outcomes
}

// judge compares a record with what is in force. The refusal is that of the program, if it was asked.
func (d *Driver) judge(record Record, enforced map[string]Enforcement, refusal error) metav1.Condition {
	uid := types.UID(record.ClaimUID)
	since, known := d.since[uid]
	if !known {
		since = d.config.Now()
		d.since[uid] = since
	}
	actual, adopted := enforced[record.Pod]
	switch {
	case adopted && actual.is(record):
		return d.condition(metav1.ConditionTrue, ReasonEnforced,
			fmt.Sprintf("Frames leave %s within %s and a burst of %s.", uplinkName(actual.Uplink), record.BandwidthBit, record.BurstBytes))
	case !adopted && d.config.Now().Sub(since) < d.config.Patience:
		return d.prepared()
	case refusal != nil:
		return d.condition(metav1.ConditionFalse, ReasonNotEnforced, sentence(refusal))
	case adopted:
		return d.condition(metav1.ConditionFalse, ReasonNotEnforced,
			fmt.Sprintf("The pod's interface has %s and a burst of %s, and the claim %s.", actual.Bandwidth, actual.Burst, record.Guarantee))
	default:
		return d.condition(metav1.ConditionFalse, ReasonNotEnforced, "The pod's interface is not adopted.")
	}
}

// The longest message of a condition.
const maxMessage = 32_768

func sentence(err error) string {
	text := err.Error()
	return text[:min(len(text), maxMessage)]
}

func uplinkName(name string) string {
	if name == "" {
		return "the node"
	}
	return name
}

func (d *Driver) condition(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{
		Type: ConditionReady, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(d.config.Now()),
	}
}

// report sends a condition if it differs from the last one. A failure is tried again by the next
// [Driver.Observe].
func (d *Driver) report(ctx context.Context, record Record, condition metav1.Condition) error {
	uid := types.UID(record.ClaimUID)
	last, known := d.reported[uid]
	if known && last.Status == condition.Status && last.Reason == condition.Reason && last.Message == condition.Message {
		return nil
	}
	if known && last.Status == condition.Status {
		condition.LastTransitionTime = last.LastTransitionTime
	}
	device := resourceapi.AllocatedDeviceStatus{
		Driver: guarantee.Driver, Pool: d.config.Node, Device: guarantee.DeviceName,
		Conditions: []metav1.Condition{condition},
	}
	if record.Share != "" {
		device.ShareID = &record.Share
	}
	ref := ClaimRef{NamespacedName: types.NamespacedName{Namespace: record.Namespace, Name: record.Claim}, UID: uid}
	if err := d.config.Status.SetDevice(ctx, ref, device); err != nil {
		return fmt.Errorf("reporting in the claim %s: %w", ref, err)
	}
	d.reported[uid] = condition
	return nil
}

// recordOf returns the record of an allocated claim; nil if the claim has no uplink of a node.
func (d *Driver) recordOf(claim *resourceapi.ResourceClaim) (*Record, error) {
	result, allocated, err := guarantee.Allocated(claim, d.config.Node, d.config.Counted)
	if err != nil || result == nil {
		return nil, err
	}
	if len(claim.Status.ReservedFor) != 1 || claim.Status.ReservedFor[0].Resource != "pods" {
		return nil, fmt.Errorf("it is reserved for %d objects: a guarantee is that of one pod; use a ResourceClaimTemplate", len(claim.Status.ReservedFor))
	}
	record := &Record{
		Version: recordVersion, Pod: string(claim.Status.ReservedFor[0].UID),
		Namespace: claim.Namespace, Claim: claim.Name, ClaimUID: string(claim.UID),
		Guarantee: allocated.String(), BandwidthBit: allocated.Bandwidth, BurstBytes: allocated.Burst,
	}
	if d.config.Packet != 0 {
		record.Packet = d.config.Packet.String()
	}
	if result.ShareID != nil {
		record.Share = string(*result.ShareID)
	}
	return record, nil
}
