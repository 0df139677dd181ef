package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	"github.com/tailbound/tailbound/integrations/kubernetes/place"
)

// Service is what Admission needs of the placement service. [place.Client] is one.
type Service interface {
	Candidates(ctx context.Context, queries ...place.Query) (place.Answer, error)
	Explain(ctx context.Context, wanted place.TenantRequest) (place.Explanation, error)
	Reserve(ctx context.Context, wanted place.NewReservation) (place.Reservation, error)
	Confirm(ctx context.Context, id string) error
	Cancel(ctx context.Context, id string) error
	RemoveMachine(ctx context.Context, owner, tenant, machine, host string) error
	SetMachines(ctx context.Context, tenant place.Tenant, host string, machines place.HostMachines) error
	Tenants(ctx context.Context, owner, name string) ([]place.Tenant, error)
	Reservations(ctx context.Context) ([]place.Reservation, error)
	Revision(ctx context.Context) (uint64, error)
}

// Pod is a pod with a guarantee.
type Pod struct {
	// UID is the name of its machine in the service.
	UID       string
	Tenant    guarantee.Tenant
	Guarantee guarantee.Guarantee
	// Gang is the number of pods of its gang, 1 without one.
	Gang int
}

// Options of an [Admission].
type Options struct {
	// TTL is the time after which the service cancels a reservation that is not confirmed: the
	// longest time from Reserve to PreBind, 2 minutes if zero.
	TTL time.Duration
	// Deadline is the longest time for a call, 2 s if zero.
	Deadline time.Duration
	// Patience is the longest time that Confirm asks a service that does not answer, and 9/10 of TTL if
	// zero.
	Patience time.Duration
	// Now is the clock, time.Now if nil.
	Now func() time.Time
}

// Admission asks the service for pods, and remembers their reservations until they are bound. It is
// safe for concurrent use.
type Admission struct {
	service Service
	options Options

	mutex   sync.Mutex
	holds   map[string]*hold
	tenants map[guarantee.Tenant]*tenant
	// suspects are tenants with more machines than pods, by number, and the change in which they were.
	suspects map[uint64]uint64
}

// hold is the reservation of a pod.
type hold struct {
	id, host string
	tenant   guarantee.Tenant
	// until is the time at which the service may have cancelled it.
	until time.Time
	state holdState
	// idleSince is the time at which it became idle.
	idleSince time.Time
}

type holdState int

const (
	// reserved: the pod is on its way to be bound.
	reserved holdState = iota
	// idle: the pod's gang was tried, and is tried again at once, to be bound.
	idle
	// confirmed: the machine belongs to the tenant.
	confirmed
)

// tenant is what is known of a tenant between two calls.
type tenant struct {
	// failed is true if a pod of the gang was refused since the gang's last try.
	failed bool
	// plan has the places that the service proposed for a gang that has none yet.
	plan map[string]int
	// tries counts proposals, every second of which is not used.
	tries int
}

