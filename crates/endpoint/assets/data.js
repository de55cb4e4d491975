// Data of the page: the event stream, and the last minute of each container.

const MINUTE = 60;
/** Aggressors of each pod in the minute before the page was opened: about as many as the agent keeps. */
const AGGRESSORS = 7;
/** Delay before another attempt after the stream was refused, milliseconds. */
const RETRY = 3000;

/** In the text of JSON, its escapes, and characters without a picture of their own or that change the direction of others. */
const HIDDEN = /\\(?:u(.{4})|(.))|[\x7f-\x9f\p{Cf}\p{Zl}\p{Zp}]/gu;
const ESCAPES = { b: 8, f: 12, n: 10, r: 13, t: 9 };

/** The value of JSON, with such characters in names from outside as escapes that can be seen. In the text: a function for each value takes 30 times as long as the parser. */
const parse = (text) => JSON.parse(text.replace(HIDDEN, (found, hex, letter) => {
  const code = hex ? parseInt(hex, 16) : letter ? ESCAPES[letter] : found.codePointAt(0);
  return code === undefined ? found : `\\\\u{${code.toString(16)}}`;
}));

/** Fetches an answer of the API; a failure has the agent's text. */
export async function get(path) {
  const answer = await fetch(`api/v1/${path}`, { cache: "no-store" });
  const text = await answer.text();
  if (answer.ok) return parse(text);
  let reason = text.trim();
  try { reason = parse(text).error ?? reason; } catch { /* plain text */ }
  throw new Error(reason || `status ${answer.status}`);
}

export const keyOf = (row) => `${row.namespace}\n${row.pod}\n${row.container}`;
export const pairKey = (name) => `${name.namespace}\n${name.pod}`;

/** Whether a text in lower case contains every word of the filter, and none of those after `!` or `-`. */
export const matches = (text, filter) => filter.split(/\s+/).every((word) => /^[!-]/.test(word) ? word.length === 1 || !text.includes(word.slice(1)) : text.includes(word));

const throttled = (row) => (row.throttledOwn ?? 0) + (row.throttledAncestor ?? 0);

/** Verdicts of a frame with their places, by the key of the container of each slowed pod that used most CPU: the others may have done nothing. */
export function verdicts(frame) {
  const found = new Map();
  (frame.verdicts ?? []).forEach((verdict, place) => {
    const rows = frame.containers.filter((row) => pairKey(row) === pairKey(verdict.victim));
    if (!rows.length) return;
    const busiest = rows.reduce((a, b) => ((b.usageCores ?? 0) > (a.usageCores ?? 0) ? b : a));
    found.set(keyOf(busiest), { place, verdict });
  });
  return found;
}

/** Name of a workload that slows others. */
export const culpritName = (culprit) => !culprit.kind ? "the host (system)" : culprit.kind === "Container" ? `container ${culprit.name}` : `${culprit.namespace}/${culprit.name}`;

/** Time lost to limits, neighbors and the system: the order of the pods without a verdict. */
export function lost(row) {
  const waited = row.neighbor === undefined && row.system === undefined ? row.contention ?? 0 : (row.neighbor ?? 0) + (row.system ?? 0);
  return throttled(row) + waited;
}

/** Time lost by container, of series. */
function heatOf(points) {
  return new Map(points.containers.map((row) => {
    const names = Object.keys(row.measures);
    const values = points.atMs.map((_, at) => {
      const known = names.filter((name) => row.measures[name][at] !== null);
      return known.length ? lost(Object.fromEntries(known.map((name) => [name, row.measures[name][at]]))) : null;
    });
    return [keyOf(row), values.slice(-MINUTE)];
  }));
}

/** Time that others waited, by aggressor, of series. */
function harmOf(points) {
  const harm = new Map();
  for (const pair of points.pairs) {
    const key = pairKey(pair.aggressor);
    const sums = harm.get(key) ?? points.atMs.map(() => null);
    pair.wait.forEach((wait, at) => { if (wait !== null) sums[at] = (sums[at] ?? 0) + wait; });
    harm.set(key, sums);
  }
  return new Map([...harm].map(([key, sums]) => [key, sums.slice(-MINUTE)]));
}

/** Latest frame, per container the time lost in each of the last 60 seconds, and per pod the time that others waited for it. */
export class Store {
  #latest = { frame: null, heat: new Map(), harm: new Map() };
  /** The same data at the time of a pause. */
  #held = null;
  /** Whether the frames are those of a recording; `null` until the agent has said so. */
  recording = null;
  #isKindKnown = false;
  /** Time of the latest new frame, or of the start, of performance.now(). */
  heardAt = performance.now();
  /** The window that is shown: end in milliseconds since the epoch, and seconds; `null` for now. */
  window = null;
  /** Earliest time that the agent has for this client, milliseconds since the epoch. */
  beginMs = null;
  #seeded = 0;
  #source = null;
  #listeners = { frame: [], state: [], kind: [] };

