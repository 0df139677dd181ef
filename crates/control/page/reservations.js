// Reservations: the places that schedulers hold for machines that do not run yet, or have confirmed.

import { at, button, h, table } from "./dom.js";
import { count, nanos } from "./units.js";

const PAGE = 50;
/** Hosts of one reservation that are named. */
const FEW = 4;

export class Reservations {
  #app;
  /** The cursors of the pages up to the present one. */
  #pages = [undefined];

  constructor(app) { this.#app = app; }

  async refresh() {
    this.#list(await this.#app.api.get("/v1/reservations", { limit: PAGE, after: this.#pages.at(-1) }));
  }

  #list({ items, next }) {
    const turn = (change) => this.#app.attempt(() => { change(); return this.refresh(); });
    at("reservation-list").replaceChildren(
      items.length
        ? table(null, ["tenant", "state", "hosts", ""], items.map((one) => [
          button(`${one.owner}/${one.name}`, () => this.#app.openTenant(one.tenant), { class: "link" }),
          this.#state(one),
          hosts(one.machines),
          button("Cancel", () => this.#cancel(one), { "data-cancel": one.id, "aria-label": `Cancel reservation ${one.id}` }),
        ]), { id: "reservations" })
        : h("p", { class: "soft" }, "No reservations."),
      h("p", { class: "actions" },
        this.#pages.length > 1 && button("Previous", () => turn(() => this.#pages.pop())),
        next && button("Next", () => turn(() => this.#pages.push(next)))),
    );
  }

  /** The state, and for an open reservation the time of day of its end. */
  #state({ state, expires_in: left }) {
    const end = left && new Date(Date.now() + nanos(left) / 1e6).toLocaleTimeString();
    return [h("span", { class: "tag" }, state), end && ` until ${end}`];
  }

  #cancel({ id, owner, name, machines }) {
    this.#app.sure({
      title: `Cancel reservation ${id}?`,
      text: `${count(machines.length, "machine")} of ${owner}/${name} lose their place, and their slots become free.`,
      yes: "Cancel reservation",
      danger: true,
    }, async () => {
      await this.#app.api.call("DELETE", `/v1/reservations/${id}`);
      await this.#app.changed();
    });
  }
}

/** The hosts of some machines, with the number of machines on each. */
function hosts(machines) {
  const numbers = new Map();
  for (const { host } of machines) numbers.set(host, (numbers.get(host) ?? 0) + 1);
  const named = [...numbers].slice(0, FEW).map(([host, many]) => (many > 1 ? `${host} (${many})` : host)).join(", ");
  return numbers.size > FEW ? `${named} and ${count(numbers.size - FEW, "host")} more` : named;
}
