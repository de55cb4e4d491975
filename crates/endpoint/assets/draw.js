// Elements, numbers and charts. Text from the agent becomes text nodes only.

/** Creates an element; `props` are attributes, `on…` listeners or `class`. */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  apply(element, props);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

function apply(element, props) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
}

const SVG = "http://www.w3.org/2000/svg";
function svg(tag, props, ...children) {
  const element = document.createElementNS(SVG, tag);
  apply(element, props);
  element.append(...children);
  return element;
}

/** Sets text only if it changed, so that an idle page costs nothing. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const NONE = "–";

/** Cores: 0.25, 1.5, 12. */
export function cores(value) {
  if (value === undefined || value === null) return NONE;
  return value >= 9.95 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2);
}

/** A share of the time: `12 %`. Summed over threads or CPUs, it can exceed 100 %. */
export function percent(share) {
  if (share === undefined || share === null) return NONE;
  const number = share * 100;
  return number > 0 && number < 0.5 ? "<1 %" : `${number.toFixed(0)} %`;
}

export function seconds(value) {
  return value < 0.095 ? `${(value * 1000).toFixed(0)} ms` : value < 9.95 ? `${value.toFixed(1)} s` : `${value.toFixed(0)} s`;
}

let isLocal = false;
/** Shows times in the browser's zone, or in UTC as `cpuwarden top` and `replay --at`. */
export function setZone(local) { isLocal = local; }
/** Name of the zone in which times are shown. */
export const zone = () => isLocal ? "local" : "UTC";
const shown = (ms) => new Date(isLocal ? ms - 60_000 * new Date(ms).getTimezoneOffset() : ms).toISOString();

/** Time of day of milliseconds since the epoch. */
export const clock = (ms) => shown(ms).slice(11, 19);

/** As `clock`, with the date and the zone. */
export const dateTime = (ms) => `${shown(ms).slice(0, 10)} ${clock(ms)} ${zone()}`;

export function podName(pod) {
  if (!pod.pod) return pod.namespace === "system" ? "system (outside pods)" : pod.namespace === "other" ? "all other pods" : pod.namespace;
  return pod.namespace ? `${pod.namespace}/${pod.pod}` : pod.pod;
}

/** Step 0 to 5 of a share from 0 to 1. */
export function step(share) {
  if (!(share > 0.002)) return 0;
  return share < 0.05 ? 1 : share < 0.2 ? 2 : share < 0.5 ? 3 : share < 1 ? 4 : 5;
}

/** Step 0 to 5 of a CPU's load. */
export function loadStep(busy) {
  return busy === undefined ? 0 : Math.min(5, Math.ceil(busy * 5 - 0.15));
}

/** The row of a list to which keys move. Each row has a key in its data set, and the selection follows it when the rows change. */
export class Selection {
  at = 0;
  /** Whether the row is shown as such: from the first key on. */
  #marked = false;

  constructor(body) { this.body = body; }

  /** Whether a row has the focus. */
  hasFocus() { return this.body.contains(document.activeElement); }

