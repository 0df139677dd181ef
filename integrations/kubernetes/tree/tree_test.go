package tree

import (
	"strings"
	"testing"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
)

const topology = `{
  "node": {"rate": "10G", "up": 62500, "down": 300000},
  "levels": [
    {"name": "rack", "label": "example.com/rack", "uplinks": {
      "r0": {"rate": "40G", "up": 1000000, "down": 1000000},
      "r1": {"rate": "40G", "up": 500000, "down": 1000000}}},
    {"name": "pod", "label": "example.com/pod", "uplinks": {
      "p0": {"rate": "100G", "up": 2000000, "down": 2000000}}}
  ]
}`

func parsed(t *testing.T) *Topology {
	t.Helper()
	found, err := Parse([]byte(topology))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestMistakesInATopologyAreNamed(t *testing.T) {
	for name, test := range map[string]struct{ from, to, word string }{
		"a key":           {`"levels"`, `"level"`, "level"},
		"a name":          {`"name": "rack"`, `"name": "Rack"`, "levels[0].name"},
		"the nodes' name": {`"name": "rack"`, `"name": "node"`, "levels[0].name"},
		"the same name":   {`"name": "pod"`, `"name": "rack"`, "two levels"},
		"a label":         {`"label": "example.com/pod"`, `"label": ""`, "levels[1].label"},
		"a group's name":  {`"r1"`, `"r_1"`, "levels[0].uplinks"},
		"a rate":          {`"rate": "40G", "up": 5`, `"rate": "40", "up": 5`, "levels[0].uplinks.r1: rate"},
		"a buffer":        {`"up": 62500`, `"up": 625`, "node: the buffer up"},
		"a lateness":      {`"up": 500000`, `"latenessNanoseconds": 5, "up": 500000`, "switches have none"},
		"a packet":        {`"up": 62500`, `"up": 62500, "packet": 80000`, "node: the buffer up"},
		"a rack's packet": {`"up": 500000`, `"packet": 1538, "up": 500000`, "switches forward frames"},
		"an end":          {"]\n}", "]\n} x", "topology"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(topology, test.from, test.to, 1)
			if text == topology {
				t.Fatal("the mistake is not made")
			}
			if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), test.word) {
				t.Errorf("error %v, expected %q in it", err, test.word)
			}
		})
	}
}

func TestSlicesAreDevicesOfTheNodesBelow(t *testing.T) {
	slices := parsed(t).Slices(7)
	if len(slices) != 3 {
		t.Fatalf("%d slices", len(slices))
	}
	first := slices[0]
	if first.Name != "tailbound-rack-r0" || first.Spec.Pool.Name != "rack/r0" || first.Spec.Pool.Generation != 7 || first.Spec.NodeName != nil {
		t.Errorf("slice %+v", first)
	}
	term := first.Spec.NodeSelector.NodeSelectorTerms[0].MatchExpressions[0]
	if term.Key != "example.com/rack" || len(term.Values) != 1 || term.Values[0] != "r0" {
		t.Errorf("selector %+v", term)
	}
	burst := first.Spec.Devices[0].Capacity[guarantee.CapacityBurst]
	if burst.Value.Value() != 1_000_000-1_538 {
		t.Errorf("burst %v", burst)
	}
	if classes := parsed(t).Classes(); len(classes) != 3 || classes[1].Name != "rack.tailbound.dev" ||
		classes[0].Spec.Selectors[0].CEL.Expression != `device.driver == "tailbound.dev" && device.attributes["tailbound.dev"].level == "node"` {
		t.Errorf("classes %+v", classes)
	}
}

// The numbers are those of the rules in docs/explanation/placement.md, by hand: a queue's capacity
// is its buffer over its rate, and a pod sends one packet, here a frame, beyond its burst (50 us and 240 us at nodes, 200 us at racks, 160 us at pods).
func TestDemandsCountTheQueuesBefore(t *testing.T) {
	wanted := guarantee.Guarantee{Bandwidth: 800_000_000, Burst: 15_000}
	demands, err := parsed(t).Demand(wanted, 3, Anywhere)
	if err != nil {
		t.Fatal(err)
	}
	// 800 Mbit/s are 100 bytes a microsecond.
	for i, want := range []Demand{
		{Level: "node", Bandwidth: 800_000_000, Burst: 16_538, BurstIn: 2*16_538 + 100*(50+200+160+160+200)},
		{Level: "rack", Bandwidth: 800_000_000, Burst: 16_538 + 100*50, BurstIn: 2*16_538 + 100*(50+200+160+160)},
		{Level: "pod", Bandwidth: 800_000_000, Burst: 16_538 + 100*250, BurstIn: 2*16_538 + 100*(50+200+160)},
	} {
		if demands[i] != want {
			t.Errorf("demand %+v, expected %+v", demands[i], want)
		}
	}
	within, err := parsed(t).Demand(wanted, 3, "rack")
	if err != nil || len(within) != 1 || within[0].BurstIn != 2*16_538+100*50 {
		t.Errorf("demands within a rack: %+v, %v", within, err)
	}
	if claim := Claim(demands); len(claim.Devices.Requests) != 3 || claim.Devices.Requests[0].Exactly.DeviceClassName != guarantee.NodeClass {
		t.Errorf("claim %+v", claim)
	}
	counted := guarantee.Guarantee{Bandwidth: wanted.Bandwidth, Burst: wanted.Burst + parsed(t).Node().Counted(guarantee.BySum)}
	if got, err := guarantee.FromClaim(ptr(Claim(demands))); err != nil || *got != counted {
		t.Errorf("the claim's guarantee is %+v, %v", got, err)
	}
	if _, err := parsed(t).Demand(wanted, 3, "row"); err == nil || !strings.Contains(err.Error(), `"rack", "pod"`) {
		t.Errorf("error %v", err)
	}
	if _, err := parsed(t).Demand(wanted, 1, Anywhere); err == nil {
		t.Error("a tenant of one pod has a demand")
	}
}

func ptr[T any](value T) *T { return &value }

func TestAnAffinityKeepsATenantTogether(t *testing.T) {
	affinity := parsed(t).Affinity("rack", "web")
	term := affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
	if term.TopologyKey != "example.com/rack" || term.LabelSelector.MatchLabels[guarantee.TenantLabel] != "web" {
		t.Errorf("term %+v", term)
	}
	if parsed(t).Affinity(Anywhere, "web") != nil {
		t.Error("an affinity to anywhere")
	}
	if got := parsed(t).Longest("rack"); got != 290*time.Microsecond {
		t.Errorf("within a rack %s", got)
	}
	if got := parsed(t).Longest(Anywhere); got != (290+400+320)*time.Microsecond {
		t.Errorf("anywhere %s", got)
	}
}
