package place

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrUnavailable means that no answer came: the outcome of a change is unknown.
	ErrUnavailable = errors.New("the placement service does not answer")
	// ErrVersion means that the answer is not one of this API.
	ErrVersion = errors.New("the placement service has another version of the API")
)

// Problem is an error that the service itself reports (RFC 9457).
type Problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	// Field is the wrong field of the body, such as "request.guarantee.bandwidth"; empty if none is.
	Field string `json:"field,omitempty"`
}

func (p *Problem) Error() string {
	if p.Field != "" {
		return fmt.Sprintf("%s (%s)", p.Detail, p.Field)
	}
	return p.Detail
}

// isCode reports whether an error is a problem with this code.
func isCode(err error, code string) bool {
	var problem *Problem
	return errors.As(err, &problem) && problem.Code == code
}

// Refused reports whether an error is the service's refusal of a request: no placement keeps every
// guarantee, or a quota is reached.
func Refused(err error) bool {
	return isCode(err, "refused") || isCode(err, "quota")
}

// Exists reports whether a name is taken: a machine of the name has a place already, or a tenant has
// another request.
func Exists(err error) bool { return isCode(err, "exists") }

// IsNotFound reports whether the service does not know the object.
func IsNotFound(err error) bool {
	return isCode(err, "not-found")
}

// IsConflict reports whether the state of the object does not allow the call (409), such as the
// cancellation of a reservation that is confirmed.
func IsConflict(err error) bool {
	var problem *Problem
	return errors.As(err, &problem) && problem.Status == http.StatusConflict
}

// Config says where the service is, and who calls it.
type Config struct {
	// URL is the address of the service; several replicas are separated by commas.
	URL string
	// TokenFile has the caller's token, read anew for each call; empty without authentication.
	TokenFile string
	// CAFile has the authority of the service's certificate; the system's if empty.
	CAFile string
	// Timeout is the longest time for a call at one replica, 2 s if zero.
	Timeout time.Duration
}

// Client calls the placement service. It is safe for concurrent use.
type Client struct {
	replicas  []string
	tokenFile string
	timeout   time.Duration
	http      *http.Client
}

// The longest answer that is read, in bytes: some 100 bytes for each of 100,000 candidates.
const maxAnswer = 64 << 20

