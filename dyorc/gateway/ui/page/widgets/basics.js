// Small pieces that all views share.
import { html, useEffect, useState } from "../html.js";
import { get } from "../api.js";

export function Head({ title, note, children }) {
  return html`<div class="head">
    <div class="head-text">
      <h1 tabindex="-1">${title}</h1>
      ${note && html`<p class="muted small">${note}</p>`}
    </div>
    ${children && html`<div class="controls">${children}</div>`}
  </div>`;
}

export function Panel({ title, note, width = "", children }) {
  return html`<section class="panel ${width}" aria-label=${title}>
    ${title && html`<header><h2>${title}</h2>${note && html`<span class="note">${note}</span>`}</header>`} ${children}
  </section>`;
}

/** Key figures in a row: [{name, value, unit, tone, title}]. */
export function Figures({ figures, label }) {
  return html`<dl class="figures" aria-label=${label}>
    ${figures.map(
      ({ name, value, unit, tone = "", title, id }) => html`<div class="figure" title=${title ?? name} key=${name}>
        <dt>${name}</dt>
        <dd class=${tone} data-figure=${id}>${value}${unit && html`<small>${unit}</small>`}</dd>
      </div>`,
    )}
  </dl>`;
}

const TONES = {
  ready: "ok", ok: "ok", succeeded: "ok", done: "ok", warm: "ok", running: "accent", loading: "accent", starting: "accent", warming: "accent",
  parked: "", cold: "", off: "warn", starved: "bad", queued: "", waiting: "", cancelled: "", withdrawn: "", parking: "", squashed: "warn", lost: "warn", failing: "bad", failed: "bad",
}; // prettier-ignore

/** A state in a word; an unknown state is an error's name. */
export function State({ state, isError = false }) {
  const tone = TONES[state] ?? (isError ? "bad" : "");
  return html`<span class="tag ${tone}" title=${state}>${state.replaceAll("_", " ")}</span>`;
}

export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}

export function Table({ label, head, children }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead><tr>${head.map((name) => html`<th scope="col" class=${name.startsWith("#") ? "num" : ""}>${name.replace("#", "")}</th>`)}</tr></thead>
      <tbody>${children}</tbody>
    </table>
  </div>`;
}

/** A chart's figures, for screen readers. */
export function Alternative({ summary = "As a table", label, head, rows }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details class="alt" onToggle=${(event) => setOpen(event.target.open)}>
    <summary>${summary}<span class="only-read">: ${label}</span></summary>
    ${isOpen &&
    html`<${Table} label=${label} head=${head}>
      ${rows().map((row) => html`<tr>${row.map((cell, index) => (index ? html`<td class=${head[index].startsWith("#") ? "num" : ""}>${cell}</td>` : html`<th scope="row">${cell}</th>`))}</tr>`)}
    <//>`}
  </details>`;
}

export function Choice({ label, value, options, onChange }) {
  return html`<div class="choice" role="group" aria-label=${label}>
    ${Object.entries(options).map(
      ([key, title]) => html`<button type="button" aria-pressed=${key === value} onClick=${() => onChange(key)}>${title}</button>`,
    )}
  </div>`;
}

/** Asks the server for a path again and again; [value, error, again]. */
export function usePolled(path, intervalMs = 2000) {
  const [found, setFound] = useState({ path, value: null, error: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (!path) return undefined;
    const abort = new AbortController();
    let timer = 0;
    const look = async () => {
      try {
        const value = await get(path, { signal: abort.signal });
        setFound({ path, value, error: null });
      } catch (error) {
        if (abort.signal.aborted) return;
        setFound((before) => ({ path, value: before.path === path ? before.value : null, error }));
      }
      if (intervalMs && !abort.signal.aborted) timer = setTimeout(look, document.hidden ? intervalMs * 5 : intervalMs);
    };
    const again = () => setTurn((num) => num + 1);
    addEventListener("keychange", again);
    look();
    return () => {
      abort.abort();
      clearTimeout(timer);
      removeEventListener("keychange", again);
    };
  }, [path, intervalMs, turn]);
  const isOwn = found.path === path;
  return [isOwn ? found.value : null, isOwn ? found.error : null, () => setTurn((num) => num + 1)];
}

export function Failure({ error }) {
  return html`<p class="empty bad" role="alert">${error.message}</p>`;
}
