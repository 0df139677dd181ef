package place

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// serve answers every request by the function, and returns the address.
func serve(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

func client(t *testing.T, url string) *Client {
	t.Helper()
	client, err := New(Config{URL: url, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func problemOf(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

func TestAnswersAreToldApart(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		check  func(error) bool
		word   string
	}{
		"granted": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"id":"7","tenant":3,"new":1}`)
		}, func(err error) bool { return err == nil }, ""},
		"refused": {func(w http.ResponseWriter, _ *http.Request) {
			problemOf(w, 409, `{"code":"refused","detail":"rack1 up is full"}`)
		}, Refused, "rack1 up is full"},
		"malformed": {func(w http.ResponseWriter, _ *http.Request) {
			problemOf(w, 400, `{"code":"malformed","detail":"no unit","field":"ttl"}`)
		}, func(err error) bool { return !Refused(err) && !errors.Is(err, ErrUnavailable) }, "no unit (ttl)"},
		"no leader": {func(w http.ResponseWriter, _ *http.Request) {
			problemOf(w, 503, `{"code":"unavailable","detail":"no leader"}`)
		}, func(err error) bool { return errors.Is(err, ErrUnavailable) }, "no leader"},
		"a proxy": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, func(err error) bool { return errors.Is(err, ErrUnavailable) }, "502"},
		"an older version": {func(w http.ResponseWriter, _ *http.Request) {
			problemOf(w, 405, `{"code":"method-not-allowed","detail":"no POST"}`)
		}, func(err error) bool { return errors.Is(err, ErrVersion) }, "another version"},
		"another server": {http.NotFound, func(err error) bool { return errors.Is(err, ErrVersion) }, "another version"},
		"another form":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"id":7}`) }, func(err error) bool { return errors.Is(err, ErrVersion) }, ""},
		"nothing in it":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) }, func(err error) bool { return errors.Is(err, ErrVersion) }, "without an id"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:9/", http.StatusFound)
		},
			func(err error) bool { return errors.Is(err, ErrVersion) }, "302"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client(t, serve(t, test.answer)).Reserve(t.Context(), NewReservation{Tenant: "web"})
			if !test.check(err) || (test.word != "" && !strings.Contains(err.Error(), test.word)) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestATryAgainHasTheSameKey(t *testing.T) {
	var mutex sync.Mutex
	var keys []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mutex.Lock()
		defer mutex.Unlock()
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if len(keys) == 1 {
			problemOf(w, 503, `{"code":"unavailable","detail":"no leader"}`)
			return
		}
		_, _ = io.WriteString(w, `{"id":"7"}`)
	})
	// A replica that is down comes first.
	if _, err := client(t, "http://127.0.0.1:9,"+url).Reserve(t.Context(), NewReservation{}); err != nil {
		t.Fatal(err)
	}
	if len(keys) != 2 || keys[0] == "" || keys[0] != keys[1] {
		t.Errorf("keys %q", keys)
	}
}

