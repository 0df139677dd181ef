// The curves of a port that refuses: what it carries, what the request adds, and what it can take.

import { h, svg } from "./dom.js";
import { bytes, time } from "./units.js";

const [WIDTH, HEIGHT] = [440, 270];
const PLOT = { left: 56, right: 10, top: 10, bottom: 36 };
const SAMPLES = 300;
/** Of a queue that never drains there is no end to show. */
const MOST_CAPACITIES = 6;

const at = ({ rate_bit_s: rate, burst_bits: burst }, nanos) => burst + (rate * nanos) / 1e9;
const least = (lines, nanos) => Math.min(...lines.map((line) => at(line, nanos)));

/** The curves of an overload as functions of nanoseconds, in bits. */
export function curves({ rate_bit_s: rate, room_bytes: room, capacity_ns: capacity, carried, added, feed }) {
  // Both curves touch their true ones at the same times, so the sum is taken line by line.
  const sums = carried.length === added.length
    ? carried.map((line, index) => ({ rate_bit_s: line.rate_bit_s + added[index].rate_bit_s, burst_bits: line.burst_bits + added[index].burst_bits }))
    : null;
  const sum = (nanos) => Math.min(
    sums ? least(sums, nanos) : least(carried, nanos) + least(added, nanos),
    feed ? at(feed, nanos) : Infinity,
  );
  // What the queue has room for is what the link sends within its capacity, but for a frame.
  const frame = (rate * capacity) / 1e9 - room * 8;
  return {
    carried: (nanos) => (carried.length ? least(carried, nanos) : 0),
    added: (nanos) => (added.length ? least(added, nanos) : 0),
    sum,
    service: (nanos) => Math.max(0, (rate * nanos) / 1e9 - frame),
    limit: (nanos) => room * 8 + (rate * nanos) / 1e9,
  };
}

/** Until when it is interesting: somewhat longer than the queue takes to drain. */
function until({ service, sum }, capacity) {
  for (let nanos = capacity / 4; nanos < MOST_CAPACITIES * capacity; nanos *= 1.05) {
    if (sum(nanos) <= service(nanos)) return Math.max(nanos * 1.1, capacity * 1.5);
  }
  return MOST_CAPACITIES * capacity;
}

/** Round numbers up to `most`, in the unit that is `unit` of what is counted. */
function ticks(most) {
  const rough = most / 4;
  const decade = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 5, 10].map((factor) => factor * decade).find((candidate) => candidate >= rough);
  return Array.from({ length: Math.floor(most / size) + 1 }, (_, index) => index * size);
}

const LINES = [
  ["limit", "what it can take: its service, and room to wait"],
  ["service", "what it sends"],
  ["carried", "carried now"],
  ["added", "added by the request"],
  ["sum", "both, no more than its feeding links bring"],
];

/** A figure of an overload. */
export function chart(overload) {
  const all = curves(overload);
  const end = until(all, overload.capacity_ns);
  const times = Array.from({ length: SAMPLES + 1 }, (_, index) => (index * end) / SAMPLES);
  const top = 1.06 * Math.max(...times.flatMap((nanos) => [all.sum(nanos), all.limit(nanos) * 0.9]));
  const x = (nanos) => PLOT.left + ((WIDTH - PLOT.left - PLOT.right) * nanos) / end;
  const y = (bits) => HEIGHT - PLOT.bottom - ((HEIGHT - PLOT.top - PLOT.bottom) * bits) / top;
  const point = (curve) => (nanos) => `${x(nanos).toFixed(1)},${y(curve(nanos)).toFixed(1)}`;
  const grid = [
    ...ticks(end).map((nanos) => [
      svg("line", { class: "grid", x1: x(nanos), x2: x(nanos), y1: PLOT.top, y2: HEIGHT - PLOT.bottom }),
      svg("text", { class: "soft", x: x(nanos), y: HEIGHT - PLOT.bottom + 16, "text-anchor": "middle" }, nanos ? time(nanos) : "0"),
    ]),
    ...ticks(top / 8).map((size) => [
      svg("line", { class: "grid", x1: PLOT.left, x2: WIDTH - PLOT.right, y1: y(size * 8), y2: y(size * 8) }),
      svg("text", { class: "soft", x: PLOT.left - 6, y: y(size * 8) + 4, "text-anchor": "end" }, size ? bytes(size) : "0"),
    ]),
  ];
  const over = times.filter((nanos) => all.sum(nanos) > all.limit(nanos));
  const shade = over.length > 1 && svg("polygon", {
    class: "over", points: [...over.map(point(all.sum)), ...over.toReversed().map(point(all.limit))].join(" "),
  });
  const backlog = (nanos) => all.sum(nanos) - all.service(nanos);
  const longest = times.reduce((best, nanos) => (backlog(nanos) > backlog(best) ? nanos : best), 0);
  const gap = overload.backlog_bytes !== undefined && svg("line", {
    class: "gap", x1: x(longest) + 1, x2: x(longest) + 1, y1: y(all.sum(longest)), y2: y(all.service(longest)),
  });
  const picture = svg("svg", {
    class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "data-over": over.length,
    "aria-label": `Curves of the port ${overload.port} over ${time(end)}: ${overload.message}`,
  }, grid,
  svg("clipPath", { id: "plot" }, svg("rect", { x: PLOT.left, y: PLOT.top, width: WIDTH - PLOT.left - PLOT.right, height: HEIGHT - PLOT.top - PLOT.bottom })),
  svg("path", { class: "axis", fill: "none", d: `M${PLOT.left} ${PLOT.top}V${HEIGHT - PLOT.bottom}H${WIDTH - PLOT.right}` }),
  svg("g", { "clip-path": "url(#plot)" },
    shade || [],
    LINES.map(([name]) => svg("polyline", { class: `curve ${name}`, points: times.map(point(all[name])).join(" ") })),
    gap || []));
  const swatch = (name) => svg("svg", { viewBox: "0 0 26 10", width: 26, height: 10, class: "key", "aria-hidden": "true" }, svg("line", { class: `curve ${name}`, x1: 0, x2: 26, y1: 5, y2: 5 }));
  return h("figure", { id: "curves" }, picture, h("figcaption", { class: "note keys" },
    LINES.map(([name, text]) => h("span", null, swatch(name), text)),
    h("span", null, "Begin: all senders send a burst at once. Shaded: above the capacity.")));
}
