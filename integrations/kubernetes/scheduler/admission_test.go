package scheduler_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	"github.com/tailbound/tailbound/integrations/kubernetes/internal/placetest"
	"github.com/tailbound/tailbound/integrations/kubernetes/place"
	"github.com/tailbound/tailbound/integrations/kubernetes/scheduler"
)

// Four hosts in two racks. A host has bursts for two pods of 70 KB, a rack for three.
var (
	hosts = []placetest.Host{{Name: "n0", Rack: "r0"}, {Name: "n1", Rack: "r0"}, {Name: "n2", Rack: "r1"}, {Name: "n3", Rack: "r1"}}
	nodes = []string{"n0", "n1", "n2", "n3"}
	host  = placetest.Room{Rate: 10_000_000_000, Burst: 150_000}
	rack  = placetest.Room{Rate: 10_000_000_000, Burst: 250_000}
)

func start(t *testing.T) (*placetest.Service, *scheduler.Admission) {
	t.Helper()
	service := placetest.Start(t, hosts, host, rack)
	return service, admission(t, service)
}

func admission(t *testing.T, service *placetest.Service) *scheduler.Admission {
	t.Helper()
	client, err := place.New(place.Config{URL: service.URL, Timeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return scheduler.New(client, scheduler.Options{Patience: 300 * time.Millisecond})
}

func pod(name string, gang int) scheduler.Pod {
	tenant, _, _ := strings.Cut(name, ".")
	return scheduler.Pod{
		UID: name, Tenant: guarantee.Tenant{Owner: "k8s-shop", Name: tenant}, Gang: gang,
		Guarantee: guarantee.Guarantee{Bandwidth: 2_000_000_000, Burst: 70_000},
	}
}

func refusalOf(t *testing.T, err error) *scheduler.Refusal {
	t.Helper()
	var refusal *scheduler.Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("error %v, expected a refusal", err)
	}
	return refusal
}

// placed runs a pod through all steps, and returns its node.
func placed(t *testing.T, admission *scheduler.Admission, pod scheduler.Pod) (string, error) {
	t.Helper()
	candidates, err := admission.Candidates(t.Context(), pod, nodes)
	if err != nil {
		return "", err
	}
	if err := admission.Reserve(t.Context(), pod, candidates[0]); err != nil {
		return "", err
	}
	if err := admission.Confirm(t.Context(), pod, candidates[0]); err != nil {
		return "", err
	}
	admission.Bound(pod)
	return candidates[0], nil
}

func TestPodsAreAdmittedUntilNoUplinkCarriesThem(t *testing.T) {
	service, admission := start(t)
	for i := range 6 {
		if _, err := placed(t, admission, pod(fmt.Sprintf("web.%d", i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := placed(t, admission, pod("web.6", 1))
	refusal := refusalOf(t, err)
	for _, word := range []string{"none of 4 nodes", "k8s-shop/web", "up refuses", "70KB", "left"} {
		if refusal.Waits || !strings.Contains(refusal.Sentence, word) {
			t.Errorf("%+v, expected %q in it", refusal, word)
		}
	}
	_, err = placed(t, admission, pod("new", 1))
	if refusal := refusalOf(t, err); !strings.Contains(refusal.Sentence, "would pass") {
		t.Errorf("%+v", refusal)
	}
	if len(service.Machines("confirmed")) != 6 || len(service.Machines("open")) != 0 {
		t.Errorf("confirmed %v, open %v", service.Machines("confirmed"), service.Machines("open"))
	}
	// Another pod's end makes room.
	if err := admission.Gone(t.Context(), pod("web.0", 1).Tenant, "web.0", service.Machines("confirmed")["web.0"]); err != nil {
		t.Fatal(err)
	}
	if _, err := placed(t, admission, pod("new", 1)); err != nil {
		t.Error(err)
	}
}

func TestTwoSchedulersNeverShareAPlace(t *testing.T) {
	service, one := start(t)
	service.SetRooms(placetest.Room{Rate: host.Rate, Burst: 70_000}, rack)
	other := admission(t, service)
	// Both hear that the place is free.
	for _, scheduler := range []*scheduler.Admission{one, other} {
		if candidates, err := scheduler.Candidates(t.Context(), pod("web.0", 1), []string{"n0"}); err != nil || len(candidates) != 1 {
			t.Fatalf("%v, %v", candidates, err)
		}
	}
	if err := one.Reserve(t.Context(), pod("web.0", 1), "n0"); err != nil {
		t.Fatal(err)
	}
	if refusal := refusalOf(t, other.Reserve(t.Context(), pod("db.0", 1), "n0")); refusal.Waits || !strings.Contains(refusal.Sentence, "n0 up") {
		t.Errorf("%+v", refusal)
	}
	// The same pod at both: the place of one ends, and never are there two.
	if err := other.Reserve(t.Context(), pod("web.0", 1), "n2"); err != nil {
		t.Fatal(err)
	}
	if open := service.Machines("open"); len(open) != 1 || open["web.0"] != "n2" {
		t.Errorf("open %v", open)
	}
	if refusal := refusalOf(t, one.Confirm(t.Context(), pod("web.0", 1), "n0")); !strings.Contains(refusal.Sentence, "expired") {
		t.Errorf("%+v", refusal)
	}
	if err := other.Confirm(t.Context(), pod("web.0", 1), "n2"); err != nil {
		t.Fatal(err)
	}
	// A confirmed one stays.
	if refusal := refusalOf(t, one.Reserve(t.Context(), pod("web.0", 1), "n0")); !strings.Contains(refusal.Sentence, "web.0") {
		t.Errorf("%+v", refusal)
	}
}

func TestAServiceThatDoesNotAnswerAdmitsNothing(t *testing.T) {
	service, admission := start(t)
	if err := admission.Reserve(t.Context(), pod("web.0", 1), "n0"); err != nil {
		t.Fatal(err)
	}
	for mood, word := range map[placetest.Mood]string{
		placetest.Hangs: "does not answer", placetest.Unavailable: "there is no leader", placetest.Other: "another version",
	} {
		service.SetMood(mood)
		_, candidates := admission.Candidates(t.Context(), pod("db.0", 1), nodes)
		for _, err := range []error{candidates, admission.Reserve(t.Context(), pod("db.0", 1), "n0"), admission.Confirm(t.Context(), pod("web.0", 1), "n0")} {
			if refusal := refusalOf(t, err); !refusal.Waits || !strings.Contains(refusal.Sentence, word) || !strings.Contains(refusal.Sentence, "Nothing is admitted") {
				t.Errorf("%+v, expected %q in it", refusal, word)
			}
		}
	}
	service.SetMood(placetest.Answers)
	if err := admission.Confirm(t.Context(), pod("web.0", 1), "n0"); err != nil {
		t.Error(err)
	}
}

// A pod of a gang whose confirmation is lost would be missing among those that are bound.
func TestAConfirmationIsAskedForAgain(t *testing.T) {
	service, _ := start(t)
	client, err := place.New(place.Config{URL: service.URL, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	patient := scheduler.New(client, scheduler.Options{})
	if err := patient.Reserve(t.Context(), pod("web.0", 1), "n0"); err != nil {
		t.Fatal(err)
	}
	service.SetMood(placetest.Hangs)
	time.AfterFunc(400*time.Millisecond, func() { service.SetMood(placetest.Answers) })
	if err := patient.Confirm(t.Context(), pod("web.0", 1), "n0"); err != nil || len(service.Machines("confirmed")) != 1 {
		t.Errorf("%v, confirmed %v", err, service.Machines("confirmed"))
	}
}

func TestWhatIsNotBoundIsGivenBack(t *testing.T) {
	service, admission := start(t)
	ctx := t.Context()
	if err := admission.Cancel(ctx, pod("web.0", 1), false); err != nil {
		t.Errorf("a cancellation without a reservation: %v", err)
	}
	if refusal := refusalOf(t, admission.Confirm(ctx, pod("web.0", 1), "n0")); !strings.Contains(refusal.Sentence, "no reservation") {
		t.Errorf("%+v", refusal)
	}
	for _, confirms := range []bool{false, true} {
		if err := admission.Reserve(ctx, pod("web.0", 1), "n0"); err != nil {
			t.Fatal(err)
		}
		if refusal := refusalOf(t, admission.Confirm(ctx, pod("web.0", 1), "n1")); !strings.Contains(refusal.Sentence, "on n1") {
			t.Errorf("%+v", refusal)
		}
		if confirms {
			if err := admission.Confirm(ctx, pod("web.0", 1), "n0"); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := admission.Cancel(ctx, pod("web.0", 1), false); err != nil {
				t.Fatal(err)
			}
		}
		if open, confirmed := service.Machines("open"), service.Machines("confirmed"); len(open)+len(confirmed) != 0 {
			t.Errorf("left %v, %v", open, confirmed)
		}
	}
	// The time to live ends before the bind.
	if err := admission.Reserve(ctx, pod("web.0", 1), "n0"); err != nil {
		t.Fatal(err)
	}
	service.Expire()
	if refusal := refusalOf(t, admission.Confirm(ctx, pod("web.0", 1), "n0")); refusal.Waits || !strings.Contains(refusal.Sentence, "expired") {
		t.Errorf("%+v", refusal)
	}
}

// try runs all pods of a gang through candidates and reservations.
func try(t *testing.T, admission *scheduler.Admission, pods []scheduler.Pod) error {
	t.Helper()
	for _, pod := range pods {
		candidates, err := admission.Candidates(t.Context(), pod, nodes)
		if err != nil {
			return err
		}
		if err := admission.Reserve(t.Context(), pod, candidates[0]); err != nil {
			return err
		}
	}
	return nil
}

func gang(name string, size int) []scheduler.Pod {
	var pods []scheduler.Pod
	for i := range size {
		pods = append(pods, pod(fmt.Sprintf("%s.%d", name, i), size))
	}
	return pods
}

func TestAReservationOfASchedulerThatWasKilledIsReplaced(t *testing.T) {
	service, killed := start(t)
	if err := killed.Reserve(t.Context(), pod("web.0", 1), "n0"); err != nil {
		t.Fatal(err)
	}
	next := admission(t, service)
	if node, err := placed(t, next, pod("web.0", 1)); err != nil || len(service.Machines("open")) != 0 {
		t.Errorf("on %s, %v; open %v", node, err, service.Machines("open"))
	}
}

func TestAGangIsWholeOrNotThere(t *testing.T) {
	service, admission := start(t)
	ring := gang("ring", 6)
	if err := try(t, admission, ring); err != nil {
		t.Fatal(err)
	}
	// The framework gives all places back after the try, and reserves them again to bind.
	asked := service.Calls("POST /v1/reservations")
	for _, pod := range ring {
		if err := admission.Cancel(t.Context(), pod, true); err != nil {
			t.Fatal(err)
		}
	}
	if open := service.Machines("open"); len(open) != 6 {
		t.Fatalf("another pod could take a place of the gang: open %v", open)
	}
	if err := try(t, admission, ring); err != nil {
		t.Fatal(err)
	}
	if again := service.Calls("POST /v1/reservations"); again != asked {
		t.Errorf("%d more reservations", again-asked)
	}
	for _, pod := range ring {
		if err := admission.Confirm(t.Context(), pod, service.Machines("open")[pod.UID]); err != nil {
			t.Fatal(err)
		}
		admission.Bound(pod)
	}
	// There is no place for another one: nothing of it stays.
	for name, size := range map[string]int{"two": 2, "seven": 7} {
		others := gang(name, size)
		err := try(t, admission, others)
		if refusal := refusalOf(t, err); refusal.Waits || !strings.Contains(refusal.Sentence, "up refuses") {
			t.Errorf("%+v", refusal)
		}
		for _, pod := range others {
			if err := admission.Cancel(t.Context(), pod, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	if open := service.Machines("open"); len(open) != 0 {
		t.Errorf("left %v", open)
	}
}

func TestAGangThatFailsInTheMiddleLeavesNothing(t *testing.T) {
	service, admission := start(t)
	ring := gang("ring", 4)
	if err := try(t, admission, ring[:3]); err != nil {
		t.Fatal(err)
	}
	service.SetRooms(placetest.Room{Rate: host.Rate, Burst: 1_000}, rack)
	if err := try(t, admission, ring[3:]); err == nil {
		t.Fatal("there is no place, and it was reserved")
	}
	for _, pod := range ring {
		if err := admission.Cancel(t.Context(), pod, true); err != nil {
			t.Fatal(err)
		}
	}
	if open := service.Machines("open"); len(open) != 0 {
		t.Errorf("left %v", open)
	}
}

func TestPlacesOfATriedGangExpire(t *testing.T) {
	service, admission := start(t)
	ring := gang("ring", 3)
	if err := try(t, admission, ring); err != nil {
		t.Fatal(err)
	}
	for _, pod := range ring {
		if err := admission.Cancel(t.Context(), pod, true); err != nil {
			t.Fatal(err)
		}
	}
	if expired, err := admission.Expire(t.Context(), time.Hour); err != nil || expired != 0 {
		t.Errorf("expired %d, %v", expired, err)
	}
	if expired, err := admission.Expire(t.Context(), 0); err != nil || expired != 3 || len(service.Machines("open")) != 0 {
		t.Errorf("expired %d, %v", expired, err)
	}
}

func TestMachinesOfPodsThatEndedUnseenAreRemoved(t *testing.T) {
	service, admission := start(t)
	for _, name := range []string{"web.0", "web.1"} {
		if _, err := placed(t, admission, pod(name, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := admission.Reserve(t.Context(), pod("db.0", 1), "n2"); err != nil {
		t.Fatal(err)
	}
	ours := func(owner string) bool { return strings.HasPrefix(owner, "k8s-") }
	others := func(string) bool { return false }
	confirmed := service.Machines("confirmed")
	web := guarantee.Tenant{Owner: "k8s-shop", Name: "web"}
	runs := map[scheduler.Place]int{{Tenant: web, Node: confirmed["web.1"]}: 1}
	sweep := func(isOurs func(string) bool) int {
		t.Helper()
		removed, err := admission.Sweep(t.Context(), isOurs, runs)
		if err != nil {
			t.Fatal(err)
		}
		return removed
	}
	if removed := sweep(ours); removed != 0 {
		t.Errorf("the first sweep removed %d: their pods may be about to be bound", removed)
	}
	if removed := sweep(others); removed != 0 {
		t.Errorf("removed %d of another owner", removed)
	}
	sweep(ours)
	// The tenant changes in between.
	if _, err := placed(t, admission, pod("web.2", 1)); err != nil {
		t.Fatal(err)
	}
	runs[scheduler.Place{Tenant: web, Node: service.Machines("confirmed")["web.2"]}]++
	if removed := sweep(ours); removed != 0 {
		t.Errorf("removed %d of a tenant that changed", removed)
	}
	if removed := sweep(ours); removed != 1 || len(service.Machines("confirmed")) != 2 || len(service.Machines("open")) != 1 {
		t.Errorf("removed %d, left %v and %v", removed, service.Machines("confirmed"), service.Machines("open"))
	}
	if removed := sweep(ours) + sweep(ours); removed != 0 {
		t.Errorf("removed %d of running pods", removed)
	}
}

func TestAPodOfATenantHasTheTenantsGuarantee(t *testing.T) {
	_, admission := start(t)
	if _, err := placed(t, admission, pod("web.0", 1)); err != nil {
		t.Fatal(err)
	}
	other := pod("web.1", 1)
	other.Guarantee.Bandwidth = 1_000_000_000
	if refusal := refusalOf(t, admission.Reserve(t.Context(), other, "n1")); refusal.Waits || !strings.Contains(refusal.Sentence, "2Gbit/s") {
		t.Errorf("%+v", refusal)
	}
}

func TestANodeThatTheServiceDoesNotKnow(t *testing.T) {
	_, admission := start(t)
	_, err := admission.Candidates(t.Context(), pod("web.0", 1), []string{"n9"})
	if refusal := refusalOf(t, err); !strings.Contains(refusal.Sentence, "n9") {
		t.Errorf("%+v", refusal)
	}
}
