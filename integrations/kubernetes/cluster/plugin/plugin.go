// Package plugin is the scheduler's plugin that admits pods with a guarantee exactly: by the
// placement service, which counts every uplink of the data centre.
//
// PreFilter asks for candidates, Reserve reserves, PreBind confirms, and Unreserve gives the place
// back. The decisions are those of package scheduler; this package is the adapter to the scheduling
// framework.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	"github.com/tailbound/tailbound/integrations/kubernetes/scheduler"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Name is the plugin's name in a scheduler's profile.
const Name = "Tailbound"

const stateKey fwk.StateKey = Name

var (
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.PreBindPlugin     = (*Plugin)(nil)
	_ fwk.PostBindPlugin    = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
)

// Plugin is the plugin of one profile.
type Plugin struct {
	admission *scheduler.Admission
	prefix    string
	handle    fwk.Handle
	nodes     corelisters.NodeLister
	waiting   *waiting
	// schedules is true once a pod was scheduled: this is the leader.
	schedules atomic.Bool
}

// New makes the plugin from its [Args]. What it runs in the background ends with the context.
func New(ctx context.Context, configuration runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	args, err := decode(configuration)
	if err != nil {
		return nil, err
	}
	client, err := args.client()
	if err != nil {
		return nil, fmt.Errorf("the arguments of %s: %w", Name, err)
	}
	return WithService(ctx, client, args.OwnerPrefix, handle)
}

// WithService makes a plugin that asks this service.
func WithService(ctx context.Context, service scheduler.Service, prefix string, handle fwk.Handle) (*Plugin, error) {
	core := handle.SharedInformerFactory().Core().V1()
	plugin := &Plugin{
		admission: scheduler.New(service, scheduler.Options{}),
		prefix:    prefix,
		handle:    handle,
		nodes:     core.Nodes().Lister(),
		waiting:   newWaiting(),
	}
	if err := plugin.follow(ctx, core.Pods()); err != nil {
		return nil, fmt.Errorf("following pods: %w", err)
	}
	return plugin, nil
}

// Name implements [fwk.Plugin].
func (p *Plugin) Name() string { return Name }

// decision is what the steps of one pod share.
type decision struct {
	pod scheduler.Pod
	// claim is the claim that has the guarantee, for as long as it has this UID.
	claim types.NamespacedName
	uid   types.UID
}

// Clone implements [fwk.StateData]. A decision never changes.
func (d *decision) Clone() fwk.StateData { return d }

func read(state fwk.CycleState) *decision {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	found, _ := data.(*decision)
	return found
}

// PreFilter leaves the nodes whose uplinks carry the pod.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	p.schedules.Store(true)
	decision, err := p.decide(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "tailbound: "+err.Error())
	}
	if decision == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	names := make([]string, 0, len(nodes))
	for _, node := range nodes {
		names = append(names, node.Node().Name)
	}
	state.Write(stateKey, decision)
	candidates, err := p.admission.Candidates(ctx, decision.pod, names)
	if err != nil {
		return nil, p.refuse(pod, err)
	}
	return &fwk.PreFilterResult{NodeNames: sets.New(candidates...)}, nil
}

// PreFilterExtensions implements [fwk.PreFilterPlugin]. Preemption does not ask the service.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Reserve reserves the pod's place: the service decides here.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	decision := read(state)
	if decision == nil {
		return nil
	}
	if err := p.admission.Reserve(ctx, decision.pod, node); err != nil {
		return p.refuse(pod, err)
	}
	return nil
}

// Unreserve gives the pod's place back.
func (p *Plugin) Unreserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	decision := read(state)
	if decision == nil {
		return
	}
	if err := p.admission.Cancel(ctx, decision.pod, state.IsPodGroupSchedulingCycle()); err != nil {
		p.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, "TailboundReservation", "Unreserve",
			"the place is reserved until its time to live ends: %v", err)
	}
}