// New returns a client, or an error that names the wrong part of the configuration.
func New(config Config) (*Client, error) {
	client := &Client{tokenFile: config.TokenFile, timeout: config.Timeout}
	if client.timeout == 0 {
		client.timeout = 2 * time.Second
	}
	for text := range strings.SplitSeq(config.URL, ",") {
		address, err := url.Parse(strings.TrimSpace(text))
		if err != nil || address.Host == "" || (address.Scheme != "http" && address.Scheme != "https") {
			return nil, fmt.Errorf("%q is no address of a placement service: write for example \"https://place.example:7070\"", text)
		}
		if config.TokenFile != "" && address.Scheme == "http" && !isLoopback(address.Hostname()) {
			return nil, fmt.Errorf("%q would carry the token without TLS: use https, or a loopback address", text)
		}
		client.replicas = append(client.replicas, strings.TrimRight(address.String(), "/"))
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 32,
		IdleConnTimeout:     time.Minute,
		DialContext:         (&net.Dialer{Timeout: client.timeout}).DialContext,
	}
	if config.CAFile != "" {
		pem, err := os.ReadFile(config.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading the authority: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM", config.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	client.http = &http.Client{
		Transport: transport,
		// A token must not follow a redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return client, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// Candidates asks on which hosts machines fit. It changes nothing.
func (c *Client) Candidates(ctx context.Context, queries ...Query) (Answer, error) {
	var answer Answer
	body := struct {
		Requests []Query `json:"requests"`
	}{queries}
	if err := c.call(ctx, http.MethodPost, "/v1/candidates", body, &answer); err != nil {
		return Answer{}, fmt.Errorf("asking for candidates: %w", err)
	}
	if len(answer.Answers) != len(queries) {
		return Answer{}, fmt.Errorf("asking for candidates: %w: %d answers to %d queries", ErrVersion, len(answer.Answers), len(queries))
	}
	return answer, nil
}

// Reserve reserves machines until the reservation is confirmed, cancelled or expires.
func (c *Client) Reserve(ctx context.Context, wanted NewReservation) (Reservation, error) {
	var granted Reservation
	if err := c.call(ctx, http.MethodPost, "/v1/reservations", wanted, &granted); err != nil {
		return Reservation{}, fmt.Errorf("reserving for %s: %w", wanted.Tenant, err)
	}
	if granted.ID == "" {
		return Reservation{}, fmt.Errorf("reserving for %s: %w: a reservation without an id", wanted.Tenant, ErrVersion)
	}
	return granted, nil
}

// Confirm makes the machines of a reservation part of their tenant. A second call does nothing.
func (c *Client) Confirm(ctx context.Context, id string) error {
	if err := c.call(ctx, http.MethodPost, "/v1/reservations/"+url.PathEscape(id)+"/confirm", nil, nil); err != nil {
		return fmt.Errorf("confirming the reservation %s: %w", id, err)
	}
	return nil
}

// Cancel removes a reservation. One that does not exist is no error; one that is confirmed is.
func (c *Client) Cancel(ctx context.Context, id string) error {
	err := c.call(ctx, http.MethodDelete, "/v1/reservations/"+url.PathEscape(id), nil, nil)
	if err != nil && !IsNotFound(err) {
		return fmt.Errorf("cancelling the reservation %s: %w", id, err)
	}
	return nil
}

// SetMachines sets the number of a tenant's confirmed machines on a host, if the tenant has not
// changed since it was read. A tenant without machines is gone.
func (c *Client) SetMachines(ctx context.Context, tenant Tenant, host string, machines HostMachines) error {
	path := "/v1/tenants/" + strconv.FormatUint(tenant.ID, 10) + "/hosts/" + url.PathEscape(host)
	match := header{"If-Match", strconv.Quote(strconv.FormatUint(tenant.Change, 10))}
	if err := c.call(ctx, http.MethodPut, path, machines, nil, match); err != nil {
		return fmt.Errorf("setting the machines of %s/%s on %s: %w", tenant.Owner, tenant.Name, host, err)
	}
	return nil
}

// RemoveMachine removes a confirmed machine of a tenant from a host. It is no error if the machine
// is not there.
func (c *Client) RemoveMachine(ctx context.Context, owner, name, machine, host string) error {
	for {
		tenants, err := c.Tenants(ctx, owner, name)
		if err != nil || len(tenants) == 0 {
			return err
		}
		open, err := c.Reservations(ctx)
		if err != nil {
			return err
		}
		confirmed := tenants[0].Confirmed(open)[host]
		if confirmed <= 0 {
			return nil
		}
		err = c.SetMachines(ctx, tenants[0], host, HostMachines{VMs: confirmed - 1, Remove: []string{machine}})
		switch {
		case isCode(err, "changed") && ctx.Err() == nil:
			// Another pod of the tenant came or went.
			continue
		case IsNotFound(err), isCode(err, "absurd"):
			// The tenant is gone, or the host has no machine of this name.
			return nil
		default:
			return err
		}
	}
}

// Tenants lists tenants: of all owners without an owner, the one of a name with both.
func (c *Client) Tenants(ctx context.Context, owner, name string) ([]Tenant, error) {
	query := url.Values{}
	for key, value := range map[string]string{"owner": owner, "name": name} {
		if value != "" {
			query.Set(key, value)
		}
	}
	all, err := pages[Tenant](ctx, c, "/v1/tenants", query)
	if err != nil {
		return nil, fmt.Errorf("listing tenants: %w", err)
	}
	return all, nil
}

// Reservations lists the open reservations.
func (c *Client) Reservations(ctx context.Context) ([]Reservation, error) {
	all, err := pages[Reservation](ctx, c, "/v1/reservations", url.Values{})
	if err != nil {
		return nil, fmt.Errorf("listing reservations: %w", err)
	}
	return all, nil
}

// pages returns the items of all pages of a list.
func pages[T any](ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	var all []T
	for {
		var page struct {
			Items []T    `json:"items"`
			Next  string `json:"next"`
		}
		if err := c.call(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Next == "" {
			return all, nil
		}
		query.Set("after", page.Next)
	}
}

// Explain returns the placement of a whole tenant, or the reason of its refusal and the nearest
// requests that would pass. It changes nothing.
func (c *Client) Explain(ctx context.Context, wanted TenantRequest) (Explanation, error) {
	var explanation Explanation
	if err := c.call(ctx, http.MethodPost, "/v1/explain", wanted, &explanation); err != nil {
		return Explanation{}, fmt.Errorf("asking for a placement: %w", err)
	}
	return explanation, nil
}

// Revision returns the number of the service's last change.
func (c *Client) Revision(ctx context.Context) (uint64, error) {
	var status struct {
		Revision *uint64 `json:"revision"`
	}
	if err := c.call(ctx, http.MethodGet, "/v1/status", nil, &status); err != nil {
		return 0, fmt.Errorf("asking for the state of the service: %w", err)
	}
	if status.Revision == nil {
		return 0, fmt.Errorf("asking for the state of the service: %w: a state without a revision", ErrVersion)
	}
	return *status.Revision, nil
}

// header is a header of a request.
type header struct {
	name, value string
}

// call sends one request to one replica after the other, until one answers. All tries of a change
// have one idempotency key, so that it is executed once.
func (c *Client) call(ctx context.Context, method, path string, body, answer any, headers ...header) error {
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
	}
	if method == http.MethodPost {
		headers = append(headers, header{"Idempotency-Key", rand.Text()})
	}
	var last error
	// The second round is for a leader that changed meanwhile.
	for range 2 {
		for _, replica := range c.replicas {
			last = c.try(ctx, method, replica+path, headers, sent, answer)
			if !errors.Is(last, ErrUnavailable) || ctx.Err() != nil {
				return last
			}
		}
	}
	return last
}

func (c *Client) try(ctx context.Context, method, address string, headers []header, sent []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(sent))
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	if sent != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		request.Header.Set(header.name, header.value)
	}
	if c.tokenFile != "" {
		token, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return fmt.Errorf("reading the token: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%w: the answer broke off: %w", ErrUnavailable, err)
	}
	return decode(response, got, answer)
}

// decode reads an answer, or returns the error that it is.
func decode(response *http.Response, got []byte, answer any) error {
	kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	where := response.Request.URL.Redacted()
	switch {
	case response.StatusCode >= 200 && response.StatusCode < 300:
		if answer == nil {
			return nil
		}
		if err := json.Unmarshal(got, answer); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrVersion, where, err)
		}
		return nil
	case response.StatusCode == http.StatusBadGateway || response.StatusCode == http.StatusGatewayTimeout:
		return fmt.Errorf("%w: %s: %s", ErrUnavailable, where, response.Status)
	case kind == "application/problem+json":
		problem := &Problem{}
		if err := json.Unmarshal(got, problem); err != nil || problem.Code == "" {
			return fmt.Errorf("%w: %s: a problem without a code", ErrVersion, where)
		}
		problem.Status = response.StatusCode
		if problem.Code == "unavailable" {
			return fmt.Errorf("%w: %w", ErrUnavailable, problem)
		}
		// The service knows no such path: it is older than this client.
		if response.StatusCode == http.StatusMethodNotAllowed {
			return fmt.Errorf("%w: %w", ErrVersion, problem)
		}
		return problem
	default:
		return fmt.Errorf("%w: %s: %s", ErrVersion, where, response.Status)
	}
}
