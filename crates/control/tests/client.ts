// Uses the types that openapi-typescript made of the service's document; see generated.rs.
//
// Usage: node client.js URL TOKEN.

import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

type TenantLine = components["schemas"]["TenantLine"];

const [url, token] = process.argv.slice(2);
const client = (secret: string) =>
  createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${secret}` } });
const service = client(token);

function check(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

const before = await service.GET("/v1/status");
check(before.data !== undefined, before.error);

// An admission, and a refusal with its rule.
const guarantee = { bandwidth: "100Mbit/s", burst: "15KB", delay: "1ms", burst_rate: "1Gbit/s" };
const made = await service.POST("/v1/tenants", {
  body: { name: "web", owner: "acme", vms: 2, guarantee },
  params: { header: { "idempotency-key": "1" } },
});
check(made.data?.request.vms === 2, made.error);
const refused = await service.POST("/v1/tenants", { body: { name: "all", owner: "acme", vms: 99 } });
check(refused.error?.refusal?.rule === "slots", refused.data);

// A stream: each line of its body is a TenantLine.
const stream = await service.GET("/v1/changes/tenants", {
  params: { query: { since: before.data.revision } },
  parseAs: "stream",
});
check(stream.response.ok && stream.data !== null && stream.data !== undefined, stream.error);
const body = stream.data as unknown as ReadableStream<Uint8Array>;
const reader = body.pipeThrough(new TextDecoderStream() as never).getReader();
let text = "";
let seen: TenantLine | undefined;
while (seen === undefined) {
  const { done, value } = (await reader.read()) as { done: boolean; value?: string };
  check(!done, "the stream ended");
  text += value;
  const lines = text.split("\n");
  text = lines.pop() ?? "";
  seen = lines.map((line) => JSON.parse(line) as TenantLine).find((line) => line.tenant);
}
check(seen.tenant?.id === made.data.id, seen);
await reader.cancel();

const issued = await service.POST("/v1/tokens", { body: { name: "ci", role: "tenant", owner: "acme" } });
check(issued.data?.token.name === "ci", issued.error);
const own = await client(issued.data.secret).GET("/v1/tenants");
check(own.data?.items[0].name === "web", own.error);
const revoked = await service.DELETE("/v1/tokens/{name}", { params: { path: { name: "ci" } } });
check(revoked.response.status === 204, revoked.error);
console.log("all answers are as the client expects");
