//go:build cluster

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	"github.com/tailbound/tailbound/integrations/kubernetes/tree"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The stock scheduler, without a plugin: a node's bursts admit two pods, a rack's three.
func TestTheTreeInTheStockScheduler(t *testing.T) {
	c, _ := small(t, guarantee.BySum)
	c.startScheduler("")
	demands := []tree.Demand{
		{Level: "node", Bandwidth: 2_000_000_000, Burst: 70_000, BurstIn: 70_000},
		{Level: "rack", Bandwidth: 2_000_000_000, Burst: 70_000, BurstIn: 70_000},
	}
	c.addTemplate("both", tree.Claim(demands))
	for i := range 8 {
		c.addPods(pod(fmt.Sprintf("web-%d", i), "both"))
	}
	c.eventually("six are bound", 30*time.Second, func() bool { return len(c.placed("web-")) == 6 })
	time.Sleep(3 * time.Second)
	placed := c.placed("web-")
	nodes, racks := map[string]int{}, map[string]int{}
	for _, node := range placed {
		nodes[node]++
		racks[map[string]string{"n0": "r0", "n1": "r0", "n2": "r1", "n3": "r1"}[node]]++
	}
	if len(placed) != 6 || slices.Max(slices.Collect(maps.Values(nodes))) > 2 || slices.Max(slices.Collect(maps.Values(racks))) > 3 {
		t.Fatalf("placed %v: a node has at most two, a rack three", placed)
	}
	for i := range 8 {
		name := fmt.Sprintf("web-%d", i)
		if placed[name] == "" {
			c.eventuallyRefused(name, "cannot allocate all claims")
			continue
		}
		claim, err := c.client.ResourceV1().ResourceClaims("default").Get(t.Context(), *c.pod(name).Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
		c.must(claim, err)
		_, allocated, err := guarantee.Allocated(claim, placed[name], 0)
		if err != nil || allocated.String() != "2Gbit/s,70KB" || len(claim.Status.Allocation.Devices.Results) != 2 {
			t.Errorf("%s has %v of %+v, %v", name, allocated, claim.Status.Allocation, err)
		}
	}
}

// A claim that leaves a capacity out takes all of it: nothing that it may send is left uncounted.
func TestAnIncompleteClaimTakesTheWholeUplink(t *testing.T) {
	c, _ := small(t, guarantee.BySum)
	c.startScheduler("")
	c.addTemplate("incomplete", nodeClaim("2G", "70k"))
	template, err := c.client.ResourceV1().ResourceClaimTemplates("default").Get(t.Context(), "incomplete", metav1.GetOptions{})
	c.must(template, err)
	spec := template.Spec.Spec
	delete(spec.Devices.Requests[0].Exactly.Capacity.Requests, guarantee.CapacityBurst)
	c.addTemplate("without-burst", spec)
	for i := range 5 {
		c.addPods(pod(fmt.Sprintf("web-%d", i), "without-burst"))
	}
	c.eventually("one a node is bound", 30*time.Second, func() bool { return len(c.placed("web-")) == 4 })
	time.Sleep(2 * time.Second)
	if placed := c.placed("web-"); len(placed) != 4 {
		t.Errorf("placed %v", placed)
	}
}