  /** Changes the rows; a row that has the focus keeps it, also if it gets another element. */
  update(change) {
    const key = this.#marked && this.hasFocus() ? document.activeElement.closest("tr").dataset.key : null;
    change();
    const rows = [...this.body.children];
    const at = rows.findIndex((row) => row.dataset.key === key);
    if (at >= 0) {
      this.at = at;
      if (document.activeElement.closest("tr") !== rows[at]) this.#target(rows[at]).focus({ preventScroll: true });
    }
    rows.forEach((row, at) => row.classList.toggle("selected", this.#marked && at === this.at));
  }

  move(by) {
    const rows = this.body.children;
    if (!rows.length) return;
    this.at = Math.max(0, Math.min(rows.length - 1, this.at + (this.#marked ? by : 0)));
    this.#marked = true;
    this.#target(rows[this.at]).focus({ preventScroll: true });
    this.update(() => {});
    rows[this.at].scrollIntoView({ block: "nearest" });
  }

  open() {
    const row = this.hasFocus() ? document.activeElement.closest("tr") : this.body.children[this.at];
    if (row) this.#target(row).click();
  }

  /** The link of a row; of a pod that is gone, the row. */
  #target(row) {
    const link = row.querySelector("a");
    if (!link) row.tabIndex = -1;
    return link ?? row;
  }
}

/** A bar; the width is set by script because the policy forbids inline style in markup. */
export function meter() {
  const bar = h("i");
  const element = h("span", { class: "meter" }, bar);
  return {
    element,
    set(share, full) {
      bar.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
      element.classList.toggle("full", Boolean(full));
    },
  };
}

/** Number of cells of a strip: one per second of the last minute. */
const CELLS = 60;

/** Draws the strips of canvases of the page: pairs of a canvas and its values. All sizes are read first, because a canvas that changes makes the next read lay out the whole page. */
export function strips(pairs) {
  const sized = pairs.map(([canvas, values]) => [canvas, values, [canvas.clientWidth, canvas.clientHeight]]);
  for (const entry of sized) strip(...entry);
}

/** Draws values of the last minute as cells, the newest at the right. The label is for readers without sight. */
function strip(canvas, values, size) {
  const known = values.slice(-CELLS).filter((value) => value !== undefined && value !== null);
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", known.length ? `last ${known.length} seconds: on average ${percent(mean)}, at most ${percent(Math.max(...known))} of the time` : "no data");
  const scale = window.devicePixelRatio || 1;
  const [width, height] = size.map((pixels) => Math.round(pixels * scale));
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  // Whole pixels, so that all cells are equally wide.
  const cell = Math.max(1, Math.floor(width / CELLS));
  const gap = cell > 2 ? 1 : 0;
  for (let at = 0; at < CELLS; at++) {
    const value = values[values.length - CELLS + at];
    context.fillStyle = value === undefined || value === null ? noValue : heat[step(value)];
    context.fillRect(at * cell, 0, cell - gap, height);
  }
}

let [heat, noValue] = [[], ""];
function readColors() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  heat = [0, 1, 2, 3, 4, 5].map((number) => color(`--heat-${number}`));
  noValue = color("--ground");
}
readColors();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", readColors);

const WIDTH = 600;
const HEIGHT = 100;

/**
 * A chart of lines over time. Each line: {name, values, over}; values of null are gaps.
 * The first line is filled, and above the others except for those with `over`. `top` is the least upper end of the scale.
 * With `times`, the values are at the times `atMs`, from `begin` to `end`; otherwise at equal distances.
 */
export function chart(lines, top, format, times) {
  const known = lines.flatMap((line) => line.values.filter((value) => value !== null));
  const most = Math.max(top, ...known) * 1.08;
  const root = svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  for (const y of [0, 0.5, 1]) root.append(svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: y * HEIGHT, y2: y * HEIGHT }));
  lines.forEach((line, at) => {
    if (at === 0) root.append(svg("path", { class: `area c-${line.name}`, d: area(line.values, most, times) }));
  });
  for (const line of lines.toReversed().sort((a, b) => Number(a.over ?? false) - Number(b.over ?? false))) root.append(svg("path", { class: `line c-${line.name}`, d: path(line.values, most, times) }));
  const label = h("span", null, `scale 0 to ${format(most)}`);
  return { root, label };
}

/** The values of a line as text, for readers without sight. */
export function described(name, values, format) {
  const known = values.filter((value) => value !== null);
  return known.length ? `${name}: ${format(known.at(-1))}, at most ${format(Math.max(...known))}` : `${name}: no data`;
}

/** Positions of the values. With times, `null` also stands for a gap. */
function points(values, most, times) {
  const y = (value) => HEIGHT - (value / most) * HEIGHT;
  if (!times) {
    const last = Math.max(values.length - 1, 1);
    return values.map((value, at) => value === null ? null : [(at / last) * WIDTH, y(value)]);
  }
  const { atMs, begin, end } = times;
  const gap = Math.max(25_000, (3 * (end - begin)) / 600);
  const x = (at) => ((atMs[at] - begin) / (end - begin)) * WIDTH;
  return values.flatMap((value, at) => {
    if (value === null || atMs[at] < begin) return [null];
    const point = [x(at), y(value)];
    return at > 0 && atMs[at] - atMs[at - 1] > gap ? [null, point] : [point];
  });
}

function path(values, most, times) {
  let text = "";
  let drawing = false;
  for (const point of points(values, most, times)) {
    if (point === null) { drawing = false; continue; }
    text += `${drawing ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
    drawing = true;
  }
  return text;
}

function area(values, most, times) {
  let text = "";
  let run = [];
  const close = () => {
    if (run.length > 1) text += `M${run[0][0].toFixed(1)} ${HEIGHT}` + run.map(([x, y]) => `L${x.toFixed(1)} ${y.toFixed(1)}`).join("") + `L${run.at(-1)[0].toFixed(1)} ${HEIGHT}Z`;
    run = [];
  };
  for (const point of points(values, most, times)) point === null ? close() : run.push(point);
  close();
  return text;
}

/** A vertical line in a chart; returns what places it at a share of the width, or hides it. */
export function cursor(root) {
  const line = svg("line", { class: "at", y1: 0, y2: HEIGHT, visibility: "hidden" });
  root.append(line);
  return (share) => {
    line.setAttribute("visibility", share === null ? "hidden" : "visible");
    for (const end of ["x1", "x2"]) line.setAttribute(end, (share ?? 0) * WIDTH);
  };
}

/** Distances of ticks, seconds. */
const TICKS = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600];
/** Maximum number of ticks. */
const MOST_TICKS = 7;

/** Times below a chart, and a text at the left. */
export function ticks(begin, end, text) {
  const step = 1000 * (TICKS.find((seconds) => (end - begin) / 1000 / seconds <= MOST_TICKS) ?? TICKS.at(-1));
  const offset = isLocal ? 60_000 * new Date(end).getTimezoneOffset() : 0;
  const marks = [];
  for (let time = Math.ceil((begin - offset) / step) * step + offset; time <= end; time += step) {
    const share = (time - begin) / (end - begin);
    // The ends have no room.
    if (share < 0.03 || share > 0.97) continue;
    const mark = h("span", null, step % 60_000 ? clock(time) : clock(time).slice(0, 5));
    mark.style.left = `${100 * share}%`;
    marks.push(mark);
  }
  return h("div", { class: "scale" }, h("p", { class: "ticks" }, marks), h("p", { class: "axis" }, h("span", null, text), h("span", null, zone())));
}
