// Package placetest is a small placement service for tests: the API for outside schedulers over a
// tree of two levels, in which rates and bursts add up.
package placetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	"github.com/tailbound/tailbound/integrations/kubernetes/place"
)

// Host is a host of the tree, with the name of its rack.
type Host struct {
	Name, Rack string
}

// Room is what an uplink has.
type Room struct {
	Rate  guarantee.Rate
	Burst guarantee.Bytes
}

// Mood is how the service answers.
type Mood int

const (
	// Answers is a service that works.
	Answers Mood = iota
	// Hangs is one that accepts calls and never answers.
	Hangs
	// Other is a server that is no placement service.
	Other
	// Unavailable is a replica without a leader.
	Unavailable
)

// Service is the service. Its zero value is of no use; see [Start].
type Service struct {
	URL string

	mutex        sync.Mutex
	hosts        []Host
	host, rack   Room
	mood         Mood
	revision     uint64
	next         int
	reservations map[string]*reservation
	// tenants have their numbers by owner and name, and changes the numbers of their last changes.
	tenants      map[[2]string]uint64
	changes      map[uint64]uint64
	calls        map[string]int
	release      chan struct{}
	onReserve    func(host string)
	onCandidates func()
	// reserved is the host of a reservation whose answer is about to be sent.
	reserved string
}

type reservation struct {
	place.Reservation
	rate      guarantee.Rate
	burst     guarantee.Bytes
	expiresAt time.Time
}

// Start serves until the test ends.
func Start(t testing.TB, hosts []Host, host, rack Room) *Service {
	t.Helper()
	service := &Service{
		hosts: hosts, host: host, rack: rack,
		reservations: map[string]*reservation{}, tenants: map[[2]string]uint64{}, changes: map[uint64]uint64{},
		calls: map[string]int{}, release: make(chan struct{}),
	}
	server := httptest.NewServer(service)
	t.Cleanup(func() {
		close(service.release)
		server.Close()
	})
	service.URL = server.URL
	return service
}

// SetMood changes how the service answers from now on.
func (s *Service) SetMood(mood Mood) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.mood = mood
}

// SetRooms changes the uplinks.
func (s *Service) SetRooms(host, rack Room) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.host, s.rack = host, rack
	s.revision++
}

// Calls returns the number of calls of a kind, such as "POST /v1/reservations".
func (s *Service) Calls(kind string) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.calls[kind]
}

// Machines returns the hosts of all machines by name, of reservations in this state.
func (s *Service) Machines(state string) map[string]string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	machines := map[string]string{}
	for _, held := range s.reservations {
		if held.State == state {
			for _, machine := range held.Machines {
				machines[machine.Name] = machine.Host
			}
		}
	}
	return machines
}

// OnReserve sets a function that runs after a reservation is granted and before its answer.
func (s *Service) OnReserve(run func(host string)) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.onReserve = run
}

// OnCandidates sets a function that runs after each answer about candidates.
func (s *Service) OnCandidates(run func()) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.onCandidates = run
}

// Take fills hosts on behalf of another scheduler, until [Service.Untake].
func (s *Service) Take(hosts ...string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, host := range hosts {
		s.reservations["taken "+host] = &reservation{
			Reservation: place.Reservation{Owner: "other", Name: "other", State: "taken", Machines: []place.ReservedMachine{{Host: host}}},
			rate:        s.host.Rate, burst: s.host.Burst,
		}
	}
	s.revision++
}

// Untake undoes [Service.Take].
func (s *Service) Untake() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for id, held := range s.reservations {
		if held.State == "taken" {
			delete(s.reservations, id)
		}
	}
	s.revision++
}

// Expire cancels all open reservations, as their time to live does.
func (s *Service) Expire() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for id, held := range s.reservations {
		if held.State == "open" {
			delete(s.reservations, id)
		}
	}
}

