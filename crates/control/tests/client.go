// Uses the client that oapi-codegen made of the service's document; see generated.rs.
//
// Usage: client URL TOKEN.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"client/place"
)

func check(holds bool, what any) {
	if !holds {
		fmt.Fprintf(os.Stderr, "%v\n", what)
		os.Exit(1)
	}
}

func connect(url, token string) *place.ClientWithResponses {
	sign := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
	client, err := place.NewClientWithResponses(url, place.WithRequestEditorFn(sign))
	check(err == nil, err)
	return client
}

func main() {
	url, token := os.Args[1], os.Args[2]
	client, background := connect(url, token), context.Background()
	before, err := client.StatusWithResponse(background, nil)
	check(err == nil && before.JSON200 != nil, err)

	// An admission, and a refusal with its rule.
	owner, burst, delay, rate := "acme", "15KB", "1ms", "1Gbit/s"
	guarantee := &place.Guarantee{Bandwidth: "100Mbit/s", Burst: &burst, Delay: &delay, BurstRate: &rate}
	made, err := client.CreateTenantWithResponse(background, nil,
		place.NewTenant{Name: "web", Owner: &owner, Vms: 2, Guarantee: guarantee})
	check(err == nil && made.JSON201 != nil && made.JSON201.Request.Vms == 2, made)
	refused, err := client.CreateTenantWithResponse(background, nil,
		place.NewTenant{Name: "all", Owner: &owner, Vms: 99})
	check(err == nil && refused.ApplicationproblemJSON409 != nil, refused)
	check(refused.ApplicationproblemJSON409.Refusal.Rule == "slots", string(refused.Body))

	// A stream: each line of its body is a TenantLine.
	ended, end := context.WithCancel(background)
	defer end()
	stream, err := client.StreamTenants(ended, &place.StreamTenantsParams{Since: &before.JSON200.Revision})
	check(err == nil && stream.StatusCode == http.StatusOK, err)
	for lines := bufio.NewScanner(stream.Body); ; {
		check(lines.Scan(), "the stream ended")
		var line place.TenantLine
		check(json.Unmarshal(lines.Bytes(), &line) == nil, lines.Text())
		if line.Tenant != nil {
			check(line.Tenant.Id == made.JSON201.Id, lines.Text())
			break
		}
	}

	issued, err := client.IssueTokenWithResponse(background, nil,
		place.NewToken{Name: "ci", Role: "tenant", Owner: &owner})
	check(err == nil && issued.JSON201 != nil, issued)
	own, err := connect(url, issued.JSON201.Secret).ListTenantsWithResponse(background, nil)
	check(err == nil && own.JSON200 != nil && own.JSON200.Items[0].Name == "web", own)
	revoked, err := client.RevokeTokenWithResponse(background, "ci", nil)
	check(err == nil && revoked.StatusCode() == http.StatusNoContent, revoked)
	fmt.Println("all answers are as the client expects")
}
