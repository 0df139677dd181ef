//go:build cluster

package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// guideBlock returns the YAML block of the guide that has a text.
func guideBlock(t *testing.T, word string) string {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/how-to/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	for block := range strings.SplitSeq(string(page), "```yaml\n") {
		if text, _, found := strings.Cut(block, "\n```"); found && strings.Contains(text, word) {
			return text + "\n"
		}
	}
	t.Fatalf("the guide has no block with %q", word)
	return ""
}

// read reads a block of the guide strictly.
func read[T any](t *testing.T, text string) T {
	t.Helper()
	var value T
	if err := yaml.UnmarshalStrict([]byte(text), &value); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return value
}

// guideAffinity returns the affinity that comments of the guide's claim show.
func guideAffinity(t *testing.T) *v1.Affinity {
	t.Helper()
	var text strings.Builder
	for line := range strings.Lines(guideBlock(t, "kind: ResourceClaimTemplate")) {
		if shown, isComment := strings.CutPrefix(line, "# "); isComment && (text.Len() > 0 || shown == "affinity:\n") && !strings.HasPrefix(shown, "A frame") {
			text.WriteString(shown)
		}
	}
	return read[struct{ Affinity *v1.Affinity }](t, text.String()).Affinity
}

// guidePods returns pods as the guide's one.
func guidePods(t *testing.T, change func(*v1.Pod)) []*v1.Pod {
	t.Helper()
	var pods []*v1.Pod
	for _, name := range []string{"web-0", "web-1", "web-2"} {
		pod := read[v1.Pod](t, guideBlock(t, "kind: Pod"))
		pod.Name, pod.Namespace = name, "default"
		change(&pod)
		pods = append(pods, &pod)
	}
	return pods
}

// The tutorial "A guarantee for a pod": its values, claim and pods, by the stock scheduler.
func TestTheGuide(t *testing.T) {
	values := read[map[string]any](t, guideBlock(t, "repository:"))
	tree, err := json.Marshal(values["tree"])
	if err != nil {
		t.Fatal(err)
	}
	topology := topologyOf(t, string(tree))
	c := startCluster(t)
	racks := map[string]string{"n0": "r0", "n1": "r0", "n2": "r1", "n3": "r1"}
	for node, rack := range racks {
		c.addHosts(guarantee.BySum, host{node, map[string]string{"example.com/rack": rack}, topology.Node()})
	}
	c.addTree(topology)
	c.startScheduler("")
	template := read[resourceapi.ResourceClaimTemplate](t, guideBlock(t, "kind: ResourceClaimTemplate"))
	c.must(c.client.ResourceV1().ResourceClaimTemplates("default").Create(t.Context(), &template, metav1.CreateOptions{}))
	affinity := guideAffinity(t)
	c.addPods(guidePods(t, func(pod *v1.Pod) { pod.Spec.Affinity = affinity })...)
	c.eventually("the pods are bound", 30*time.Second, func() bool { return len(c.placed("web-")) == 3 })
	used := map[string]bool{}
	for _, node := range c.placed("web-") {
		used[racks[node]] = true
	}
	if len(used) != 1 {
		t.Errorf("the pods are in racks %v: the claim is within one", used)
	}
}

// The tutorial's exact admission, by the placement service itself.
func TestTheGuideWithTheService(t *testing.T) {
	made := newFabric(1, 2, 3)
	service := startReal(t, made.toml)
	c := startCluster(t)
	c.addHosts(guarantee.ByService, made.hosts...)
	c.addTree(topologyOf(t, made.tree))
	c.addTemplate("web", read[resourceapi.ResourceClaimSpec](t, guideBlock(t, "kind: Guarantee")))
	c.startScheduler(service.url)
	c.addPods(guidePods(t, func(pod *v1.Pod) { pod.Spec.SchedulerName = "tailbound" })...)
	c.eventually("the pods are bound", 30*time.Second, func() bool { return len(c.placed("web-")) == 3 })
}