// New returns an admission.
func New(service Service, options Options) *Admission {
	if options.TTL == 0 {
		options.TTL = 2 * time.Minute
	}
	if options.Deadline == 0 {
		options.Deadline = 2 * time.Second
	}
	if options.Patience == 0 {
		options.Patience = options.TTL * 9 / 10
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Admission{service: service, options: options, holds: map[string]*hold{},
		tenants: map[guarantee.Tenant]*tenant{}, suspects: map[uint64]uint64{}}
}

// Refusal is the answer to a pod that cannot run now.
type Refusal struct {
	// Sentence names the uplink that refuses, and the nearest request that would pass.
	Sentence string
	// Waits is true if the service did not answer: the pod is not refused, but not admitted either.
	Waits bool
	cause error
}

func (r *Refusal) Error() string { return r.Sentence }

// Unwrap returns the error of the service; nil if it refused in an answer.
func (r *Refusal) Unwrap() error { return r.cause }

// refusal turns an error of the service into the sentence of a pod's status.
func refusal(err error) *Refusal {
	var problem *place.Problem
	switch {
	case errors.Is(err, place.ErrVersion):
		return &Refusal{Waits: true, cause: err, Sentence: fmt.Sprintf("%v; install the plugin of the service's release. Nothing is admitted without it", err)}
	case errors.As(err, &problem) && !errors.Is(err, place.ErrUnavailable):
		return &Refusal{cause: err, Sentence: "the placement service refuses: " + problem.Error()}
	default:
		return &Refusal{Waits: true, cause: err, Sentence: fmt.Sprintf("%v. Nothing is admitted without it; the pod waits", err)}
	}
}

// known returns what is known of a tenant. The mutex is locked.
func (a *Admission) known(name guarantee.Tenant) *tenant {
	known := a.tenants[name]
	if known == nil {
		known = &tenant{}
		a.tenants[name] = known
	}
	return known
}

// Reserve reserves the pod's place on a node. A reservation that the pod has there is kept, and one
// elsewhere is given back.
func (a *Admission) Reserve(ctx context.Context, pod Pod, node string) error {
	a.mutex.Lock()
	held := a.holds[pod.UID]
	if held != nil && held.host == node && held.state != confirmed && a.options.Now().Before(held.until) {
		held.state = reserved
		a.mutex.Unlock()
		return nil
	}
	delete(a.holds, pod.UID)
	a.mutex.Unlock()

	ctx, cancel := context.WithTimeout(ctx, a.options.Deadline)
	defer cancel()
	if held != nil {
		if err := a.release(ctx, pod.UID, held); err != nil {
			return refusal(err)
		}
	}
	// Before the call: the service counts from the moment at which it gets it.
	until := a.options.Now().Add(a.options.TTL * 9 / 10)
	granted, err := a.reserve(ctx, pod, node)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if err != nil {
		a.known(pod.Tenant).failed = true
		return refusal(err)
	}
	a.holds[pod.UID] = &hold{id: granted.ID, host: node, tenant: pod.Tenant, until: until}
	return nil
}

// reserve asks the service. A reservation of the pod that nobody here knows is of a scheduler that
// was killed: it is cancelled.
func (a *Admission) reserve(ctx context.Context, pod Pod, node string) (place.Reservation, error) {
	wanted := place.NewReservation{
		Tenant:    pod.Tenant.Name,
		Owner:     pod.Tenant.Owner,
		Request:   pod.Guarantee.Request(),
		Placement: []place.Share{{Host: node, VMs: 1}},
		TTL:       fmt.Sprintf("%dms", a.options.TTL.Milliseconds()),
		Machines:  []string{pod.UID},
	}
	granted, err := a.service.Reserve(ctx, wanted)
	if !place.Exists(err) {
		return granted, err
	}
	open, listErr := a.service.Reservations(ctx)
	if listErr != nil {
		return granted, listErr
	}
	for _, reservation := range open {
		if len(reservation.Machines) == 1 && reservation.Machines[0].Name == pod.UID {
			if err := a.service.Cancel(ctx, reservation.ID); err != nil {
				return granted, err
			}
			return a.service.Reserve(ctx, wanted)
		}
	}
	return granted, err
}

// Confirm makes the pod's place part of its tenant. The pod may be bound only after that.
//
// A service that does not answer is asked again until the reservation may have expired, since other
// pods of a gang may be bound already: the service confirms every open reservation.
func (a *Admission) Confirm(ctx context.Context, pod Pod, node string) error {
	a.mutex.Lock()
	held := a.holds[pod.UID]
	a.mutex.Unlock()
	if held == nil || held.host != node {
		return &Refusal{Sentence: fmt.Sprintf("there is no reservation of the pod on %s", node)}
	}
	until := a.options.Now().Add(a.options.Patience)
	if held.until.Before(until) {
		until = held.until
	}
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := a.confirm(ctx, pod.UID, held)
		if !errors.Is(err, place.ErrUnavailable) || a.options.Now().Add(pause).After(until) {
			switch {
			case err == nil:
				return nil
			case place.IsNotFound(err):
				return &Refusal{cause: err, Sentence: fmt.Sprintf("the reservation on %s expired before the pod was bound", node)}
			default:
				return refusal(err)
			}
		}
		select {
		case <-ctx.Done():
			return refusal(err)
		case <-time.After(pause):
		}
	}
}

// confirm asks once.
func (a *Admission) confirm(ctx context.Context, uid string, held *hold) error {
	ctx, cancel := context.WithTimeout(ctx, a.options.Deadline)
	defer cancel()
	err := a.service.Confirm(ctx, held.id)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	switch {
	case err == nil:
		held.state = confirmed
	case place.IsNotFound(err) && a.holds[uid] == held:
		delete(a.holds, uid)
	}
	return err
}

// Cancel gives the pod's place back. A pod that has none is no error. After a try of a gang that went
// well so far, the place is kept for the bind that follows, until [Admission.Expire].
func (a *Admission) Cancel(ctx context.Context, pod Pod, isTry bool) error {
	a.mutex.Lock()
	held := a.holds[pod.UID]
	if held == nil {
		a.mutex.Unlock()
		return nil
	}
	if isTry && held.state != confirmed && !a.known(pod.Tenant).failed {
		held.state, held.idleSince = idle, a.options.Now()
		a.mutex.Unlock()
		return nil
	}
	delete(a.holds, pod.UID)
	a.mutex.Unlock()
	return a.release(ctx, pod.UID, held)
}