  on(event, listener) { this.#listeners[event].push(listener); }
  #emit(event, value) { for (const listener of this.#listeners[event]) listener(value); }

  get #shown() { return this.#held ?? this.#latest; }
  get frame() { return this.#shown.frame; }
  get heat() { return this.#shown.heat; }
  get harm() { return this.#shown.harm; }

  /** End of the latest frame, also while another time is shown. */
  get latestMs() { return this.#latest.frame?.atMs; }
  /** What the strips of the tables show. */
  get stripLabel() { return this.window && this.window.seconds > MINUTE ? "In the window" : this.window ? "Minute before" : "Last minute"; }
  /** The window as parameters of a request, at least as long as this number of seconds. */
  query(least = 1) { return `seconds=${Math.max(least, this.window.seconds)}&until=${this.window.until}`; }

  /** Shows the mean of a window, and its strips; `null` continues with the latest data. */
  async show(window) {
    this.window = window;
    if (!window) { this.#held = null; return; }
    const measures = ["throttledOwn", "throttledAncestor", "neighbor", "system", "contention"].map((name) => `measure=${name}`).join("&");
    const strips = `history?${this.query(MINUTE)}&points=${MINUTE}`;
    const [frame, losses, waits] = await Promise.all([get(`frame?${this.query()}`), get(`${strips}&${measures}`), get(`${strips}&measure=contention&aggressors=${AGGRESSORS}`)]);
    if (window !== this.window) return;
    this.#held = { frame, heat: heatOf(losses), harm: harmOf(waits) };
  }

  /** Keeps the data as it is, or continues with the latest. */
  hold(isHeld) { this.#held = isHeld ? structuredClone(this.#latest) : null; }

  connect() {
    this.#source?.close();
    const source = new EventSource("api/v1/stream");
    this.#source = source;
    // Another process may have taken the address.
    source.addEventListener("open", () => { this.#isKindKnown = false; });
    source.addEventListener("frame", (event) => this.#observe(parse(event.data)));
    source.addEventListener("error", () => {
      this.#emit("state", "lost");
      // After a refusal the browser does not try again by itself.
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.connect(), RETRY);
    });
  }

  disconnect() { this.#source?.close(); }

  async #askKind() {
    this.#isKindKnown = true;
    try {
      const { recording, history } = await get("node");
      this.beginMs = history?.beginMs ?? null;
      if (recording === this.recording) return;
      this.recording = recording;
      this.#emit("kind", recording);
    } catch { this.#isKindKnown = false; }
  }

  #observe(frame) {
    if (!this.#isKindKnown) this.#askKind();
    const latest = this.#latest;
    const before = latest.frame;
    const ahead = before ? before.atMs - frame.atMs : -1;
    // A stream begins with a frame that may be known; a clock that was set back is no reason to stop.
    if (ahead >= 0 && ahead < 5000) { this.#emit("state", "live"); return; }
    const gap = before ? frame.atMs - before.atMs > 2500 * Math.max(1, frame.seconds) : true;
    latest.frame = frame;
    this.heardAt = performance.now();
    this.#push(latest.heat, new Map(frame.containers.map((row) => [keyOf(row), lost(row)])));
    const harm = new Map();
    for (const pair of frame.interference) harm.set(pairKey(pair.aggressor), (harm.get(pairKey(pair.aggressor)) ?? 0) + pair.wait);
    this.#push(latest.harm, harm);
    if (gap && Date.now() - this.#seeded > 5000) this.#seed();
    this.#emit("state", "live");
    this.#emit("frame", frame);
  }

  #push(series, values) {
    for (const [key, list] of series) {
      if (!values.has(key)) list.push(null);
      if (list.length > MINUTE) list.splice(0, list.length - MINUTE);
      if (list.every((value) => value === null)) series.delete(key);
    }
    for (const [key, value] of values) {
      if (!series.has(key)) series.set(key, []);
      const list = series.get(key);
      list.push(value);
      if (list.length > MINUTE) list.shift();
    }
  }

  /** Loads the minute before the page was opened, or before a gap. */
  async #seed() {
    this.#seeded = Date.now();
    const measures = ["throttledOwn", "throttledAncestor", "neighbor", "system", "contention"];
    try {
      const points = await get(`history?seconds=${MINUTE}&${measures.map((name) => `measure=${name}`).join("&")}`);
      for (const [key, values] of heatOf(points)) this.#latest.heat.set(key, values);
      const waits = await get(`history?seconds=${MINUTE}&measure=contention&aggressors=${AGGRESSORS}`);
      for (const [key, sums] of harmOf(waits)) this.#latest.harm.set(key, sums);
      this.#emit("frame", this.#latest.frame);
    } catch { /* The strips fill up from now on. */ }
  }

  /** Mean of the last five seconds: an order that does not jump every second. A window is a mean. */
  recent(key) {
    if (this.window) return 0;
    const values = (this.heat.get(key) ?? []).slice(-5).filter((value) => value !== null);
    return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : 0;
  }
}