// ServeHTTP implements [http.Handler].
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	kind := r.Method + " /v1/" + parts[min(1, len(parts)-1)]
	if len(parts) >= 4 {
		kind += "/" + parts[3]
	}
	s.calls[kind]++
	mood := s.mood
	s.mutex.Unlock()
	switch mood {
	case Hangs:
		select {
		case <-s.release:
		case <-r.Context().Done():
		}
		return
	case Other:
		http.NotFound(w, r)
		return
	case Unavailable:
		problem(w, 503, "unavailable", "there is no leader")
		return
	}
	// The functions of tests call other methods.
	defer s.after(kind)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch kind {
	case "POST /v1/candidates":
		s.candidates(w, r)
	case "POST /v1/explain":
		s.explain(w, r)
	case "POST /v1/reservations":
		s.reserve(w, r)
	case "POST /v1/reservations/confirm":
		s.confirm(w, parts[2])
	case "DELETE /v1/reservations":
		s.cancel(w, parts[2])
	case "GET /v1/reservations":
		all := []place.Reservation{}
		for _, held := range s.reservations {
			if held.State == "open" {
				all = append(all, held.Reservation)
			}
		}
		answer(w, 200, map[string]any{"items": all})
	case "GET /v1/tenants":
		query := r.URL.Query()
		answer(w, 200, map[string]any{"items": s.list(query.Get("owner"), query.Get("name"))})
	case "PUT /v1/tenants/hosts":
		s.setMachines(w, r, parts[2], parts[4])
	case "GET /v1/status":
		answer(w, 200, map[string]any{"revision": s.revision})
	default:
		problem(w, 404, "not-found", "there is no "+r.URL.Path)
	}
}