func TestACallHasADeadline(t *testing.T) {
	hang := make(chan struct{})
	url := serve(t, func(http.ResponseWriter, *http.Request) { <-hang })
	defer close(hang)
	hanging, err := New(Config{URL: url, Timeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if _, err := hanging.Revision(t.Context()); !errors.Is(err, ErrUnavailable) || time.Since(begin) > 5*time.Second {
		t.Errorf("error %v after %s", err, time.Since(begin))
	}
}

func TestRequestsAreThoseOfTheAPI(t *testing.T) {
	type call struct{ line, body, token string }
	var mutex sync.Mutex
	var calls []call
	pages := 0
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mutex.Lock()
		defer mutex.Unlock()
		body, _ := io.ReadAll(r.Body)
		calls = append(calls, call{r.Method + " " + r.URL.RequestURI(), string(body), r.Header.Get("Authorization")})
		switch {
		case strings.HasPrefix(r.URL.Path, "/v1/candidates"):
			_, _ = io.WriteString(w, `{"revision":5,"answers":[{"candidates":[{"host":"n1","fits":false,"headroom":{"vms":0,"bandwidth":"1Gbit/s","burst":"9KB"},"refusal":{"rule":"queue","port":"rack1 up","sentence":"full"}}]}]}`)
		case r.URL.Path == "/v1/explain":
			_, _ = io.WriteString(w, `{"fits":false,"hosts":[],"refusal":"no","nearest":[{"change":"a burst of 9KB","request":{}}]}`)
		case r.URL.Path == "/v1/reservations" && r.Method == http.MethodGet:
			pages++
			if pages == 1 {
				_, _ = io.WriteString(w, `{"items":[{"id":"1","tenant":3,"machines":[{"host":"n 1","name":"a1"}]}],"next":"1 2"}`)
				return
			}
			_, _ = io.WriteString(w, `{"items":[{"id":"2","state":"confirmed"}]}`)
		case r.URL.Path == "/v1/tenants":
			_, _ = io.WriteString(w, `{"items":[{"id":3,"owner":"acme","name":"web","change":9,"runs":[{"first":0,"count":3,"host":"n 1"}]}]}`)
		case r.URL.Path == "/v1/status":
			_, _ = io.WriteString(w, `{"revision":5}`)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := New(Config{URL: url + "/", TokenFile: token})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	wanted := TenantRequest{VMs: 3, Request: Request{Guarantee: &Guarantee{Bandwidth: "1Gbit/s", Burst: "15KB", Bursts: json.RawMessage("2"), BurstIn: "60KB"}}}
	answer, err := client.Candidates(ctx, Query{Request: &wanted, VMs: 1, Hosts: []string{"n1"}})
	if err != nil || answer.Revision != 5 || answer.Answers[0].Candidates[0].Refusal.Port != "rack1 up" {
		t.Errorf("candidates %+v, %v", answer, err)
	}
	if explanation, err := client.Explain(ctx, wanted); err != nil || explanation.Nearest[0].Change != "a burst of 9KB" {
		t.Errorf("explanation %+v, %v", explanation, err)
	}
	if all, err := client.Reservations(ctx); err != nil || len(all) != 2 || all[0].Machines[0].Name != "a1" {
		t.Errorf("reservations %+v, %v", all, err)
	}
	if revision, err := client.Revision(ctx); err != nil || revision != 5 {
		t.Errorf("revision %d, %v", revision, err)
	}
	for _, err := range []error{client.Confirm(ctx, "7"), client.Cancel(ctx, "a/b"), client.RemoveMachine(ctx, "acme", "web", "a1", "n 1")} {
		if err != nil {
			t.Error(err)
		}
	}
	for i, want := range []call{
		{line: "POST /v1/candidates", body: `{"requests":[{"request":{"vms":3,"guarantee":{"bandwidth":"1Gbit/s","burst":"15KB","bursts":2,"burst_in":"60KB"}},"vms":1,"hosts":["n1"]}]}`},
		{line: "POST /v1/explain", body: `{"vms":3,"guarantee":{"bandwidth":"1Gbit/s","burst":"15KB","bursts":2,"burst_in":"60KB"}}`},
		{line: "GET /v1/reservations?"},
		{line: "GET /v1/reservations?after=1+2"},
		{line: "GET /v1/status"},
		{line: "POST /v1/reservations/7/confirm"},
		{line: "DELETE /v1/reservations/a%2Fb"},
		{line: "GET /v1/tenants?name=web&owner=acme"},
		{line: "GET /v1/reservations?"},
		// Three machines, none of them of an open reservation on the second page.
		{line: "PUT /v1/tenants/3/hosts/n%201", body: `{"vms":2,"remove":["a1"]}`},
	} {
		want.token = "Bearer secret"
		if calls[i] != want {
			t.Errorf("call %+v, expected %+v", calls[i], want)
		}
	}
}

func TestAMachineIsRemovedOnce(t *testing.T) {
	answers := []string{"changed", "", "absurd", "not-found", "refused"}
	puts := 0
	var match []string
	client := client(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut:
			match = append(match, r.Header.Get("If-Match"))
			code := answers[puts]
			puts++
			if code != "" {
				problemOf(w, 409, `{"code":"`+code+`","detail":"no"}`)
			}
		case r.URL.Path == "/v1/tenants" && r.URL.Query().Get("name") == "web":
			_, _ = io.WriteString(w, `{"items":[{"id":3,"change":9,"runs":[{"count":2,"host":"n1"},{"count":1,"host":"n2"}]}]}`)
		case r.URL.Path == "/v1/tenants":
			_, _ = io.WriteString(w, `{"items":[]}`)
		default:
			_, _ = io.WriteString(w, `{"items":[{"id":"1","tenant":3,"machines":[{"host":"n2"}]}]}`)
		}
	}))
	for _, fails := range []bool{false, false, false, true} {
		if err := client.RemoveMachine(t.Context(), "acme", "web", "a1", "n1"); (err != nil) != fails {
			t.Errorf("after %d changes: %v", puts, err)
		}
	}
	// The only machine on n2 is that of a reservation, and db is no tenant.
	for _, err := range []error{client.RemoveMachine(t.Context(), "acme", "web", "a1", "n2"), client.RemoveMachine(t.Context(), "acme", "db", "a1", "n3")} {
		if err != nil {
			t.Error(err)
		}
	}
	if puts != len(answers) || match[0] != `"9"` {
		t.Errorf("%d changes with %q", puts, match)
	}
}

func TestAddressesThatWouldBeWrong(t *testing.T) {
	for url, word := range map[string]string{
		"":                     "no address",
		"place:7070":           "no address",
		"ftp://place":          "no address",
		"http://place.example": "without TLS",
	} {
		if _, err := New(Config{URL: url, TokenFile: "token"}); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: error %v", url, err)
		}
	}
	if _, err := New(Config{URL: "https://place.example", CAFile: "/nonexistent"}); err == nil {
		t.Error("an authority that is not there is no error")
	}
}
