package guarantee

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// wants fails unless an error has all words, or there is none and no words.
func wants(t *testing.T, err error, words ...string) {
	t.Helper()
	if len(words) == 0 {
		if err != nil {
			t.Fatalf("unexpected error: %v", err)
		}
		return
	}
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Fatalf("error %v, expected %q in it", err, word)
		}
	}
}

func TestUnitsAreStrict(t *testing.T) {
	for _, test := range []struct {
		rate, text string
		words      []string
	}{
		{rate: "2G", text: "2Gbit/s"},
		{rate: "2500M", text: "2500Mbit/s"},
		{rate: "100m", words: []string{"thousandths", `"100M"`}},
		{rate: "2", words: []string{"2bit/s", "bits a second", `"2M"`}},
		{rate: "2Gi", words: []string{"1,024", `write "2G"`}},
		{rate: "-2G", words: []string{"least"}},
		{rate: "2P", words: []string{"more than 1000Gbit/s"}},
		{rate: "1.5", words: []string{"thousandths"}},
	} {
		rate, err := ParseRate("bandwidth", resource.MustParse(test.rate))
		wants(t, err, test.words...)
		if err == nil && rate.String() != test.text {
			t.Errorf("%s is %s, expected %s", test.rate, rate, test.text)
		}
	}
	for _, test := range []struct {
		burst, text string
		words       []string
	}{
		{burst: "70k", text: "70KB"},
		{burst: "64Ki", text: "65536B"},
		{burst: "15", words: []string{"15B", "frame", `"15k"`}},
		{burst: "15m", words: []string{"thousandths"}},
		{burst: "2G", words: []string{"more than 1GB", "bytes"}},
	} {
		burst, err := ParseBurst("burst", resource.MustParse(test.burst))
		wants(t, err, test.words...)
		if err == nil && burst.String() != test.text {
			t.Errorf("%s is %s, expected %s", test.burst, burst, test.text)
		}
	}
}

func TestTextsOfTailboundAreReadExactly(t *testing.T) {
	for text, rate := range map[string]Rate{"1.5Gbit/s": 1_500_000_000, "250Mbit/s": 250_000_000, "7bit/s": 7} {
		if got, err := RateFromText(text); err != nil || got != rate {
			t.Errorf("%s is %d, %v", text, got, err)
		}
	}
	for text, size := range map[string]Bytes{"62.5KB": 62_500, "64KiB": 65_536, "1538B": 1_538} {
		if got, err := BytesFromText(text); err != nil || got != size {
			t.Errorf("%s is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "Gbit/s", "1e9bit/s", "1/2Gbit/s", "-1Mbit/s", "0.5bit/s", "1.2.3Mbit/s", "99999999999Gbit/s"} {
		if got, err := RateFromText(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

func request(class string, capacity map[resourceapi.QualifiedName]resource.Quantity) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: "net", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		Capacity: &resourceapi.CapacityRequirements{Requests: capacity},
	}}
}

func capacities(pairs ...string) map[resourceapi.QualifiedName]resource.Quantity {
	found := map[resourceapi.QualifiedName]resource.Quantity{}
	for i := 0; i < len(pairs); i += 2 {
		found[resourceapi.QualifiedName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return found
}

func opaque(text string) []resourceapi.DeviceClaimConfiguration {
	return []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: Driver, Parameters: runtime.RawExtension{Raw: []byte(text)}},
	}}}
}