// after runs the functions of tests. Answers are short, so they are sent after it.
func (s *Service) after(kind string) {
	s.mutex.Lock()
	reserved, onReserve, onCandidates := s.reserved, s.onReserve, s.onCandidates
	s.reserved = ""
	s.mutex.Unlock()
	switch {
	case kind == "POST /v1/reservations" && reserved != "" && onReserve != nil:
		onReserve(reserved)
	case kind == "POST /v1/candidates" && onCandidates != nil:
		onCandidates()
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func problem(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(place.Problem{Code: code, Detail: detail})
}

// read decodes a body strictly, as the service does.
func read(w http.ResponseWriter, r *http.Request, body any) bool {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(body); err != nil {
		problem(w, 400, "malformed", err.Error())
		return false
	}
	return true
}

func sizes(wanted *place.Guarantee) (guarantee.Rate, guarantee.Bytes, error) {
	rate, err := guarantee.RateFromText(wanted.Bandwidth)
	if err != nil {
		return 0, 0, err
	}
	burst, err := guarantee.BytesFromText(wanted.Burst)
	return rate, burst, err
}

// used returns what machines take of the uplinks of a host and of its rack.
func (s *Service) used(name, rack string) (host, group Room) {
	racks := map[string]string{}
	for _, host := range s.hosts {
		racks[host.Name] = host.Rack
	}
	for id, held := range s.reservations {
		if held.State == "open" && time.Now().After(held.expiresAt) {
			delete(s.reservations, id)
			continue
		}
		for _, machine := range held.Machines {
			if machine.Host == name {
				host.Rate, host.Burst = host.Rate+held.rate, host.Burst+held.burst
			}
			if racks[machine.Host] == rack {
				group.Rate, group.Burst = group.Rate+held.rate, group.Burst+held.burst
			}
		}
	}
	return host, group
}

// verdict returns the verdict about one more machine on a host.
func (s *Service) verdict(name string, rate guarantee.Rate, burst guarantee.Bytes) place.Candidate {
	at := slices.IndexFunc(s.hosts, func(host Host) bool { return host.Name == name })
	if at < 0 {
		return place.Candidate{Host: name, Refusal: &place.Refusal{Rule: "unknown-host", Sentence: name + " is not in the topology"}}
	}
	rack := s.hosts[at].Rack
	host, group := s.used(name, rack)
	found := place.Candidate{Host: name, Fits: true}
	left := Room{min(s.host.Rate-host.Rate, s.rack.Rate-group.Rate), min(s.host.Burst-host.Burst, s.rack.Burst-group.Burst)}
	found.Headroom = place.Headroom{Bandwidth: left.Rate.String(), Burst: left.Burst.String()}
	for port, free := range map[string]Room{
		name: {s.host.Rate - host.Rate, s.host.Burst - host.Burst},
		rack: {s.rack.Rate - group.Rate, s.rack.Burst - group.Burst},
	} {
		switch {
		case rate > free.Rate:
			found.Fits = false
			found.Refusal = &place.Refusal{Rule: "capacity", Port: port + " up", Sentence: fmt.Sprintf("%s is more than the %s that are left", rate, free.Rate)}
		case burst > free.Burst:
			found.Fits = false
			found.Refusal = &place.Refusal{Rule: "queue", Port: port + " up", Sentence: fmt.Sprintf("a burst of %s is more than the %s that are left", burst, free.Burst)}
		}
	}
	return found
}

func (s *Service) find(owner, name string) *reservation {
	for _, held := range s.reservations {
		if held.Owner == owner && held.Name == name {
			return held
		}
	}
	return nil
}

func (s *Service) candidates(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Requests []place.Query `json:"requests"`
	}
	if !read(w, r, &body) {
		return
	}
	result := place.Answer{Revision: s.revision}
	for _, query := range body.Requests {
		var rate guarantee.Rate
		var burst guarantee.Bytes
		if query.Request != nil {
			var err error
			if rate, burst, err = sizes(query.Request.Guarantee); err != nil {
				problem(w, 400, "malformed", err.Error())
				return
			}
		} else {
			owner, name, _ := strings.Cut(query.Tenant, "/")
			held := s.find(owner, name)
			if held == nil {
				problem(w, 404, "not-found", "there is no tenant "+query.Tenant)
				return
			}
			rate, burst = held.rate, held.burst
		}
		var verdicts place.Verdicts
		for _, host := range query.Hosts {
			verdicts.Candidates = append(verdicts.Candidates, s.verdict(host, rate, burst))
		}
		result.Answers = append(result.Answers, verdicts)
	}
	answer(w, 200, result)
}

func (s *Service) explain(w http.ResponseWriter, r *http.Request) {
	var wanted place.TenantRequest
	if !read(w, r, &wanted) {
		return
	}
	rate, burst, err := sizes(wanted.Guarantee)
	if err != nil {
		problem(w, 400, "malformed", err.Error())
		return
	}
	result := place.Explanation{Fits: true}
	var trial []string
	for range wanted.VMs {
		fits := false
		var last place.Candidate
		for _, host := range s.hosts {
			if last = s.verdict(host.Name, rate, burst); last.Fits {
				id := "trial" + strconv.Itoa(len(trial))
				s.reservations[id] = &reservation{
					Reservation: place.Reservation{State: "trial", Machines: []place.ReservedMachine{{Host: host.Name}}},
					rate:        rate, burst: burst,
				}
				trial = append(trial, id)
				result.Hosts = append(result.Hosts, place.Share{Host: host.Name, VMs: 1})
				fits = true
				break
			}
		}
		if !fits {
			result = place.Explanation{
				Overload: &place.Overload{Port: last.Refusal.Port, Message: last.Refusal.Sentence},
				Nearest:  []place.Nearest{{Change: fmt.Sprintf("%d machines", len(trial))}},
			}
			break
		}
	}
	for _, id := range trial {
		delete(s.reservations, id)
	}
	answer(w, 200, result)
}

func (s *Service) reserve(w http.ResponseWriter, r *http.Request) {
	var wanted place.NewReservation
	if !read(w, r, &wanted) {
		return
	}
	if r.Header.Get("Idempotency-Key") == "" || len(wanted.Placement) != 1 || len(wanted.Machines) != 1 {
		problem(w, 400, "malformed", "this service wants one machine with a name, and an idempotency key")
		return
	}
	rate, burst, err := sizes(wanted.Request.Guarantee)
	ttl, ttlErr := time.ParseDuration(wanted.TTL)
	if err != nil || ttlErr != nil {
		problem(w, 400, "malformed", "a bad quantity")
		return
	}
	if held := s.find(wanted.Owner, wanted.Tenant); held != nil && (held.rate != rate || held.burst != burst) {
		problem(w, 409, "exists", fmt.Sprintf("%s/%s has %s and bursts of %s", wanted.Owner, wanted.Tenant, held.rate, held.burst))
		return
	}
	for _, held := range s.reservations {
		if held.Machines[0].Name == wanted.Machines[0] {
			problem(w, 409, "exists", "the tenant has a machine "+wanted.Machines[0])
			return
		}
	}
	verdict := s.verdict(wanted.Placement[0].Host, rate, burst)
	if !verdict.Fits {
		problem(w, 409, "refused", verdict.Refusal.Port+": "+verdict.Refusal.Sentence)
		return
	}
	s.next++
	granted := &reservation{
		Reservation: place.Reservation{
			ID: strconv.Itoa(s.next), Tenant: s.changed(wanted.Owner, wanted.Tenant), Owner: wanted.Owner, Name: wanted.Tenant, State: "open",
			Machines: []place.ReservedMachine{{Host: wanted.Placement[0].Host, Name: wanted.Machines[0]}},
		},
		rate: rate, burst: burst, expiresAt: time.Now().Add(ttl),
	}
	s.reservations[granted.ID] = granted
	s.reserved = wanted.Placement[0].Host
	answer(w, 201, granted.Reservation)
}

// changed counts a change of a tenant, and returns the tenant's number.
func (s *Service) changed(owner, name string) uint64 {
	key := [2]string{owner, name}
	if s.tenants[key] == 0 {
		s.tenants[key] = uint64(len(s.tenants) + 1)
	}
	s.revision++
	s.changes[s.tenants[key]] = s.revision
	return s.tenants[key]
}

// list returns the tenants with machines; those of an owner or of a name if they are not empty.
func (s *Service) list(owner, name string) []place.Tenant {
	byID := map[uint64]*place.Tenant{}
	for _, held := range s.reservations {
		if held.Tenant == 0 || (owner != "" && held.Owner != owner) || (name != "" && held.Name != name) {
			continue
		}
		tenant := byID[held.Tenant]
		if tenant == nil {
			tenant = &place.Tenant{ID: held.Tenant, Owner: held.Owner, Name: held.Name, Change: s.changes[held.Tenant]}
			byID[held.Tenant] = tenant
		}
		tenant.Runs = append(tenant.Runs, place.Run{Count: 1, Host: held.Machines[0].Host})
	}
	all := []place.Tenant{}
	for _, tenant := range byID {
		all = append(all, *tenant)
	}
	return all
}

// setMachines shrinks a tenant on a host.
func (s *Service) setMachines(w http.ResponseWriter, r *http.Request, id, host string) {
	var wanted place.HostMachines
	if !read(w, r, &wanted) {
		return
	}
	var here []string
	for key, held := range s.reservations {
		if strconv.FormatUint(held.Tenant, 10) == id && held.State == "confirmed" && held.Machines[0].Host == host {
			here = append(here, key)
		}
	}
	if len(here) == 0 {
		problem(w, 404, "not-found", "there is no tenant "+id+" on "+host)
		return
	}
	tenant := s.reservations[here[0]]
	if match := r.Header.Get("If-Match"); match != strconv.Quote(strconv.FormatUint(s.changes[tenant.Tenant], 10)) {
		problem(w, 412, "changed", "the tenant was changed since "+match)
		return
	}
	gone := here[min(wanted.VMs, len(here)):]
	if len(wanted.Remove) > 0 {
		gone = nil
		for _, key := range here {
			if slices.Contains(wanted.Remove, s.reservations[key].Machines[0].Name) {
				gone = append(gone, key)
			}
		}
	}
	if len(gone) != len(here)-wanted.VMs {
		problem(w, 422, "absurd", "there is no such machine to remove")
		return
	}
	for _, key := range gone {
		delete(s.reservations, key)
	}
	s.changed(tenant.Owner, tenant.Name)
	w.WriteHeader(204)
}

func (s *Service) confirm(w http.ResponseWriter, id string) {
	held := s.reservations[id]
	if held == nil {
		problem(w, 404, "not-found", "there is no reservation "+id)
		return
	}
	held.State = "confirmed"
	s.changed(held.Owner, held.Name)
	answer(w, 200, held.Reservation)
}

func (s *Service) cancel(w http.ResponseWriter, id string) {
	held := s.reservations[id]
	switch {
	case held == nil:
	case held.State == "confirmed":
		problem(w, 409, "refused", "the reservation is confirmed")
		return
	default:
		delete(s.reservations, id)
		s.changed(held.Owner, held.Name)
	}
	w.WriteHeader(204)
}
