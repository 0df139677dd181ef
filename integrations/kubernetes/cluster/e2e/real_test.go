//go:build cluster

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	"github.com/tailbound/tailbound/integrations/kubernetes/tree"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// real is a placement service: the program that the variable TAILBOUND names.
type real struct {
	t   *testing.T
	url string
}

// startReal starts the service with a topology, or skips the test.
func startReal(t *testing.T, topology string) *real {
	t.Helper()
	program := os.Getenv("TAILBOUND")
	if program == "" {
		t.Skip("the variable TAILBOUND names no program")
	}
	directory := t.TempDir()
	path := filepath.Join(directory, "topology.toml")
	if err := os.WriteFile(path, []byte(topology), 0o600); err != nil {
		t.Fatal(err)
	}
	listen := freeAddress(t).Host
	command := exec.Command(program, "place", "serve", "--listen", listen, "--insecure-loopback",
		"--store", "sqlite:"+filepath.Join(directory, "place.db"), "--topology", path)
	command.Env = append(os.Environ(), "TAILBOUND_LOG=warn")
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		_ = command.Wait()
	})
	service := &real{t: t, url: "http://" + listen}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		response, err := http.Get(service.url + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return service
			}
		}
		if time.Now().After(end) {
			t.Fatalf("the service is not ready: %v", err)
		}
	}
}

// call sends a request, and returns the status and the answer.
func (r *real) call(method, path string, body any) (int, string) {
	r.t.Helper()
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			r.t.Fatal(err)
		}
	}
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, bytes.NewReader(sent))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// tenant is a request of the comparison.
type tenant struct {
	name   string
	pods   int
	wanted guarantee.Guarantee
}

func (t tenant) request(placement []map[string]any) map[string]any {
	request := map[string]any{
		"owner": "k8s-default", "name": t.name, "vms": t.pods,
		"guarantee": map[string]any{"bandwidth": t.wanted.Bandwidth.String(), "burst": t.wanted.Burst.String()},
	}
	if placement != nil {
		request["placement"] = placement
	}
	return request
}

// fabric is a data centre of pods, racks and hosts, as TOML and as the chart's values.
type fabric struct {
	toml, tree string
	hosts      []host
}

const slotsPerHost = 8

func newFabric(pods, racks, hosts int) fabric {
	var made fabric
	made.toml = "frame = \"1538B\"\n"
	var rackLinks, podLinks []string
	for p := range pods {
		pod := fmt.Sprintf("p%d", p)
		made.toml += fmt.Sprintf("[[group]]\nname = %q\nuplink = { rate = \"100Gbit/s\", buffer = \"2MB\" }\n", pod)
		podLinks = append(podLinks, fmt.Sprintf("%q: {\"rate\": \"100G\", \"up\": 2000000, \"down\": 2000000}", pod))
		for r := range racks {
			rack := fmt.Sprintf("%s-r%d", pod, r)
			made.toml += fmt.Sprintf("[[group]]\nname = %q\nparent = %q\nuplink = { rate = \"40Gbit/s\", buffer = \"1MB\" }\n", rack, pod)
			rackLinks = append(rackLinks, fmt.Sprintf("%q: {\"rate\": \"40G\", \"up\": 1000000, \"down\": 1000000}", rack))
			for h := range hosts {
				name := fmt.Sprintf("%s-h%d", rack, h)
				made.toml += fmt.Sprintf("[[host]]\nname = %q\ngroup = %q\nslots = %d\nuplink = { rate = \"10Gbit/s\", buffer = \"300KB\", up_buffer = \"62500B\" }\n", name, rack, slotsPerHost)
				made.hosts = append(made.hosts, host{
					name: name, labels: map[string]string{"example.com/rack": rack, "topology.kubernetes.io/zone": pod},
					uplink: guarantee.Uplink{Rate: 10_000_000_000, Up: 62_500, Down: 300_000, Frame: 1_538},
				})
			}
		}
	}
	made.tree = fmt.Sprintf(`{"node": {"rate": "10G", "up": 62500, "down": 300000}, "levels": [
		{"name": "rack", "label": "example.com/rack", "uplinks": {%s}},
		{"name": "pod", "label": "topology.kubernetes.io/zone", "uplinks": {%s}}]}`, strings.Join(rackLinks, ","), strings.Join(podLinks, ","))
	return made
}

func tenants(count int) []tenant {
	random := rand.New(rand.NewPCG(1, 1))
	var all []tenant
	for i := range count {
		all = append(all, tenant{
			name: fmt.Sprintf("t%03d", i), pods: 2 + random.IntN(7),
			wanted: guarantee.Guarantee{
				Bandwidth: guarantee.Rate(50+50*random.IntN(10)) * 1_000_000,
				Burst:     guarantee.Bytes(3+random.IntN(13)) * 1_000,
			},
		})
	}
	return all
}

// byExact admits tenants by the service, and returns the number of pods of those that it admitted.
func byExact(service *real, all []tenant) (tenants, pods int) {
	for _, tenant := range all {
		switch status, text := service.call(http.MethodPost, "/v1/tenants", tenant.request(nil)); status {
		case http.StatusCreated:
			tenants, pods = tenants+1, pods+tenant.pods
		case http.StatusConflict:
		default:
			service.t.Fatalf("%d %s", status, text)
		}
	}
	return tenants, pods
}

