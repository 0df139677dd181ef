//go:build cluster

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/driver"
	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// The guarantee of the claim: in bits a second, and in bytes.
const (
	wireRate  = 100_000_000
	wireBurst = 15_000
)

// build builds a program of this module.
func build(t *testing.T, directory, of string) string {
	t.Helper()
	path := filepath.Join(directory, filepath.Base(of))
	if said, err := exec.Command("go", "build", "-p", "1", "-o", path, of).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", of, err, said)
	}
	return path
}

// nodeDriver is the process of tailbound-dra.
type nodeDriver struct {
	c       *cluster
	records string
	calls   drapb.DRAPluginClient
}

// startDriver starts the driver of a node, beside a program in place of the node's tailbound.
func (c *cluster) startDriver(node, tailbound string) *nodeDriver {
	c.t.Helper()
	// The path of a socket has at most 107 bytes.
	directory, err := os.MkdirTemp("", "dra")
	c.must(directory, err)
	c.t.Cleanup(func() { _ = os.RemoveAll(directory) })
	records := filepath.Join(directory, "claims")
	c.must(nil, os.MkdirAll(filepath.Join(directory, "plugins_registry"), 0o700))
	command := exec.Command(build(c.t, directory, "../cmd/tailbound-dra"), "--node", node, "--kubeconfig", c.kubecfg, "--kubelet", directory,
		"--records", records, "--tailbound", tailbound, "--rate", "10G", "--up", "151538", "--down", "301538", "--observe", "200ms")
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	c.must(nil, command.Start())
	c.t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		_ = command.Wait()
	})
	socket := filepath.Join(directory, "plugins", guarantee.Driver, "dra.sock")
	c.eventually("the driver listens", time.Minute, func() bool {
		_, err := os.Stat(socket)
		return err == nil
	})
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	c.must(connection, err)
	c.t.Cleanup(func() { _ = connection.Close() })
	return &nodeDriver{c: c, records: records, calls: drapb.NewDRAPluginClient(connection)}
}

// prepare calls the driver as kubelet does before it starts a pod.
func (d *nodeDriver) prepare(claim *resourceapi.ResourceClaim) {
	d.c.t.Helper()
	answer, err := d.calls.NodePrepareResources(d.c.t.Context(), &drapb.NodePrepareResourcesRequest{
		Claims: []*drapb.Claim{{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}},
	})
	d.c.must(answer, err)
	if failure := answer.Claims[string(claim.UID)].Error; failure != "" {
		d.c.t.Fatal(failure)
	}
}

// condition returns the condition of a claim's device; an empty one if it has none.
func (c *cluster) condition(name string) metav1.Condition {
	c.t.Helper()
	claim, err := c.client.ResourceV1().ResourceClaims("default").Get(c.t.Context(), name, metav1.GetOptions{})
	c.must(claim, err)
	if len(claim.Status.Devices) != 1 || len(claim.Status.Devices[0].Conditions) != 1 {
		return metav1.Condition{}
	}
	return claim.Status.Devices[0].Conditions[0]
}

// onTheWire starts the pod by a container runtime on an emulated node whose kernel has fq, and measures a burst
// of it. It returns what `tailbound adopt --list --output json` prints of the pod there.
func onTheWire(t *testing.T, script string, pod *v1.Pod, records string) string {
	t.Helper()
	directory := t.TempDir()
	text, err := json.Marshal(pod)
	if err == nil {
		err = os.WriteFile(filepath.Join(directory, "pod.json"), text, 0o600)
	}
	if err == nil {
		err = os.CopyFS(filepath.Join(directory, "claims"), os.DirFS(records))
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, script, build(t, directory, "./sandbox"), directory, fmt.Sprint(wireRate), fmt.Sprint(wireBurst))
	command.Stderr = os.Stderr
	printed, err := command.Output()
	list := ""
	for line := range strings.Lines(string(printed)) {
		if rest, isList := strings.CutPrefix(line, "list "); isList {
			list = rest
			continue
		}
		t.Log(strings.TrimSpace(line))
	}
	if err != nil {
		t.Fatalf("the claim does not reach the wire: %v", err)
	}
	return list
}

// From a claim to the wire: API server, stock scheduler, process of the driver, claim's file, containerd, CNI chain,
// programs on interfaces, departures from the uplink.
func TestAClaimReachesTheWire(t *testing.T) {
	script := os.Getenv("TAILBOUND_POD_GUEST")
	if script == "" {
		t.Skip("the variable TAILBOUND_POD_GUEST does not name scripts/pod-guest: use make pod-guest")
	}
	c, _ := small(t, guarantee.BySum)
	c.startScheduler("")
	// The driver publishes the slice itself.
	c.must(nil, c.client.ResourceV1().ResourceSlices().Delete(t.Context(), "node-n0", metav1.DeleteOptions{}))
	path, adopt := program(t)
	node := c.startDriver("n0", path)
	// The claim counts the packet with which the pod exceeds its burst: a frame.
	c.addTemplate("wire", nodeClaim(fmt.Sprint(wireRate), fmt.Sprint(int64(wireBurst+guarantee.MinFrame))))
	// Only the driver's own node has this label.
	n0, err := c.client.CoreV1().Nodes().Get(t.Context(), "n0", metav1.GetOptions{})
	c.must(n0, err)
	n0.Labels["kubernetes.io/hostname"] = "n0"
	c.must(c.client.CoreV1().Nodes().Update(t.Context(), n0, metav1.UpdateOptions{}))
	c.addPods(pod("web", "wire", func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "n0"} }))
	c.eventually("web is bound", time.Minute, func() bool { return c.placed("web")["web"] == "n0" })
	bound := c.pod("web")
	name := *bound.Status.ResourceClaimStatuses[0].ResourceClaimName
	claim, err := c.client.ResourceV1().ResourceClaims("default").Get(t.Context(), name, metav1.GetOptions{})
	c.must(claim, err)
	node.prepare(claim)
	c.eventually("the claim is prepared", time.Minute, func() bool { return c.condition(name).Reason == driver.ReasonPrepared })

	list := onTheWire(t, script, bound, node.records)
	// The driver reads what the emulated node enforced.
	adopt(list)
	c.eventually("the claim is enforced", time.Minute, func() bool { return c.condition(name).Reason == driver.ReasonEnforced })
	t.Log(c.condition(name).Message)
}
