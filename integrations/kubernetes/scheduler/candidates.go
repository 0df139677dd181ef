package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	"github.com/tailbound/tailbound/integrations/kubernetes/place"
)

// Candidates returns those of the nodes on which the service would admit the pod now, or a
// [*Refusal].
//
// The first pod of a gang asks for a placement of the whole gang, which the next pods follow if all
// of its nodes are there. It is only a proposal: if the scheduler has other reasons against one of
// these nodes, the gang's next try goes without.
func (a *Admission) Candidates(ctx context.Context, pod Pod, nodes []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, a.options.Deadline)
	defer cancel()
	fitting, err := a.candidates(ctx, pod, nodes)
	if err != nil {
		a.fail(pod.Tenant)
		return nil, err
	}
	return fitting, nil
}

func (a *Admission) candidates(ctx context.Context, pod Pod, nodes []string) ([]string, error) {
	planned, proposes := a.planned(pod, nodes)
	if len(planned) > 0 {
		return planned, nil
	}
	verdicts, live, err := a.askLive(ctx, pod, nodes)
	if err != nil {
		return nil, refusal(err)
	}
	if !live {
		if pod.Gang > 1 && proposes {
			if planned, err = a.propose(ctx, pod, nodes); len(planned) > 0 || err != nil {
				return planned, err
			}
		}
		wanted := tenantRequest(pod)
		answer, err := a.service.Candidates(ctx, place.Query{Request: &wanted, VMs: 1, Hosts: nodes})
		if err != nil {
			return nil, refusal(err)
		}
		verdicts = answer.Answers[0]
	}
	var fitting []string
	for _, candidate := range verdicts.Candidates {
		if candidate.Fits {
			fitting = append(fitting, candidate.Host)
		}
	}
	if len(fitting) == 0 {
		return nil, &Refusal{Sentence: a.sentence(ctx, pod, live, verdicts.Candidates)}
	}
	return fitting, nil
}

func (a *Admission) fail(name guarantee.Tenant) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	known := a.known(name)
	known.failed, known.plan = true, nil
}

// planned returns the nodes of the gang's plan that still have a place; none without a plan.
// proposes is true if the gang begins a try in which a plan may be asked for.
func (a *Admission) planned(pod Pod, nodes []string) (free []string, proposes bool) {
	if pod.Gang <= 1 {
		return nil, false
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if held := a.holds[pod.UID]; held != nil && held.state == idle && slices.Contains(nodes, held.host) {
		// The place of the try that went well.
		return []string{held.host}, false
	}
	taken, begins := map[string]int{}, true
	for _, held := range a.holds {
		if held.tenant == pod.Tenant && held.state != idle {
			taken[held.host]++
			begins = false
		}
	}
	known := a.known(pod.Tenant)
	if begins {
		known.failed, known.plan = false, nil
		known.tries++
		return nil, known.tries%2 == 1
	}
	for host, places := range known.plan {
		if places > taken[host] {
			free = append(free, host)
		}
	}
	slices.Sort(free)
	return free, false
}

// propose asks for a placement of a gang that has no place yet, and returns its nodes; none if the
// scheduler does not have one of them.
func (a *Admission) propose(ctx context.Context, pod Pod, nodes []string) ([]string, error) {
	explanation, err := a.service.Explain(ctx, tenantRequest(pod))
	if err != nil {
		return nil, refusal(err)
	}
	if !explanation.Fits {
		return nil, &Refusal{Sentence: explained(pod, explanation)}
	}
	plan := planOf(explanation.Hosts, nodes)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.known(pod.Tenant).plan = plan
	return slices.Sorted(maps.Keys(plan)), nil
}

// planOf returns the places on each host; nil if the scheduler does not have one of the hosts.
func planOf(shares []place.Share, nodes []string) map[string]int {
	there := make(map[string]bool, len(nodes))
	for _, node := range nodes {
		there[node] = true
	}
	plan := map[string]int{}
	for _, share := range shares {
		if !there[share.Host] {
			return nil
		}
		plan[share.Host] += share.VMs
	}
	return plan
}

func tenantRequest(pod Pod) place.TenantRequest {
	return place.TenantRequest{VMs: pod.Gang, Request: *pod.Guarantee.Request()}
}

// askLive asks for candidates of a tenant; live is false if the service does not have it.
func (a *Admission) askLive(ctx context.Context, pod Pod, nodes []string) (verdicts place.Verdicts, live bool, err error) {
	answer, err := a.service.Candidates(ctx, place.Query{Tenant: pod.Tenant.String(), VMs: 1, Hosts: nodes})
	switch {
	case err == nil:
		return answer.Answers[0], true, nil
	case place.IsNotFound(err):
		return place.Verdicts{}, false, nil
	default:
		return place.Verdicts{}, false, err
	}
}

// sentence says why no node takes the pod, and what would pass.
func (a *Admission) sentence(ctx context.Context, pod Pod, live bool, candidates []place.Candidate) string {
	if len(candidates) == 0 {
		return "there is no node to ask about"
	}
	if !live {
		// The service knows the nearest requests that pass. Without an answer the verdicts remain.
		if explanation, err := a.service.Explain(ctx, tenantRequest(pod)); err == nil && !explanation.Fits {
			return explained(pod, explanation)
		}
	}
	return refused(pod, candidates)
}

// explained is the sentence for a tenant that fits nowhere.
func explained(pod Pod, explanation place.Explanation) string {
	var text strings.Builder
	fmt.Fprintf(&text, "no uplinks carry %d pods of %s with %s and bursts of %s: ", pod.Gang, pod.Tenant, pod.Guarantee.Bandwidth, pod.Guarantee.Burst)
	switch {
	case explanation.Overload != nil:
		fmt.Fprintf(&text, "%s refuses: %s", explanation.Overload.Port, explanation.Overload.Message)
	case explanation.Refusal != "":
		text.WriteString(explanation.Refusal)
	default:
		text.WriteString("the service names no uplink")
	}
	for i, nearest := range explanation.Nearest {
		separator := ", or "
		if i == 0 {
			separator = "; would pass: "
		}
		text.WriteString(separator + nearest.Change)
	}
	return text.String()
}

// refused is the sentence for one more pod of a tenant, from the verdicts about the nodes.
func refused(pod Pod, candidates []place.Candidate) string {
	best := candidates[0]
	for _, candidate := range candidates[1:] {
		if roomOf(candidate) > roomOf(best) {
			best = candidate
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "none of %d nodes takes one more pod of %s with %s and bursts of %s", len(candidates), pod.Tenant, pod.Guarantee.Bandwidth, pod.Guarantee.Burst)
	if best.Refusal == nil {
		return text.String()
	}
	port := ""
	if best.Refusal.Port != "" {
		port = best.Refusal.Port + " refuses: "
	}
	fmt.Fprintf(&text, "; at %s, %s%s", best.Host, port, best.Refusal.Sentence)
	if best.Headroom.Bandwidth != "" {
		fmt.Fprintf(&text, "; left there: %s and bursts of %s", best.Headroom.Bandwidth, best.Headroom.Burst)
	}
	return text.String()
}

// roomOf orders verdicts by what is left.
func roomOf(candidate place.Candidate) guarantee.Rate {
	rate, err := guarantee.RateFromText(candidate.Headroom.Bandwidth)
	if err != nil {
		return -1
	}
	return rate
}
