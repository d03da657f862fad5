// What the charts share: sizes, axes, and bars per second.

export const SECONDS = 60;

/** frame is the geometry of a chart in a node, in its own pixels. */
export function frame(node, height, margin) {
  const width = Math.max(280, node.clientWidth || 280);
  node.setAttribute("viewBox", `0 0 ${width} ${height}`);
  node.setAttribute("height", height);
  const m = { top: 18, right: 8, bottom: 20, left: 46, ...margin };
  const inner = width - m.left - m.right;
  return {
    ...m, width, height, step: inner / SECONDS,
    /** x is the left side of the second that ended so many seconds ago. */
    x: (ago) => width - m.right - (ago + 1) * (inner / SECONDS),
  };
}

export const rect = (x, y, w, h, more) => (h > 0 && w > 0 ? `<rect x="${x.toFixed(1)}" y="${y.toFixed(1)}" width="${w.toFixed(1)}" height="${h.toFixed(1)}" ${more}/>` : "");

export const label = (x, y, s, anchor, cls = "label") => `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor}" class="${cls}">${s}</text>`;

/** gutter names a height, in the margin. */
export const gutter = (f, y, ...lines) => lines.map((s, i) => label(f.left - 7, y + 4 + (i - (lines.length - 1) / 2) * 14, s, "end", i === 0 ? "label strong" : "label")).join("");

export const rule = (f, y, cls) => `<path d="M${f.left} ${y.toFixed(1)}H${f.width - f.right}" class="${cls}"/>`;

/** steps is a line with one height per second. */
export const steps = (f, heights, cls) => `<path d="${heights.map((y, i) => `${i ? "V" : `M${f.x(heights.length - 1).toFixed(1)} `}${y.toFixed(1)}h${f.step.toFixed(2)}`).join("")}" class="${cls}"/>`;

/** hatch is the pattern of what is not Redis' word, for those who don't see colours. */
export const hatch = (id) => `<defs><pattern id="${id}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" class="c-local"/><rect width="2" height="6" class="hatch-fill"/></pattern></defs>`;

/** times labels the axis of time. */
export function times(f) {
  const every = f.width < 420 ? 30 : 15;
  let out = "";
  for (let ago = 0; ago <= SECONDS; ago += every) {
    const x = f.x(ago - 1);
    out += label(x, f.height - 5, ago === 0 ? "now" : `−${ago} s`, ago === 0 ? "end" : ago === SECONDS ? "start" : "middle");
  }
  return out;
}

const names = { killed: "killed", frozen: "frozen", slow: "slow" };

/** faults shades the seconds in which something was wrong with Redis. */
export function faults(f, seconds, bottom, named) {
  let out = "";
  for (let i = 0; i < seconds.length;) {
    const fault = seconds[i].fault;
    let j = i;
    while (j < seconds.length && seconds[j].fault === fault) j++;
    if (names[fault]) {
      const x = f.x(seconds.length - 1 - i), w = (j - i) * f.step;
      out += rect(x, f.top - 14, w, bottom - f.top + 14, 'class="fault"');
      if (named && w > 36) out += label(x + w / 2, f.top - 3, names[fault], "middle", "label fault-label");
    }
    i = j;
  }
  return out;
}
