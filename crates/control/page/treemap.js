// The layout of the map: an ordered tree map, so that neighbours in the list are neighbours in the picture
// (Bederson, Shneiderman, Wattenberg, ACM Transactions on Graphics 2002: strips). Its rows are not
// filled one by one but all at once, by dynamic programming.

/** How many times wider than high a box should be: it has a name in it. */
const SHAPE = 1.3;

/** Where the rows begin: the cuts with the least sum of shape + 1/shape over all boxes. */
function rows(weights, width, scale) {
  const wanted = (width * width) / (SHAPE * scale);
  const best = [0];
  const begins = [0];
  for (let end = 1; end <= weights.length; end += 1) {
    let [sum, inverse] = [0, 0];
    best.push(Infinity);
    begins.push(0);
    for (let first = end - 1; first >= 0; first -= 1) {
      sum += weights[first];
      inverse += 1 / weights[first];
      // The boxes' shapes are wanted * weight / sum^2, so this needs no look at each of them.
      const cost = wanted / sum + (sum * sum * inverse) / wanted;
      if (best[first] + cost < best[end]) [best[end], begins[end]] = [best[first] + cost, first];
      // A longer row has ever narrower boxes.
      if ((sum * sum * inverse) / wanted > best[end]) break;
    }
  }
  const cuts = [];
  for (let end = weights.length; end > 0; end = begins[end]) cuts.unshift([begins[end], end]);
  return cuts;
}

/**
 * Cuts a box into one box for each weight, in rows from left to right and top to bottom.
 * Areas are in proportion to the weights, which are above zero.
 */
export function cut(weights, { x, y, width, height }) {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  if (!(total > 0) || !(width > 0) || !(height > 0)) return weights.map(() => ({ x, y, width: 0, height: 0 }));
  const scale = (width * height) / total;
  return rows(weights, width, scale).flatMap(([first, end]) => {
    const row = weights.slice(first, end);
    const sum = row.reduce((part, weight) => part + weight, 0);
    const deep = (sum * scale) / width;
    const top = y;
    y += deep;
    let left = x;
    return row.map((weight) => {
      const box = { x: left, y: top, width: (width * weight) / sum, height: deep };
      left += box.width;
      return box;
    });
  });
}

const HEADER = 19;
const EDGE = 3;
/** What is smaller than this a side is drawn whole, without what is in it. */
const LEAST = 5;

/**
 * Lays out a tree of map nodes in a box: [{node, parent, box, frame, header}], outer ones first.
 * A frame is a node with others drawn inside; all else are cells.
 */
export function layout(root, box) {
  const out = [];
  const visit = (node, parent, box, level) => {
    const children = node.children ?? [];
    const bare = node.name === "core";
    const header = bare ? 0 : Math.min(HEADER, box.height / 3);
    const edge = bare ? 0 : Math.min(EDGE, box.width / 10, box.height / 10);
    const inner = { x: box.x + edge, y: box.y + header, width: box.width - 2 * edge, height: box.height - header - edge };
    const boxes = cut(children.map(({ slots }) => slots), inner);
    const frame = children.length > 0 && boxes.every(({ width, height }) => Math.min(width, height) >= LEAST);
    out.push({ node, parent, box, frame, header: frame ? header : 0, level });
    if (frame) children.forEach((child, index) => visit(child, node, boxes[index], level + 1));
  };
  visit(root, null, box, 0);
  return out;
}
