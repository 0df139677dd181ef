// Numbers as people read them, and what the colours stand for.

const three = (value) => Number(value.toPrecision(3)).toString();

function scaled(value, units) {
  for (const [name, size] of units) if (value >= size) return `${three(value / size)} ${name}`;
  const [name, size] = units[units.length - 1];
  return `${three(value / size)} ${name}`;
}

/** Bits a second. */
export const rate = (bits) => scaled(bits, [["Tbit/s", 1e12], ["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3], ["bit/s", 1]]);
/** Bytes, in powers of ten. */
export const bytes = (count) => scaled(count, [["GB", 1e9], ["MB", 1e6], ["KB", 1e3], ["B", 1]]);
/** Nanoseconds. */
export const time = (nanos) => scaled(nanos, [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]]);
/** A count with its word: `1 host`, `2 hosts`. */
export const count = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
/** Thousandths as a percentage, rounded down: what is left is never overstated. */
export const percent = (thousandths) => (thousandths < 100 && thousandths % 10 ? `${(thousandths / 10).toFixed(1)} %` : `${Math.floor(thousandths / 10)} %`);

/** The service writes quantities as text with a unit; in nanoseconds. */
export function nanos(text) {
  const [, number, unit] = /^([\d.]+)\s*(ns|us|ms|s)$/.exec(text) ?? [null, NaN, "ns"];
  return Number(number) * { ns: 1, us: 1e3, ms: 1e6, s: 1e9 }[unit];
}

/** The classes of headroom: from how many thousandths on, and what the legend says. */
export const STEPS = [
  { from: 0, label: "below 10 %" },
  { from: 100, label: "10 to 25 %" },
  { from: 250, label: "25 to 50 %" },
  { from: 500, label: "50 to 75 %" },
  { from: 750, label: "75 % or more" },
];
/**
 * The value of a node that is drawn as one cell: of a host its headroom; otherwise the share of hosts
 * that are not tight, or the headroom of its own link if that is lower. The scarcest of many hosts
 * says nothing: among 10,000 there is always one.
 */
export const share = ({ height, headroom, hosts, tight }) => (height > 0 ? Math.min(headroom, Math.floor(((hosts - tight) * 1000) / hosts)) : headroom);
/** The class of a headroom in thousandths. */
export const step = (headroom) => STEPS.findLastIndex(({ from }) => headroom >= from);

/** What a node is called by its height. */
export const kind = (height, name) => (name === "core" ? "core" : ["host", "rack", "pod"][height] ?? "group");

/** A request in short: `9 x 1Gbit/s, burst 100KB`. */
export function summary({ vms, guarantee }) {
  if (!guarantee) return `${vms} × best effort`;
  const { bandwidth, burst, delay, burst_rate: fast } = guarantee;
  const parts = [`${vms} × ${bandwidth}`];
  if (burst && burst !== "0B") parts.push(`burst ${burst}${fast ? ` at ${fast}` : ""}`);
  if (delay) parts.push(`within ${delay}`);
  return parts.join(", ");
}
