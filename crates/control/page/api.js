// Talking to the service: the token, errors as problems, retries that cannot do a thing twice.

const TOKEN = "tailbound-token";
/** How often a write whose fate is not known is sent again, with the same key. */
const TRIES = 3;

/** What the service answered instead, or that it did not: `detail` says it in words, `field` where in what was sent. */
export class Problem extends Error {
  constructor({ status, code, detail, field }) {
    super(detail);
    Object.assign(this, { status, code, detail, field });
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (text) => sessionStorage.setItem(TOKEN, text),
  forget: () => sessionStorage.removeItem(TOKEN),
};

/** `crypto.randomUUID` is not there over plain HTTP on a network. */
function key() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `page-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

const wait = (millis) => new Promise((done) => { setTimeout(done, millis); });

async function once(method, path, body, headers) {
  let response;
  try {
    response = await fetch(path, {
      method, headers, cache: "no-store", credentials: "omit",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Problem({ status: 0, code: "away", detail: "The service does not answer." });
  }
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => null);
  if (response.ok && answer !== null) return answer;
  throw new Problem(answer?.detail ? answer : { status: response.status, code: "unknown", detail: `The service answered ${response.status} without a reason.` });
}

/**
 * One call. An answer `unauthenticated` asks for a token, and the call is made again.
 */
export class Api {
  /** Asks for a token; resolves when there is one. */
  onUnauthenticated = null;

  async call(method, path, body) {
    const write = method !== "GET" && !["/v1/fit", "/v1/explain"].includes(path);
    const headers = {};
    if (body !== undefined) headers["content-type"] = "application/json";
    if (write) headers["idempotency-key"] = key();
    for (let attempt = 1; ; attempt += 1) {
      const sent = token.get();
      if (sent) headers.authorization = `Bearer ${sent}`;
      try {
        return await once(method, path, body, headers);
      } catch (problem) {
        if (problem.status === 401 && this.onUnauthenticated) {
          await this.onUnauthenticated(problem.detail, sent);
        } else if (!(write && [0, 503].includes(problem.status) && attempt < TRIES)) {
          throw problem;
        } else {
          await wait(300 * attempt);
        }
      }
    }
  }

  get(path, query) {
    const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== "");
    return this.call("GET", given.length ? `${path}?${new URLSearchParams(given)}` : path);
  }

  post(path, body) { return this.call("POST", path, body); }
}

/** A name as a part of a path. */
export const part = encodeURIComponent;