func TestARequestHasAllPartsOfAGuarantee(t *testing.T) {
	whole := Guarantee{Bandwidth: 1_000_000_000, Burst: 15_000, Delay: time.Millisecond, BurstRate: 10_000_000_000, Bursts: 2, BurstIn: 60_000}
	text, err := json.Marshal(whole.Request())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"guarantee":{"bandwidth":"1Gbit/s","burst":"15KB","delay":"1000000ns","burst_rate":"10Gbit/s","bursts":2,"burst_in":"60KB"}}`
	if string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
}

func TestAClaimIsAGuarantee(t *testing.T) {
	whole := capacities("bandwidth", "2G", "burst", "70k")
	two := request(NodeClass, whole)
	two.Name = "other"
	many := request(NodeClass, whole)
	many.Exactly.Count = 2
	alternatives := resourceapi.DeviceRequest{Name: "net", FirstAvailable: []resourceapi.DeviceSubRequest{{DeviceClassName: NodeClass}}}
	head := `{"apiVersion":"tailbound.dev/v1","kind":"Guarantee"`
	for name, test := range map[string]struct {
		requests []resourceapi.DeviceRequest
		config   string
		want     *Guarantee
		words    []string
	}{
		"capacities":        {requests: []resourceapi.DeviceRequest{request(NodeClass, whole)}, want: &Guarantee{Bandwidth: 2_000_000_000, Burst: 70_000}},
		"another class":     {requests: []resourceapi.DeviceRequest{request("gpu.example.com", whole)}},
		"with a delay":      {requests: []resourceapi.DeviceRequest{request(NodeClass, whole)}, config: head + `,"delay":"1ms","burstRate":"10G","bursts":2}`, want: &Guarantee{Bandwidth: 2_000_000_000, Burst: 70_000, Delay: time.Millisecond, BurstRate: 10_000_000_000, Bursts: 2}},
		"an inward burst":   {requests: []resourceapi.DeviceRequest{request(NodeClass, whole)}, config: head + `,"burstIn":"240k"}`, want: &Guarantee{Bandwidth: 2_000_000_000, Burst: 70_000, BurstIn: 240_000}},
		"inward below one":  {requests: []resourceapi.DeviceRequest{request(NodeClass, whole)}, config: head + `,"burstIn":"60k"}`, words: []string{"burstIn", "below the burst"}},
		"no bandwidth":      {requests: []resourceapi.DeviceRequest{request(NodeClass, capacities("burst", "70k"))}, words: []string{"bandwidth is missing", "500M"}},
		"no burst":          {requests: []resourceapi.DeviceRequest{request(NodeClass, capacities("bandwidth", "2G"))}, words: []string{"burst is missing"}},
		"nothing":           {requests: []resourceapi.DeviceRequest{request(NodeClass, nil)}, words: []string{"no capacities", "bandwidth: 500M"}},
		"a mistyped name":   {requests: []resourceapi.DeviceRequest{request(NodeClass, capacities("bandwith", "2G"))}, words: []string{`"bandwith" is unknown`, "bandwidth"}},
		"two guarantees":    {requests: []resourceapi.DeviceRequest{request(NodeClass, whole), two}, words: []string{"one guarantee"}},
		"two uplinks":       {requests: []resourceapi.DeviceRequest{many}, words: []string{"one uplink"}},
		"alternatives":      {requests: []resourceapi.DeviceRequest{alternatives}, words: []string{"exactly"}},
		"unknown parameter": {requests: []resourceapi.DeviceRequest{request(NodeClass, whole)}, config: head + `,"delai":"1ms"}`, words: []string{"delai"}},
		"another version":   {requests: []resourceapi.DeviceRequest{request(NodeClass, whole)}, config: `{"apiVersion":"tailbound.dev/v2","kind":"Guarantee"}`, words: []string{"tailbound.dev/v2", `"tailbound.dev/v1"`}},
		"a time w/o unit":   {requests: []resourceapi.DeviceRequest{request(NodeClass, whole)}, config: head + `,"delay":"1"}`, words: []string{"1ms"}},
		"slow bursts":       {requests: []resourceapi.DeviceRequest{request(NodeClass, whole)}, config: head + `,"burstRate":"1G"}`, words: []string{"below the bandwidth"}},
		"a long delay":      {requests: []resourceapi.DeviceRequest{request(NodeClass, whole)}, config: head + `,"delay":"2s"}`, words: []string{"250ms"}},
		"something after":   {requests: []resourceapi.DeviceRequest{request(NodeClass, whole)}, config: head + `} {}`, words: []string{"follows"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: test.requests}}
			if test.config != "" {
				spec.Devices.Config = opaque(test.config)
			}
			got, err := FromClaim(spec)
			wants(t, err, test.words...)
			if err != nil {
				return
			}
			if (got == nil) != (test.want == nil) || (got != nil && *got != *test.want) {
				t.Errorf("got %+v, expected %+v", got, test.want)
			}
		})
	}
}

func TestThePartsOfAnAllocation(t *testing.T) {
	result := resourceapi.DeviceRequestAllocationResult{Driver: Driver, Pool: "n1", Device: DeviceName, ConsumedCapacity: capacities("bandwidth", "2G", "burst", "70k")}
	above := resourceapi.DeviceRequestAllocationResult{Driver: Driver, Pool: "rack/r0", Device: DeviceName, ConsumedCapacity: capacities("bandwidth", "9G")}
	claim := func(results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
		return &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}}}}
	}
	found, got, err := Allocated(claim(above, result), "n1", 0)
	wants(t, err)
	if found == nil || got.String() != "2Gbit/s,70KB" {
		t.Errorf("got %v of %v", got, found)
	}
	found, _, err = Allocated(claim(above), "n1", 0)
	wants(t, err)
	if found != nil {
		t.Errorf("a rack's uplink is %v", found)
	}
	_, _, err = Allocated(claim(result), "n2", 0)
	wants(t, err, "allocated on n1", "this is n2")
	_, _, err = Allocated(&resourceapi.ResourceClaim{}, "n1", 0)
	wants(t, err, "not allocated")
	result.ConsumedCapacity = nil
	_, _, err = Allocated(claim(result), "n1", 0)
	wants(t, err, "DRAConsumableCapacity")
}

func TestTheTenantOfAPod(t *testing.T) {
	group := "ring"
	long := strings.Repeat("a", 64)
	for name, test := range map[string]struct {
		pod   v1.Pod
		want  string
		words []string
	}{
		"alone":     {pod: v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "shop"}}, want: "k8s-shop/web-0"},
		"labelled":  {pod: v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "shop", Labels: map[string]string{TenantLabel: "web"}}}, want: "k8s-shop/web"},
		"in a gang": {pod: v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "shop", Labels: map[string]string{TenantLabel: "web"}}, Spec: v1.PodSpec{SchedulingGroup: &v1.PodSchedulingGroup{PodGroupName: &group}}}, want: "k8s-shop/ring"},
		"a dot":     {pod: v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web.0", Namespace: "shop"}}, words: []string{`"web.0"`, "1 to 63"}},
		"too long":  {pod: v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: long, Namespace: "shop"}}, words: []string{"1 to 63"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := TenantOf(&test.pod, "k8s-")
			wants(t, err, test.words...)
			if err == nil && got.String() != test.want {
				t.Errorf("got %s, expected %s", got, test.want)
			}
		})
	}
}

func TestTheClaimsOfAPod(t *testing.T) {
	own, template, made := "own", "template", "made-4711"
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: v1.PodSpec{ResourceClaims: []v1.PodResourceClaim{
		{Name: "a", ResourceClaimName: &own}, {Name: "b", ResourceClaimTemplateName: &template},
	}}}
	names, missing := ClaimNames(pod)
	if len(names) != 1 || missing != "b" {
		t.Errorf("got %v, missing %q", names, missing)
	}
	pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "b", ResourceClaimName: &made}}
	names, missing = ClaimNames(pod)
	if len(names) != 2 || missing != "" || names[1] != (types.NamespacedName{Namespace: "shop", Name: made}) {
		t.Errorf("got %v, missing %q", names, missing)
	}
}

func TestAnUplinkIsADevice(t *testing.T) {
	uplink := Uplink{Rate: 10_000_000_000, Up: 62_500, Down: 300_000, Frame: 1_538, Lateness: 14 * time.Microsecond}
	wants(t, uplink.Check())
	// 10 Gbit/s for 14 us are 17,500 bytes.
	if uplink.BurstRoom() != 62_500-1_538-17_500 || uplink.BurstInRoom() != 300_000-1_538 {
		t.Errorf("rooms %d and %d", uplink.BurstRoom(), uplink.BurstInRoom())
	}
	bySum, byService := uplink.Device("node", BySum), uplink.Device("node", ByService)
	for name, most := range map[resourceapi.QualifiedName]int64{CapacityBandwidth: 10_000_000_000, CapacityBurst: 43_462, CapacityBurstIn: 298_462} {
		sum, single := bySum.Capacity[name], byService.Capacity[name]
		if sum.Value.Value() != most || sum.RequestPolicy.Default.Value() != most || sum.RequestPolicy.ValidRange.Max.Value() != most {
			t.Errorf("%s: %v", name, sum)
		}
		if single.Value.Value() != 1_000*most || single.RequestPolicy.ValidRange.Max.Value() != most {
			t.Errorf("%s by the service: %v", name, single)
		}
	}
	if *bySum.Attributes[AttributeLateness].IntValue != 14_000 || *bySum.Attributes[AttributeLevel].StringValue != "node" {
		t.Errorf("attributes %v", bySum.Attributes)
	}
	uplink.Packet = 9_000
	for admission, want := range map[Admission]int64{BySum: 1_538 + 9_000, ByService: 1_538} {
		least := uplink.Device("node", admission).Capacity[CapacityBurst].RequestPolicy.ValidRange.Min.Value()
		if least != want || uplink.Counted(admission) != Bytes(want-1_538) {
			t.Errorf("the least burst is %d, expected %d", least, want)
		}
	}
	for _, test := range []struct {
		change func(*Uplink)
		word   string
	}{
		{func(u *Uplink) { u.Rate = 5 }, "rate"},
		{func(u *Uplink) { u.Frame = 64 }, "frame"},
		{func(u *Uplink) { u.Up = 19_000 }, "buffer up"},
		{func(u *Uplink) { u.Down = 1_538 }, "buffer down"},
		{func(u *Uplink) { u.Lateness = time.Second }, "lateness"},
		{func(u *Uplink) { u.Packet = 1_500 }, "packet"},
		{func(u *Uplink) { u.Packet = 80_000 }, "shorten the packet"},
	} {
		wrong := uplink
		test.change(&wrong)
		wants(t, wrong.Check(), test.word)
	}
}