// PreBindPreFlight implements [fwk.PreBindPlugin].
func (p *Plugin) PreBindPreFlight(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if read(state) == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreBind confirms the pod's place, if the node and the claim are still there.
func (p *Plugin) PreBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	decision := read(state)
	if _, err := p.nodes.Get(node); err != nil {
		return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("tailbound: the node %s went away: %v", node, err))
	}
	if err := p.unchanged(decision); err != nil {
		return fwk.NewStatus(fwk.Unschedulable, "tailbound: "+err.Error())
	}
	if err := p.admission.Confirm(ctx, decision.pod, node); err != nil {
		return p.refuse(pod, err)
	}
	return nil
}

// PostBind forgets the pod: its place belongs to its tenant.
func (p *Plugin) PostBind(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	if decision := read(state); decision != nil {
		p.admission.Bound(decision.pod)
		p.waiting.remove(pod)
	}
}

// EventsToRegister names the events of the cluster after which a refused pod may pass. Other changes
// of the service's state are found by [Plugin.follow].
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}},
		{Event: fwk.ClusterEvent{Resource: fwk.ResourceClaim, ActionType: fwk.Add}},
	}, nil
}

// SignPod implements [fwk.SignPlugin]: two pods with guarantees are never alike, as the first one
// takes room from the second.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if len(pod.Spec.ResourceClaims) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "a pod with claims may have a guarantee")
	}
	return nil, nil
}

// refuse turns a refusal into a status. The pod is tried again when the service's state changes.
func (p *Plugin) refuse(pod *v1.Pod, err error) *fwk.Status {
	p.waiting.add(pod)
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "tailbound: "+err.Error())
}

// decide returns the pod's guarantee and tenant; nil if it has no guarantee.
func (p *Plugin) decide(pod *v1.Pod) (*decision, error) {
	names, missing := guarantee.ClaimNames(pod)
	if missing != "" {
		return nil, fmt.Errorf("the claim %q is not made yet", missing)
	}
	var found *decision
	for _, name := range names {
		claim, err := p.handle.SharedDRAManager().ResourceClaims().Get(name.Namespace, name.Name)
		if err != nil {
			return nil, fmt.Errorf("the claim %s: %w", name, err)
		}
		wanted, err := guarantee.FromClaim(&claim.Spec)
		if err != nil {
			return nil, fmt.Errorf("the claim %s: %w", name, err)
		}
		if wanted == nil {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("the claims %s and %s both have a guarantee: a pod has one", found.claim, name)
		}
		found = &decision{claim: name, uid: claim.UID, pod: scheduler.Pod{UID: string(pod.UID), Guarantee: *wanted, Gang: 1}}
	}
	if found == nil {
		return nil, nil
	}
	var err error
	if found.pod.Tenant, err = guarantee.TenantOf(pod, p.prefix); err != nil {
		return nil, err
	}
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		state, err := p.handle.PodGroupManager().PodGroupStates().Get(pod.Namespace, *group.PodGroupName)
		if err != nil {
			return nil, fmt.Errorf("the PodGroup %s: %w", *group.PodGroupName, err)
		}
		found.pod.Gang = max(1, state.AllPodsCount())
	}
	return found, nil
}

// unchanged returns an error if the claim is another one than the one that was decided about.
func (p *Plugin) unchanged(decision *decision) error {
	claim, err := p.handle.SharedDRAManager().ResourceClaims().Get(decision.claim.Namespace, decision.claim.Name)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the claim %s went away", decision.claim)
	case err != nil:
		return fmt.Errorf("the claim %s: %w", decision.claim, err)
	case claim.UID != decision.uid:
		return fmt.Errorf("the claim %s was replaced by another one after the place was reserved", decision.claim)
	}
	wanted, err := guarantee.FromClaim(&claim.Spec)
	if err != nil {
		return fmt.Errorf("the claim %s: %w", decision.claim, err)
	}
	if wanted == nil || *wanted != decision.pod.Guarantee {
		return errors.New("the claim " + decision.claim.String() + " changed after the place was reserved")
	}
	return nil
}