// bySum admits tenants by the stock scheduler, each as a gang within a rack, and returns the nodes
// of those that it admitted.
func bySum(c *cluster, topology *tree.Topology, all []tenant) map[string]map[string]string {
	admitted := map[string]map[string]string{}
	for _, tenant := range all {
		demands, err := topology.Demand(tenant.wanted, tenant.pods, "rack")
		c.must(demands, err)
		c.addTemplate(tenant.name, tree.Claim(demands))
		c.addGang(tenant.name, int32(tenant.pods))
		for i := range tenant.pods {
			c.addPods(pod(fmt.Sprintf("%s-%d", tenant.name, i), tenant.name, inGang(tenant.name), ofTenant(tenant.name),
				func(pod *v1.Pod) { pod.Spec.Affinity = topology.Affinity("rack", tenant.name) }))
		}
		c.eventually(tenant.name+" is placed or refused", 30*time.Second, func() bool {
			group, err := c.client.SchedulingV1beta1().PodGroups("default").Get(c.t.Context(), tenant.name, metav1.GetOptions{})
			c.must(group, err)
			for _, condition := range group.Status.Conditions {
				if condition.Status == metav1.ConditionFalse {
					return true
				}
			}
			return len(c.placed(tenant.name+"-")) == tenant.pods
		})
		if placed := c.placed(tenant.name + "-"); len(placed) == tenant.pods {
			admitted[tenant.name] = placed
		} else {
			c.deletePods(tenant.name + "-")
		}
	}
	return admitted
}

// The stock scheduler admits at least 60 % of the pods that the exact one admits, and none of its
// placements breaks a bound of the exact one.
func TestTheTreeBesideTheExact(t *testing.T) {
	made := newFabric(2, 3, 6)
	all := tenants(90)
	exactly := startReal(t, made.toml)
	tenantsExact, podsExact := byExact(exactly, all)

	topology := topologyOf(t, made.tree)
	c := startCluster(t)
	for i := range made.hosts {
		made.hosts[i].uplink.Lateness = 0
	}
	c.addHosts(guarantee.BySum, made.hosts...)
	c.limitPods(slotsPerHost)
	c.addTree(topology)
	c.startScheduler("")
	admitted := bySum(c, topology, all)
	podsSum, broken, judged := 0, 0, 0
	check := startReal(t, made.toml)
	for _, tenant := range all {
		nodes := admitted[tenant.name]
		podsSum += len(nodes)
		if len(nodes) == 0 {
			continue
		}
		counts := map[string]int{}
		for _, node := range nodes {
			counts[node]++
		}
		var placement []map[string]any
		for node, count := range counts {
			placement = append(placement, map[string]any{"host": node, "vms": count})
		}
		switch status, text := check.call(http.MethodPost, "/v1/tenants", tenant.request(placement)); status {
		case http.StatusCreated:
			judged++
		case http.StatusConflict:
			broken++
			t.Errorf("%s on %v breaks a bound: %s", tenant.name, counts, text)
		default:
			t.Fatalf("the service takes no placement: %d %s", status, text)
		}
	}
	share := float64(podsSum) / float64(podsExact)
	t.Logf("exact: %d tenants, %d pods; stock: %d tenants, %d pods (%.0f %%); %d placements judged, %d bounds broken",
		tenantsExact, podsExact, len(admitted), podsSum, 100*share, judged, broken)
	if share < 0.6 {
		t.Errorf("the stock scheduler admits %.0f %% of the exact one's pods, and at least 60 %% are promised", 100*share)
	}
}

// limitPods gives all nodes this number of pods.
func (c *cluster) limitPods(count int) {
	c.t.Helper()
	nodes, err := c.client.CoreV1().Nodes().List(c.t.Context(), metav1.ListOptions{})
	c.must(nodes, err)
	for _, node := range nodes.Items {
		node.Status.Allocatable[v1.ResourcePods] = *resource.NewQuantity(int64(count), resource.DecimalSI)
		c.must(c.client.CoreV1().Nodes().UpdateStatus(c.t.Context(), &node, metav1.UpdateOptions{}))
	}
}

// The plugin with the real service: pods, a gang, and a refusal that names the uplink.
func TestThePluginWithTheRealService(t *testing.T) {
	made := newFabric(1, 2, 3)
	service := startReal(t, made.toml)
	c := startCluster(t)
	c.addHosts(guarantee.ByService, made.hosts...)
	c.addTree(topologyOf(t, made.tree))
	c.addTemplate("net", nodeClaim("500M", "15k"))
	c.startScheduler(service.url)
	machines := func() int {
		_, text := service.call(http.MethodGet, "/v1/tenants", nil)
		var page struct {
			Items []struct {
				Runs []struct{ Count int } `json:"runs"`
			} `json:"items"`
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, tenant := range page.Items {
			for _, run := range tenant.Runs {
				sum += run.Count
			}
		}
		return sum
	}
	for i := range 8 {
		c.addPods(pod(fmt.Sprintf("web-%d", i), "net", exact, ofTenant("web")))
	}
	c.eventually("web is bound", 30*time.Second, func() bool { return len(c.placed("web-")) == 8 })
	c.addGang("ring", 9)
	for i := range 9 {
		c.addPods(pod(fmt.Sprintf("ring-%d", i), "net", exact, inGang("ring")))
	}
	c.eventually("ring is bound", 30*time.Second, func() bool { return len(c.placed("ring-")) == 9 })
	c.eventually("the service has all machines", 10*time.Second, func() bool { return machines() == 17 })

	c.addGang("large", 40)
	for i := range 40 {
		c.addPods(pod(fmt.Sprintf("large-%d", i), "net", exact, inGang("large")))
	}
	c.eventuallyRefused("large-0", "no uplinks carry 40 pods of k8s-default/large")
	c.deletePods("large-")
	c.deletePods("ring-")
	c.deletePods("web-")
	c.eventually("the service has no machine", 30*time.Second, func() bool { return machines() == 0 })
}