// release returns a place to the service. If that fails, the service cancels a reservation itself
// after its time to live; a confirmed machine stays until [Admission.Sweep] finds it.
func (a *Admission) release(ctx context.Context, uid string, held *hold) error {
	// The caller's context may be the one whose end is the reason.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.options.Deadline)
	defer cancel()
	if held.state != confirmed {
		err := a.service.Cancel(ctx, held.id)
		if !place.IsConflict(err) {
			return err
		}
		// The answer to a confirmation was lost.
	}
	return a.service.RemoveMachine(ctx, held.tenant.Owner, held.tenant.Name, uid, held.host)
}

// Expire cancels the places of gangs that were tried and not bound after a time. It returns their
// number.
func (a *Admission) Expire(ctx context.Context, grace time.Duration) (int, error) {
	a.mutex.Lock()
	expired := map[string]*hold{}
	for uid, held := range a.holds {
		if held.state == idle && a.options.Now().Sub(held.idleSince) >= grace {
			expired[uid] = held
			delete(a.holds, uid)
		}
	}
	a.mutex.Unlock()
	var failures []error
	for uid, held := range expired {
		failures = append(failures, a.release(ctx, uid, held))
	}
	return len(expired), errors.Join(failures...)
}

// Bound forgets a pod that runs: its place is the tenant's.
func (a *Admission) Bound(pod Pod) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	delete(a.holds, pod.UID)
	for _, held := range a.holds {
		if held.tenant == pod.Tenant {
			return
		}
	}
	delete(a.tenants, pod.Tenant)
}

// Gone removes the machine of a pod that has ended or was deleted.
func (a *Admission) Gone(ctx context.Context, tenant guarantee.Tenant, uid, node string) error {
	a.mutex.Lock()
	delete(a.holds, uid)
	a.mutex.Unlock()
	ctx, cancel := context.WithTimeout(ctx, a.options.Deadline)
	defer cancel()
	return a.service.RemoveMachine(ctx, tenant.Owner, tenant.Name, uid, node)
}

// Place is a tenant's part of a node.
type Place struct {
	Tenant guarantee.Tenant
	Node   string
}

// Sweep removes machines of our owners beyond the number of the tenant's pods on the node: those of
// pods that ended while no scheduler listened. A machine more than pods is removed by the second
// sweep that finds it, if the tenant has not changed in between: its pod may be about to be bound.
// It returns the number of removed machines.
func (a *Admission) Sweep(ctx context.Context, isOurs func(owner string) bool, pods map[Place]int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*a.options.Deadline)
	defer cancel()
	// Reservations first: one that is confirmed in between counts as open, so that nothing is removed.
	open, err := a.service.Reservations(ctx)
	if err != nil {
		return 0, err
	}
	all, err := a.service.Tenants(ctx, "", "")
	if err != nil {
		return 0, err
	}
	a.mutex.Lock()
	before := a.suspects
	a.suspects = map[uint64]uint64{}
	held := map[Place]int{}
	for _, hold := range a.holds {
		if hold.state == confirmed {
			held[Place{hold.tenant, hold.host}]++
		}
	}
	a.mutex.Unlock()
	removed := 0
	for _, tenant := range all {
		if !isOurs(tenant.Owner) {
			continue
		}
		for host, machines := range tenant.Confirmed(open) {
			at := Place{guarantee.Tenant{Owner: tenant.Owner, Name: tenant.Name}, host}
			wanted := pods[at] + held[at]
			if machines <= wanted {
				continue
			}
			if change, suspected := before[tenant.ID]; !suspected || change != tenant.Change {
				a.mutex.Lock()
				a.suspects[tenant.ID] = tenant.Change
				a.mutex.Unlock()
				continue
			}
			err := a.service.SetMachines(ctx, tenant, host, place.HostMachines{VMs: wanted})
			if err != nil && !place.IsNotFound(err) {
				return removed, err
			}
			removed += machines - wanted
			// The tenant's number of changes is another one now: its other hosts are for the next sweep.
			break
		}
	}
	return removed, nil
}

// Revision returns the number of the service's last change: pods that were refused may pass after
// another one.
func (a *Admission) Revision(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, a.options.Deadline)
	defer cancel()
	return a.service.Revision(ctx)
}
