//go:build cluster

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/cluster/kubelet"
	"github.com/tailbound/tailbound/integrations/kubernetes/driver"
	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// program stands for the node's tailbound: it prints what is in a file.
func program(t *testing.T) (path string, adopt func(document string)) {
	t.Helper()
	directory := t.TempDir()
	list, path := filepath.Join(directory, "list"), filepath.Join(directory, "tailbound")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n[ \"$*\" = 'adopt --list --output json' ] && exec cat "+list+"\necho \"$@\" >>"+list+".calls\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	adopt = func(document string) {
		if err := os.WriteFile(list, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	adopt(`{"guests":[]}`)
	return path, adopt
}

// The test stands for kubelet: it calls the driver by its socket.
func TestTheDriverOfANode(t *testing.T) {
	c, _ := small(t, guarantee.BySum)
	c.startScheduler("")
	// The driver publishes the slice itself.
	c.must(nil, c.client.ResourceV1().ResourceSlices().Delete(t.Context(), "node-n0", metav1.DeleteOptions{}))
	directory := t.TempDir()
	records := filepath.Join(directory, "records")
	store, err := driver.OpenStore(records)
	c.must(store, err)
	path, adopt := program(t)
	node := driver.New(driver.Config{Node: "n0", Store: store, Enforcer: driver.Program{Path: path}, Status: kubelet.Status{Client: c.client}})
	// Cleanups end the helper before the API server.
	ctx, cancel := context.WithCancel(context.Background())
	helper, err := kubeletplugin.Start(ctx, &kubelet.Plugin{Driver: node, Fatal: func(err error) { t.Error(err) }},
		kubeletplugin.KubeClient(c.client), kubeletplugin.NodeName("n0"), kubeletplugin.DriverName(guarantee.Driver),
		kubeletplugin.PluginDataDirectoryPath(directory), kubeletplugin.RegistrarDirectoryPath(directory))
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		helper.Stop()
	})
	c.must(nil, helper.PublishResources(ctx, kubelet.Resources("n0", uplink10G, guarantee.BySum)))
	c.eventually("the node's slice is published", 20*time.Second, func() bool {
		slices, err := c.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=n0"})
		c.must(slices, err)
		return len(slices.Items) == 1 && len(slices.Items[0].OwnerReferences) == 1
	})
	trees, err := c.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "="})
	if c.must(trees, err); len(trees.Items) != 2 {
		t.Fatalf("the driver of a node left %d of 2 slices of the tree", len(trees.Items))
	}

	named := pod("web", "net")
	named.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "n0"}
	n0, err := c.client.CoreV1().Nodes().Get(t.Context(), "n0", metav1.GetOptions{})
	c.must(n0, err)
	n0.Labels["kubernetes.io/hostname"] = "n0"
	c.must(c.client.CoreV1().Nodes().Update(t.Context(), n0, metav1.UpdateOptions{}))
	c.addPods(named)
	c.eventually("web is bound", 20*time.Second, func() bool { return c.placed("web")["web"] == "n0" })
	bound := c.pod("web")
	name := *bound.Status.ResourceClaimStatuses[0].ResourceClaimName
	claim, err := c.client.ResourceV1().ResourceClaims("default").Get(t.Context(), name, metav1.GetOptions{})
	c.must(claim, err)

	socket := filepath.Join(directory, "dra.sock")
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	c.must(connection, err)
	defer connection.Close()
	calls := drapb.NewDRAPluginClient(connection)
	asked := &drapb.Claim{Namespace: "default", Name: name, Uid: string(claim.UID)}
	prepare := func(claim *drapb.Claim) string {
		t.Helper()
		answer, err := calls.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{claim}})
		c.must(answer, err)
		return answer.Claims[claim.Uid].Error
	}
	unprepare := func() {
		t.Helper()
		answer, err := calls.NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{asked}})
		c.must(answer, err)
		if failure := answer.Claims[asked.Uid].Error; failure != "" {
			t.Fatal(failure)
		}
	}
	condition := func() metav1.Condition {
		t.Helper()
		claim, err := c.client.ResourceV1().ResourceClaims("default").Get(t.Context(), name, metav1.GetOptions{})
		c.must(claim, err)
		if len(claim.Status.Devices) != 1 || len(claim.Status.Devices[0].Conditions) != 1 {
			t.Fatalf("devices %+v", claim.Status.Devices)
		}
		return claim.Status.Devices[0].Conditions[0]
	}

	unprepare()
	for range 2 {
		if failure := prepare(asked); failure != "" {
			t.Fatal(failure)
		}
	}
	if got := condition(); got.Reason != driver.ReasonPrepared {
		t.Errorf("condition %+v", got)
	}
	record, err := os.ReadFile(filepath.Join(records, string(bound.UID)+".json"))
	if err != nil || !strings.Contains(string(record), `"guarantee":"2Gbit/s,70KB"`) {
		t.Errorf("record %s, %v", record, err)
	}
	adopt(`{"guests":[{"in_force":true,"key":"pod/` + string(bound.UID) + `","name":"web","uplink":"eth1","steps":[
		{"action":"guest","rules":{"guarantee":{"rate":"2Gbit/s","burst":"70KB"}}}]}]}`)
	c.must(nil, node.Observe(t.Context()))
	if got := condition(); got.Status != metav1.ConditionTrue || !strings.Contains(got.Message, "eth1 within 2Gbit/s") {
		t.Errorf("condition %+v", got)
	}
	replaced := &drapb.Claim{Namespace: "default", Name: name, Uid: "another"}
	if _, err := calls.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{replaced}}); err == nil || !strings.Contains(err.Error(), "got replaced") {
		t.Errorf("a claim that was replaced: %v", err)
	}
	for range 2 {
		unprepare()
	}
	if _, err := os.Stat(filepath.Join(records, string(bound.UID)+".json")); !os.IsNotExist(err) {
		t.Errorf("the record is left: %v", err)
	}
	// The claim is deleted while a report is on its way.
	c.deletePods("web")
	c.must(nil, kubelet.Status{Client: c.client}.SetDevice(t.Context(), driver.ClaimRef{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}, UID: claim.UID}, resourceapi.AllocatedDeviceStatus{}))
}
