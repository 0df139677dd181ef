package driver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// fakes are the enforcer, the clock and the API server.
type fakes struct {
	enforced map[string]Enforcement
	failure  error
	now      time.Time
	reports  []metav1.Condition
	refuse   error
	asked    []string
	// refusal is the answer to Enforce; works makes it take effect.
	refusal error
	works   bool
}

func (f *fakes) Enforced(context.Context) (map[string]Enforcement, error) {
	return f.enforced, f.failure
}

func (f *fakes) Enforce(_ context.Context, record Record, rules []string) error {
	pod, text := record.Pod, record.Guarantee
	f.asked = append(f.asked, strings.Join(append([]string{"adopt", pod, text}, rules...), " "))
	if f.works {
		f.enforced = map[string]Enforcement{pod: {Bandwidth: 2_000_000_000, Burst: 70_000, Uplink: "eth1"}}
	}
	return f.refusal
}

func (f *fakes) Release(_ context.Context, pod string) error {
	f.asked = append(f.asked, "release "+pod)
	return f.refusal
}

func (f *fakes) SetDevice(_ context.Context, _ ClaimRef, device resourceapi.AllocatedDeviceStatus) error {
	if f.refuse != nil {
		return f.refuse
	}
	f.reports = append(f.reports, device.Conditions...)
	return nil
}

func (f *fakes) last() metav1.Condition {
	if len(f.reports) == 0 {
		return metav1.Condition{}
	}
	return f.reports[len(f.reports)-1]
}

func start(t *testing.T) (*Driver, *fakes, string) {
	t.Helper()
	directory := filepath.Join(t.TempDir(), "claims")
	store, err := OpenStore(directory)
	if err != nil {
		t.Fatal(err)
	}
	fake := &fakes{now: time.Unix(1_000, 0)}
	return New(Config{Node: "n1", Store: store, Enforcer: fake, Status: fake, Now: func() time.Time { return fake.now }}), fake, directory
}

func claim(uid, pod, bandwidth string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "web-net", Namespace: "shop", UID: types.UID(uid)},
		Status: resourceapi.ResourceClaimStatus{
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "web", UID: types.UID(pod)}},
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
				Request: "net", Driver: guarantee.Driver, Pool: "n1", Device: guarantee.DeviceName,
				ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
					guarantee.CapacityBandwidth: resource.MustParse(bandwidth), guarantee.CapacityBurst: resource.MustParse("70k"),
				},
			}}}},
		},
	}
}

