// Numbers as people read them. Missing values are a dash.
const NONE = "–";
const isMissing = (value) => value === null || value === undefined || Number.isNaN(value);

/** Three significant digits at most, so that columns of figures stay calm. */
export function number(value) {
  if (isMissing(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1e9) return `${trim(value / 1e9)}\u202fG`;
  if (size >= 1e6) return `${trim(value / 1e6)}\u202fM`;
  if (size >= 1e4) return `${trim(value / 1e3)}\u202fk`;
  return trim(value);
}

function trim(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value)) return String(value);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : size === 0 ? "0" : value.toFixed(2);
}

/** Whole counts, with thin spaces between thousands. */
export const count = (value) => (isMissing(value) ? NONE : Math.round(value).toLocaleString("en").replaceAll(",", "\u202f"));

/** [value, unit] of a time in milliseconds. */
export function parts(ms) {
  if (isMissing(ms)) return [NONE, ""];
  const size = Math.abs(ms);
  if (size === 0) return ["0", "ms"];
  if (size >= 60_000) return [`${Math.floor(ms / 60_000)}:${String(Math.floor((ms % 60_000) / 1000)).padStart(2, "0")}`, "min"];
  if (size >= 10_000) return [(ms / 1000).toFixed(1), "s"];
  if (size >= 1000) return [(ms / 1000).toFixed(2), "s"];
  if (size >= 100) return [ms.toFixed(0), "ms"];
  if (size >= 10) return [ms.toFixed(1), "ms"];
  if (size >= 0.1) return [ms.toFixed(2), "ms"];
  return [(ms * 1000).toFixed(0), "µs"];
}

export const duration = (ms) => parts(ms).join("\u202f").trim();
/** The same for axes, where digits that say nothing are in the way. */
export const tick = (ms) => {
  const [value, unit] = parts(ms);
  return `${value.includes(".") ? value.replace(/\.?0+$/, "") : value}\u202f${unit}`.trim();
};

export const seconds = (s) => duration(isMissing(s) ? null : s * 1000);
export function share(ratio) {
  if (isMissing(ratio)) return NONE;
  if (ratio > 0 && ratio < 0.0005) return "<0.1\u202f%";
  return `${ratio > 0 && ratio < 0.0995 ? (ratio * 100).toFixed(1) : Math.round(ratio * 100)}\u202f%`;
}

export function bytes(value) {
  if (isMissing(value)) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let index = 0;
  while (value >= 1024 && index < units.length - 1) {
    value /= 1024;
    index += 1;
  }
  return `${index ? trim(Math.round(value * 10) / 10) : value}\u202f${units[index]}`;
}

/** The time of day of a Unix time in seconds, with milliseconds on request. */
export function clock(s, { withMs = false } = {}) {
  if (isMissing(s)) return NONE;
  const at = new Date(s * 1000);
  const text = at.toLocaleTimeString("en-GB");
  return withMs ? `${text}.${String(at.getMilliseconds()).padStart(3, "0")}` : text;
}

/** How long ago a Unix time in seconds was. */
export function ago(s, now = Date.now() / 1000) {
  if (isMissing(s)) return NONE;
  const age = Math.max(0, now - s);
  if (age < 60) return `${Math.round(age)}\u202fs`;
  if (age < 3600) return `${Math.floor(age / 60)}\u202fmin`;
  if (age < 86_400) return `${Math.floor(age / 3600)}\u202fh`;
  return `${Math.floor(age / 86_400)}\u202fd`;
}

/** "3 calls", "1 call", "2 guesses". */
export const plural = (num, word) => `${count(num)} ${word}${num === 1 ? "" : /[hs]$/.test(word) ? "es" : "s"}`;