func ref(uid string) ClaimRef {
	return ClaimRef{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web-net"}, UID: types.UID(uid)}
}

func files(t *testing.T, directory string) []string {
	t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestPrepareAndUnprepareTwiceAndInTheWrongOrder(t *testing.T) {
	driver, fake, directory := start(t)
	ctx := t.Context()
	if err := driver.Unprepare(ctx, ref("c1")); err != nil {
		t.Fatalf("unprepare before prepare: %v", err)
	}
	for range 2 {
		if err := driver.Prepare(ctx, claim("c1", "a1", "2G")); err != nil {
			t.Fatal(err)
		}
	}
	if got := files(t, directory); len(got) != 1 || got[0] != "a1.json" {
		t.Fatalf("files %v", got)
	}
	text, err := os.ReadFile(filepath.Join(directory, "a1.json"))
	if err != nil || !strings.Contains(string(text), `"guarantee":"2Gbit/s,70KB"`) || !strings.Contains(string(text), `"version":2`) {
		t.Fatalf("record %s, %v", text, err)
	}
	if len(fake.reports) != 1 || fake.last().Reason != ReasonPrepared {
		t.Fatalf("reports %+v", fake.reports)
	}
	for range 2 {
		if err := driver.Unprepare(ctx, ref("c1")); err != nil {
			t.Fatal(err)
		}
	}
	if got := files(t, directory); len(got) != 0 {
		t.Fatalf("left %v", got)
	}
	// Unprepare of a claim that had the same name does not touch the present one.
	if err := driver.Prepare(ctx, claim("c2", "a2", "2G")); err != nil {
		t.Fatal(err)
	}
	if err := driver.Unprepare(ctx, ref("c1")); err != nil || len(files(t, directory)) != 1 {
		t.Fatalf("the other claim's record went, too: %v", err)
	}
}

func TestAClaimThatChangedAfterItWasPrepared(t *testing.T) {
	driver, _, _ := start(t)
	ctx := t.Context()
	if err := driver.Prepare(ctx, claim("c1", "a1", "2G")); err != nil {
		t.Fatal(err)
	}
	for word, changed := range map[string]*resourceapi.ResourceClaim{
		"2Gbit/s,70KB for pod a1, and has 3Gbit/s,70KB": claim("c1", "a1", "3G"),
		"for pod a2 now":     claim("c1", "a2", "2G"),
		"has two guarantees": claim("c9", "a1", "2G"),
	} {
		if err := driver.Prepare(ctx, changed); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("error %v, expected %q in it", err, word)
		}
	}
	if err := driver.Unprepare(ctx, ref("c1")); err != nil {
		t.Fatal(err)
	}
	if err := driver.Prepare(ctx, claim("c1", "a1", "3G")); err != nil {
		t.Errorf("after an unprepare: %v", err)
	}
}

func TestClaimsThatCannotBePrepared(t *testing.T) {
	driver, _, directory := start(t)
	unallocated := claim("c1", "a1", "2G")
	unallocated.Status.Allocation = nil
	elsewhere := claim("c1", "a1", "2G")
	elsewhere.Status.Allocation.Devices.Results[0].Pool = "n2"
	shared := claim("c1", "a1", "2G")
	shared.Status.ReservedFor = append(shared.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", UID: "a2"})
	path := claim("c1", "../a1", "2G")
	for word, wrong := range map[string]*resourceapi.ResourceClaim{
		"not allocated": unallocated, "allocated on n2": elsewhere, "ResourceClaimTemplate": shared, "no UID": path,
	} {
		if err := driver.Prepare(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("error %v, expected %q in it", err, word)
		}
	}
	if got := files(t, directory); len(got) != 0 {
		t.Errorf("left %v", got)
	}
}

func TestConditionsFollowWhatIsEnforced(t *testing.T) {
	driver, fake, _ := start(t)
	ctx := t.Context()
	if err := driver.Observe(ctx); err != nil {
		t.Fatalf("without claims: %v", err)
	}
	if err := driver.Prepare(ctx, claim("c1", "a1", "2G")); err != nil {
		t.Fatal(err)
	}
	exact := Enforcement{Bandwidth: 2_000_000_000, Burst: 70_000, Uplink: "eth1"}
	for _, step := range []struct {
		name     string
		enforced map[string]Enforcement
		failure  error
		after    time.Duration
		status   metav1.ConditionStatus
		reason   string
		word     string
	}{
		{name: "no interface yet", after: 29 * time.Second, status: "False", reason: ReasonPrepared, word: "waits"},
		{name: "for too long", after: 2 * time.Second, status: "False", reason: ReasonNotEnforced, word: "not adopted"},
		{name: "in force", enforced: map[string]Enforcement{"a1": exact}, status: "True", reason: ReasonEnforced, word: "eth1 within 2Gbit/s and a burst of 70KB"},
		{name: "another rate", enforced: map[string]Enforcement{"a1": {Bandwidth: 1_000_000_000, Burst: 70_000}}, status: "False", reason: ReasonNotEnforced, word: "1Gbit/s"},
		{name: "guarded only", enforced: map[string]Enforcement{"a1": {}}, status: "False", reason: ReasonNotEnforced, word: "has 0bit/s"},
		{name: "no answer", failure: errors.New("exit status 2"), status: "Unknown", reason: ReasonUnknown, word: "does not answer"},
		{name: "again in force", enforced: map[string]Enforcement{"a1": exact}, status: "True", reason: ReasonEnforced, word: "eth1"},
	} {
		fake.enforced, fake.failure = step.enforced, step.failure
		fake.now = fake.now.Add(step.after)
		if err := driver.Observe(ctx); (err != nil) != (step.failure != nil) {
			t.Fatalf("%s: %v", step.name, err)
		}
		got := fake.last()
		if got.Status != step.status || got.Reason != step.reason || !strings.Contains(got.Message, step.word) {
			t.Errorf("%s: %+v", step.name, got)
		}
	}
	// The reason of a refusal is the program's.
	fake.enforced, fake.refusal = map[string]Enforcement{"a1": {Rules: []string{"--dscp", "46"}}}, errors.New("no fq in this kernel")
	if err := driver.Observe(ctx); err != nil || !strings.Contains(fake.last().Message, "no fq in this kernel") {
		t.Errorf("%+v, %v", fake.last(), err)
	}
	if last := fake.asked[len(fake.asked)-1]; last != "adopt a1 2Gbit/s,70KB --dscp 46" {
		t.Errorf("asked %q", last)
	}
	fake.refusal, fake.works = nil, true
	if err := driver.Observe(ctx); err != nil || fake.last().Status != metav1.ConditionTrue {
		t.Errorf("%+v, %v", fake.last(), err)
	}
	fake.works = false
	// Equal conditions are not sent again, and one that was not accepted is.
	sent := len(fake.reports)
	if err := driver.Observe(ctx); err != nil || len(fake.reports) != sent {
		t.Errorf("sent %d more, %v", len(fake.reports)-sent, err)
	}
	fake.enforced, fake.refuse = nil, errors.New("conflict")
	if err := driver.Observe(ctx); err == nil {
		t.Error("a report that was refused is no error")
	}
	fake.refuse = nil
	if err := driver.Observe(ctx); err != nil || fake.last().Reason != ReasonNotEnforced {
		t.Errorf("after a refused report: %+v, %v", fake.last(), err)
	}
}

func TestADriverThatStartsAgainKnowsItsRecords(t *testing.T) {
	driver, fake, directory := start(t)
	if err := driver.Prepare(t.Context(), claim("c1", "a1", "2G")); err != nil {
		t.Fatal(err)
	}
	store, err := OpenStore(directory)
	if err != nil {
		t.Fatal(err)
	}
	again := New(Config{Node: "n1", Store: store, Enforcer: fake, Status: fake, Now: func() time.Time { return fake.now }})
	fake.enforced = map[string]Enforcement{"a1": {Bandwidth: 2_000_000_000, Burst: 70_000}}
	if err := again.Observe(t.Context()); err != nil || fake.last().Status != metav1.ConditionTrue {
		t.Errorf("%+v, %v", fake.last(), err)
	}
	fake.refusal = errors.New("the journal is busy")
	if err := again.Unprepare(t.Context(), ref("c1")); err == nil || len(files(t, directory)) != 1 {
		t.Errorf("a release that failed is forgotten: %v", err)
	}
	fake.refusal = nil
	if err := again.Unprepare(t.Context(), ref("c1")); err != nil || len(files(t, directory)) != 0 || fake.asked[len(fake.asked)-1] != "release a1" {
		t.Errorf("unprepare: %v, asked %q", err, fake.asked)
	}
	if err := again.Prepare(t.Context(), claim("c1", "a1", "2G")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"b1.json": "{", "b2.json": `{"version":3,"pod":"b2"}`, "b3.json": `{"version":1,"pod":"a1"}`} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := again.Observe(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
		if err := os.Remove(filepath.Join(directory, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheListOfAdoptedGuestsIsRead(t *testing.T) {
	got, err := adopted([]byte(`{"kind":"adopted","schema":1,"guests":[
		{"in_force":true,"drops":{},"key":"pod/a1","name":"shop/web","uplink":"eth1","request":{"guard":false,"dscp":46,
			"outward":{"rate":"2Gbit/s","burst":"250KB"},"inward":null,"guarantee":null,"uplink":null,"interface":"eth0","mac":null,"ips":["10.0.0.1"]},"steps":[
			{"port":{"index":3,"name":"eth1"},"before":{},"action":"uplink","mark":0},
			{"port":{"index":7,"name":"veth7"},"before":{},"action":"guest","rules":{"guarantee":{"rate":"1.5Gbit/s","burst":"70KB"}}}]},
		{"in_force":false,"key":"pod/a2","name":"old","steps":[]},
		{"in_force":true,"key":"pod/a3/net1","name":"other","steps":[]},
		{"in_force":true,"key":"netns-9","name":"db","steps":[]}]}`))
	want := Enforcement{Bandwidth: 1_500_000_000, Burst: 70_000, Uplink: "eth1", Rules: []string{
		"--no-guard", "--dscp", "46", "--limit-out", "2Gbit/s,250KB", "--interface", "eth0", "--ip", "10.0.0.1"}}
	if err != nil || len(got) != 1 || !reflect.DeepEqual(got["a1"], want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, text := range []string{"", "[]", `{"guests":[{"in_force":true,"key":"pod/a1","steps":[{"action":"guest","rules":{"guarantee":{"rate":"fast","burst":"1KB"}}}]}]}`} {
		if got, err := adopted([]byte(text)); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
	program := filepath.Join(t.TempDir(), "tailbound")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho 'no BPF file system' >&2\nexit 2\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := (Program{Path: program}).Enforced(t.Context()); err == nil || !strings.Contains(err.Error(), "no BPF file system") {
		t.Errorf("error %v", err)
	}
}

func TestTheCNIPluginStaysWhileANetworkListsIt(t *testing.T) {
	binaries, configuration, program := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "tailbound")
	if err := InstallCNI(program, binaries); err == nil || len(files(t, binaries)) != 0 {
		t.Errorf("a program that is not there: %v, %v", err, files(t, binaries))
	}
	if err := os.WriteFile(program, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := InstallCNI(program, binaries); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(filepath.Join(binaries, CNIPlugin))
	if err != nil || info.Mode().Perm() != 0o755 || len(files(t, binaries)) != 1 {
		t.Errorf("%v, %v, %v", info, err, files(t, binaries))
	}
	list := filepath.Join(configuration, "10-pods.conflist")
	if err := os.WriteFile(list, []byte(`{"plugins":[{"type":"ptp"},{"type":"tailbound-cni"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if gone, err := RemoveCNI(binaries, configuration); gone || err != nil || len(files(t, binaries)) != 1 {
		t.Errorf("gone %t, %v", gone, err)
	}
	if err := os.Remove(list); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if gone, err := RemoveCNI(binaries, filepath.Join(configuration, "none")); !gone || err != nil || len(files(t, binaries)) != 0 {
			t.Errorf("gone %t, %v", gone, err)
		}
	}
}

// A pod sends a packet beyond its burst. Where the stock scheduler adds up claims, they count it.
func TestTheBurstOfAClaimCountsThePacket(t *testing.T) {
	driver, _, directory := start(t)
	driver.config.Packet, driver.config.Counted = 9_000, 9_000
	if err := driver.Prepare(t.Context(), claim("c1", "a1", "2G")); err != nil {
		t.Fatal(err)
	}
	records, err := driver.config.Store.All()
	if err != nil || len(records) != 1 || records[0].Guarantee != "2Gbit/s,61KB" || records[0].Packet != "9KB" {
		t.Fatalf("records %+v, %v", records, err)
	}
	program := filepath.Join(t.TempDir(), "tailbound")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$*\" >\"$0.asked\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (Program{Path: program}).Enforce(t.Context(), records[0], []string{"--no-guard"}); err != nil {
		t.Fatal(err)
	}
	asked, err := os.ReadFile(program + ".asked")
	if err != nil || string(asked) != "adopt pod/a1 --guarantee 2Gbit/s,61KB --packet 9KB --no-guard\n" {
		t.Errorf("asked %q, %v", asked, err)
	}
	// An earlier driver prepared another pod, whose kubelet starts again.
	earlier := `{"version":1,"pod":"a3","namespace":"shop","claim":"web-net","claim_uid":"c3","guarantee":"2Gbit/s,70KB","bandwidth_bit_s":2000000000,"burst_bytes":70000}`
	if err := os.WriteFile(filepath.Join(directory, "a3.json"), []byte(earlier), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := driver.Prepare(t.Context(), claim("c3", "a3", "3G")); err == nil {
		t.Error("another bandwidth replaces the first")
	}
	if err := driver.Prepare(t.Context(), claim("c3", "a3", "2G")); err != nil {
		t.Fatal(err)
	}
	if records, err = driver.config.Store.All(); err != nil || len(records) != 2 || records[1].Guarantee != "2Gbit/s,61KB" {
		t.Errorf("records %+v, %v", records, err)
	}
	driver.config.Counted = 69_000
	err = driver.Prepare(t.Context(), claim("c2", "a2", "2G"))
	if err == nil || !strings.Contains(err.Error(), "write at least 70538B") {
		t.Errorf("error %v", err)
	}
}
